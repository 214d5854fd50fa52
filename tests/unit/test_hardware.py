"""What hosts print of their hardware, and what an inventory should say of it."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from fleet import hardware, profile
from fleet.hardware import Hardware, Nic
from fleet.model.inventory import Fabric, Host
from fleet.probes import DockerAccess, Gpu
from fleet.profile import Wishes

RDMA = """\
nic rdma10 ACTIVE ens10
nic rdma0 ACTIVE ens1 bond0
nic rdma1 ACTIVE ens2 bond0
nic rdma2 DOWN ens3
nic mlx5_0 ACTIVE
2: eth0    inet 10.0.0.4/24 brd 10.0.0.255 scope global eth0\\       valid_lft forever
5: bond0    inet 198.51.100.14/24 scope global bond0\\       valid_lft forever
5: bond0    inet6 2001:db8::14/64 scope global \\       valid_lft forever
7: ens10@if3    inet6 2001:db8::10/64 scope global \\       valid_lft forever
8: ens3    inet nonsense scope global
9: docker0    inet 172.17.0.1/16 brd 172.17.255.255 scope global docker0
10: br-1f2e    inet 172.18.0.1/16 scope global br-1f2e
"""


def test_rdma_devices_and_the_addresses_on_top_of_them() -> None:
    nics, interfaces = hardware.NETWORK.parse(0, RDMA, "")
    assert nics == (
        Nic(name="mlx5_0", active=True),
        Nic(name="rdma0", active=True, interfaces=("ens1", "bond0"), addresses=("198.51.100.14",)),
        Nic(name="rdma1", active=True, interfaces=("ens2", "bond0"), addresses=("198.51.100.14",)),
        Nic(name="rdma2", active=False, interfaces=("ens3",)),
        Nic(name="rdma10", active=True, interfaces=("ens10",), addresses=("2001:db8::10",)),
    )
    assert interfaces == tuple(
        Nic(name=name, active=True, interfaces=(name,), addresses=(address,))
        for name, address in [("eth0", "10.0.0.4"), ("bond0", "198.51.100.14"), ("ens10", "2001:db8::10")]
    )
    assert hardware.NETWORK.parse(0, "", "") == ((), ())


@pytest.mark.parametrize(
    ("word", "addresses"),
    [
        ("rdma0", ["192.0.2.1", "198.51.100.1"]),
        ("bond0", ["192.0.2.1", "198.51.100.1"]),
        ("198.51.100.0/24", ["198.51.100.1"]),
        ("198.51.100.9/24", ["198.51.100.1"]),
        ("192.0.2.1", ["192.0.2.1"]),
        ("rdma1", []),
        ("2001:db8::/32", []),
    ],
)
def test_which_address_is_meant(word: str, addresses: list[str]) -> None:
    nic = Nic(name="rdma0", active=True, interfaces=("ens1", "bond0"), addresses=("192.0.2.1", "198.51.100.1"))
    assert hardware.picked(nic, word) == addresses


NAMES = [
    (["AMD Instinct MI355X"] * 8, "mi355x"),
    (["AMD Instinct MI300X VF"], "mi300x"),
    (["NVIDIA H100 80GB HBM3"], "h100"),
    (["NVIDIA A100-SXM4-80GB"], "a100"),
    (["NVIDIA GeForce RTX 4090"], "rtx-4090"),
    (["NVIDIA RTX A6000"], "a6000"),
    (["Tesla T4"], "t4"),
    (["", "", "AMD Instinct MI210"], "mi210"),
    (["NVIDIA B200", "NVIDIA B200", "NVIDIA T400"], "b200"),
    (["", ""], ""),
    ([], ""),
]


@pytest.mark.parametrize(("names", "short"), NAMES)
def test_the_short_name_of_gpus(names: list[str], short: str) -> None:
    assert hardware.model_name(names) == short


def test_names_by_driver() -> None:
    out = "0x75a3|\n0x75A3|\n0x744c|AMD Radeon Pro W7900\n0x1234|\n"
    assert hardware.ROCM_NAMES.parse(0, out, "") == ("MI355X", "MI355X", "AMD Radeon Pro W7900", "")
    assert hardware.CUDA_NAMES.parse(0, " NVIDIA B200\n\n", "") == ("NVIDIA B200",)
    assert hardware.DRIVERS.parse(0, "rocm\n", "") == ("rocm",)
    assert hardware.DRIVERS.parse(1, "", "bash: not found") == ()


def test_graphics_beside_real_gpus_do_not_count() -> None:
    small, large = Gpu(name="card0", used=0, total=1 << 29), Gpu(name="gpu0", used=0, total=1 << 36)
    assert hardware.chosen({"rocm": [small], "cuda": [large]}) == "cuda"
    assert hardware.chosen({"rocm": [small]}) == "rocm"
    assert hardware.chosen({}) == "none"


NOBODY = 65534


def asked(probe: Any, root: Path, user: int | None = None) -> Any:
    """What a probe finds on a machine whose folders are below `root`: its script runs, with other roots."""
    argv = [part.replace(" /", f" {root}/") if "shopt" in part else part for part in probe.argv]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False, user=user)
    return probe.parse(done.returncode, done.stdout, done.stderr)


def test_models_are_looked_for(tmp_path: Path) -> None:
    for name in (
        "data/models/A/config.json",
        "mnt/nfs/models/B/config.json",
        "mnt/nfs/models/C/config.json",
        "own/D/x",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "models").mkdir()
    found = asked(hardware.models(str(tmp_path / "own"), str(tmp_path / "gone")), tmp_path)
    assert {folder.removeprefix(f"{tmp_path}/"): names for folder, names in found.items()} == {
        "own": (), "models": (), "data/models": ("A",), "mnt/nfs/models": ("B", "C"),
    }  # fmt: skip
    assert hardware.models("/x").parse(124, "/models\t\n", "") is None
    assert hardware.models("/x").parse(0, "/mo dels\t\n/m;x\t\n/ok\t\n", "") == {"/ok": ()}


def test_scratch_where_this_user_may_not_write() -> None:
    """Root may write everywhere: then nobody asks."""
    user = NOBODY if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        root, probe = Path(made), hardware.scratch(f"{made}/own/fleet")
        root.chmod(0o755)
        (root / "own").mkdir()
        (root / "own").chmod(0o777)
        assert f"{made}/own/fleet" in asked(probe, root, user)
        (root / "own").chmod(0o555)
        assert f"{made}/own/fleet" not in asked(probe, root, user)


def test_scratch_is_measured_where_it_will_be(tmp_path: Path) -> None:
    for name in ("data/big", "mnt/file"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "data/big").mkdir()
    (tmp_path / "mnt/file").touch()
    found = asked(hardware.scratch(f"{tmp_path}/tmp/fleet/deep"), tmp_path)
    assert [folder.removeprefix(f"{tmp_path}/") for folder in found] == [
        "tmp/fleet/deep",
        "data/fleet",
        "data/big/fleet",
    ]
    assert min(found.values()) > 0


# --- what an inventory should say

DOCKER = DockerAccess(usable=True, version="27.3")
GB = 10**9
R0 = Nic(name="rdma0", active=True, interfaces=("ens1",), addresses=("198.51.100.1",))
R1 = Nic(name="rdma1", active=True, interfaces=("ens2",), addresses=("198.51.101.1",))
DOWN = Nic(name="rdma2", active=False, interfaces=("ens3",), addresses=("198.51.102.1",))


def found(**changes: Any) -> Hardware:
    well: dict[str, Any] = {
        "docker": DOCKER, "accelerator": "rocm", "gpus": 8, "gpu": "mi355x", "nics": (R0, DOWN),
        "models": {"/models": (), "/data/models": ("A", "B")}, "scratch": {"/tmp/fleet": 100 * GB},
    }  # fmt: skip
    return Hardware(**(well | changes))


NEW = Host(name="n1")
BARE = {"gpus": 0, "gpu": "", "accelerator": "none", "nics": (), "models": {}}
FULL = Host(
    name="n",
    gpus=8,
    gpu="mi355x",
    accelerator="rocm",
    models="/data/models",
    runners=("a", "b"),
    fabric=Fabric(address="198.51.100.1", nics=("rdma0",)),
)
WHOLE = [
    (NEW, {}, {
        "gpus": 8, "gpu": "mi355x", "accelerator": "rocm", "fabric": {"address": "198.51.100.1", "nics": ["rdma0"]},
        "models": "/data/models", "runners": ["mi355x"]}),
    (NEW, BARE, {}),
    (FULL, {}, {}),
    (FULL, BARE, {"gpus": 0, "accelerator": "none"}),
]  # fmt: skip


@pytest.mark.parametrize(("host", "changes", "expected"), WHOLE)
def test_what_the_inventory_should_say(host: Host, changes: dict[str, Any], expected: dict[str, Any]) -> None:
    assert profile.entry(host, found(**changes), Wishes()) == expected


BOTH = ["rdma0", "rdma1"]
ETH = (
    Nic(name="eth0", active=True, interfaces=("eth0",), addresses=("192.0.2.1",)),
    Nic(name="eth1", active=True, interfaces=("eth1",), addresses=("10.0.0.1",)),
)
PARTS = [
    (NEW, {"nics": (R0, R1)}, Wishes(), "fabric", {"nics": BOTH}),
    (NEW, {"nics": (R0, R1)}, Wishes(fabric="ens2"), "fabric", {"address": "198.51.101.1", "nics": BOTH}),
    (Host(name="n", fabric=Fabric(address="198.51.101.1")), {"nics": (R0, R1)}, Wishes(), "fabric",
     {"address": "198.51.101.1", "nics": BOTH}),
    (Host(name="n", fabric=Fabric(address="10.9.9.9", nics=("rdma0",))), {}, Wishes(), "fabric",
     {"address": "198.51.100.1", "nics": ["rdma0"]}),
    (FULL, {"nics": (DOWN,)}, Wishes(), "fabric", None),
    (NEW, {"nics": (), "interfaces": ETH}, Wishes(), "fabric", None),
    (NEW, {"nics": (), "interfaces": ETH}, Wishes(fabric="eth1"), "fabric", {"address": "10.0.0.1"}),
    (NEW, {"nics": (DOWN,), "interfaces": ETH}, Wishes(fabric="10.0.0.0/24"), "fabric", {"address": "10.0.0.1"}),
    (NEW, {"nics": (R0,), "interfaces": ETH}, Wishes(fabric="eth1"), "fabric", {"nics": ["rdma0"]}),
    (NEW, {}, Wishes(models="/m"), "models", "/m"),
    (NEW, {"models": {"/models": ("A",), "/data/models": ("A", "B")}}, Wishes(), "models", None),
    (NEW, {"models": None}, Wishes(), "models", None),
    (NEW, {"scratch": {"/tmp/fleet": GB // 2, "/data/fleet": 5 * GB, "/mnt/a/fleet": 9 * GB}}, Wishes(), "scratch",
     "/mnt/a/fleet"),
    (NEW, {"scratch": {"/tmp/fleet": GB // 2}}, Wishes(), "scratch", None),
    (NEW, {}, Wishes(labels=("mi300x", "mi355x-disagg", "mi355x")), "runners", ["mi355x"]),
    (NEW, {}, Wishes(labels=("mi300x", "mi355x-amds-long", "mi355x-amds")), "runners", ["mi355x-amds"]),
    (NEW, {"gpu": "mi300x"}, Wishes(labels=("mi355x", "mi300xl")), "runners", ["mi300x"]),
    (NEW, {}, Wishes(runners=("a", "b")), "runners", ["a", "b"]),
    (Host(name="n", runners=("mi355x-disagg",)), {}, Wishes(), "runners", None),
    (NEW, {"gpu": ""}, Wishes(), "runners", None),
    (NEW, {"gpu": ""}, Wishes(), "gpu", None),
]  # fmt: skip


@pytest.mark.parametrize(("host", "changes", "wish", "key", "expected"), PARTS)
def test_one_key_of_it(host: Host, changes: dict[str, Any], wish: Wishes, key: str, expected: object) -> None:
    """None: what the inventory says already may stay."""
    assert profile.entry(host, found(**changes), wish).get(key) == expected


HINTS = [
    ({}, Wishes(), []),
    ({"docker": DockerAccess(usable=False), "docker_cause": "sudo asks for a password"}, Wishes(),
     ["Docker cannot be used: sudo asks for a password"]),
    ({"nics": (R0, R1)}, Wishes(),
     ["which address do its peers use? 198.51.100.1 (rdma0 ens1), 198.51.101.1 (rdma1 ens2); type: "
      "invoke inventory.add --inventory i.yaml --host n1 --update --fabric ens1"]),
    ({"nics": (R0, R1)}, Wishes(fabric="rdma1"), []),
    ({"nics": (DOWN,)}, Wishes(), ["RDMA devices without a link: rdma2"]),
    ({"nics": (), "interfaces": ETH}, Wishes(fabric="0.0.0.0/0"),
     ["which address do its peers use? 192.0.2.1 (eth0), 10.0.0.1 (eth1); type: "
      "invoke inventory.add --inventory i.yaml --host n1 --update --fabric eth0"]),
    ({"nics": (Nic(name="r", active=True),)}, Wishes(), ["no address on r: KV transfer would use the host's own"]),
    ({"gpu": ""}, Wishes(), ["the driver does not say what its GPUs are; write gpu: and runners: by hand"]),
    ({"models": {}}, Wishes(), ["no model found in the usual folders; where are they? type: "
      "invoke inventory.add --inventory i.yaml --host n1 --update --models DIR"]),
    ({"models": {"/models": ()}, "gpus": 0}, Wishes(), []),
    ({"models": None}, Wishes(), ["looking for models took more than 10 s; where are they? type: "
      "invoke inventory.add --inventory i.yaml --host n1 --update --models DIR"]),
    ({"models": {"/models": ("A",), "/b": ("C", "D", "E", "F")}}, Wishes(),
     ["models in several folders: /models (A), /b (C, D, E …); taken: /models"]),
    ({}, Wishes(models="/m"), ["no model is in /m"]),
    ({"scratch": {"/tmp/fleet": 5}}, Wishes(),
     ["no folder with 1.1 GB free that this user may write to; write scratch: by hand"]),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "wish", "expected"), HINTS)
def test_what_is_left_to_people(changes: dict[str, Any], wish: Wishes, expected: list[str]) -> None:
    assert list(profile.hints("n1", NEW, found(**changes), wish, inventory="i.yaml")) == expected
