"""What peers are told of a host that is an alias of ssh_config, up to the plan's argv."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleet import verbs
from fleet.errors import HostError
from fleet.hosts import route
from fleet.model.inventory import Fabric, Host, Inventory
from fleet.settings import Settings
from tests.unit.describing import MTP, ROOT

CONFIG = """\
Host gpu-a
  HostName 192.0.2.21
Host gpu-b
  HostName %h.example.com
Host tunnel
  HostName 127.0.0.1
Host local
  HostName localhost
Host own
  HostName OWN
Host 192.0.2.*
  HostName 203.0.113.1
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "ssh_config"
    path.write_text(CONFIG)
    monkeypatch.setattr(route, "USER_CONFIG", str(path))
    monkeypatch.setattr(route, "SYSTEM_CONFIG", str(tmp_path / "none"))
    return path


@pytest.mark.parametrize(
    ("host", "address"),
    [
        (Host(name="gpu-a"), "192.0.2.21"),
        (Host(name="gpu-b"), "gpu-b.example.com"),
        (Host(name="n1", address="gpu-a"), "192.0.2.21"),
        (Host(name="gpu-a", address="192.0.2.9"), "192.0.2.9"),
        (Host(name="gpu-a", address="elsewhere"), "elsewhere"),
        (Host(name="gpu-a", fabric=Fabric(address="198.51.100.1")), "198.51.100.1"),
        (Host(name="plain"), "plain"),
        (Host(name="tunnel"), "tunnel"),
        (Host(name="local"), "local"),
        (Host(name="own"), "own"),
    ],
)
def test_the_address_that_peers_use(config: Path, host: Host, address: str) -> None:
    (found,) = route.with_peer_addresses(Inventory(path="i.yaml", hosts=(host,))).hosts
    assert found.fast_address == address
    assert found.address == host.address


def test_nics_stay(config: Path) -> None:
    host = Host(name="gpu-a", fabric=Fabric(nics=("rdma0",)))
    (found,) = route.with_peer_addresses(Inventory(path="i.yaml", hosts=(host,))).hosts
    assert found.fabric == Fabric(address="192.0.2.21", nics=("rdma0",))


def test_the_inventorys_own_ssh_config(config: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("Host gpu-a\n  HostName 192.0.2.77\n")
    inventory = Inventory(path="i.yaml", hosts=(Host(name="gpu-a"), Host(name="gpu-b")), ssh_config=str(own))
    assert [host.fast_address for host in route.with_peer_addresses(inventory).hosts] == ["192.0.2.77", "gpu-b"]
    with pytest.raises(HostError, match="no such ssh_config file"):
        route.with_peer_addresses(inventory.model_copy(update={"ssh_config": str(tmp_path / "missing")}))


def test_a_labs_hosts_are_left_alone(config: Path) -> None:
    lab = Inventory(path="lab.yaml", hosts=(Host(name="gpu-a"),), provision="lab")
    assert route.with_peer_addresses(lab) is lab


def test_a_plan_on_aliases_has_addresses(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text("".join(f"Host gpu-{one}\n  HostName 192.0.2.{one}\n" for one in (1, 2, 3)))
    path = tmp_path / "mine.yaml"
    path.write_text("all:\n  vars: {gpus: 8, accelerator: rocm, runners: [mi355x]}\n  hosts: {'gpu-[1-3]': }\n")
    settings = Settings(inventory=path, recipes=ROOT / "recipes", results=tmp_path / "results")
    hashes = []
    for change in ("", "192.0.2.7"):
        config.write_text(config.read_text().replace("192.0.2.1", change or "192.0.2.1"))
        assert verbs.plan(settings, config=MTP, json=True) is None
        planned = json.loads(capsys.readouterr().out)
        text = json.dumps(planned["arms"])
        assert f"http://{change or '192.0.2.1'}:" in text
        assert "http://gpu-" not in text
        assert "ATOM_HOST_IP=gpu-" not in json.dumps(planned["steps"])
        assert f"ATOM_HOST_IP={change or '192.0.2.1'}" in json.dumps(planned["steps"])
        hashes.append(planned["hash6"])
    assert hashes[0] != hashes[1]
