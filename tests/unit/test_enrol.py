"""`inventory.add`: what is asked of hosts, what is written, and that nothing else in the file moves."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from fleet import enrol, provision
from fleet.errors import CommandTimeout, FileFaults, HostKeyError, Unreachable, UsageError
from fleet.hosts import route
from fleet.hosts.base import Transport
from fleet.hosts.fake import Answers, Fake
from fleet.model import load
from fleet.model.inventory import Fabric, Inventory
from fleet.settings import Settings
from tests.unit.describing import ROOT
from tests.unit.test_yamledit import added_lines

Captured = pytest.CaptureFixture[str]
GB = 10**9

FILE = """\
# Who we have.   Two spaces,  kept.
all:
  vars:   { user: "amd", gpus: 8 }   # aligned by hand

  children:
    rack1:
      vars:
        gpu: mi355x
        accelerator: 'rocm'
        runners: [mi355x]
      hosts:
        # the first
        mi355x-01: { address: 192.0.2.11, fabric: { address: 198.51.100.1, nics: [ rdma0 ] } }   # spare PSU
        mi355x-02:
          address:   192.0.2.12
          models:    /data/models    # not /models
          fabric:
            # both ports
            address: 198.51.100.2
            nics: [rdma0]
        mi355x-[03-04]: {ansible_become: yes}

  # login nodes have no GPUs
  hosts:
    login: {gpus: 0}
"""


class Box:
    """A scripted host with eight MI355X and one RDMA device, unless a test says otherwise."""

    def __init__(self, name: str, number: int) -> None:
        self.docker: Answers = "27.3\n"
        self.drivers = "rocm\n"
        self.vram = "".join(f"card{card} 0 {288 * GB}\n" for card in range(8))
        self.names = "0x75a3|\n" * 8
        address = f"2: ens1    inet 198.51.100.{number}/24 scope global ens1\n3: eth0    inet 10.0.0.1/8\n"
        self.rdma = f"nic rdma0 ACTIVE ens1\n{address}"
        self.models: Answers = "/models\t\n/data/models\t\n/data/models\t/data/models/DeepSeek-V4-Pro\n"
        self.scratch = f"/tmp/fleet\t{500 * GB}\n"
        script: list[tuple[Any, Answers]] = [
            (["docker", "version"], lambda *_: self.docker),
            (["sudo", "-n", "docker"], (1, "", "sudo: a password is required")),
            ("/dev/kfd", lambda *_: self.drivers),
            ("mem_info_vram_used", lambda *_: self.vram),
            ("product_name", lambda *_: self.names),
            ("/sys/class/infiniband", lambda *_: self.rdma),
            ("config.json", self._models),
            ("/var/tmp", lambda *_: self.scratch),
        ]
        self.fake = Fake(name, script)

    def _models(self, argv: list[str], stdin: bytes) -> Any:
        if isinstance(self.models, BaseException):
            raise self.models
        return self.models


class Lab:
    """The machines that a session meets, by the names it asks for; those without a box do not answer."""

    def __init__(self) -> None:
        self.boxes = {f"mi355x-0{number}": Box(f"mi355x-0{number}", number) for number in range(1, 9)}
        self.met: list[Inventory] = []

    def transports(self, inventory: Inventory, connect: float) -> dict[str, Transport]:
        self.met.append(inventory)
        return {host.name: self._transport(host.name) for host in inventory.hosts}

    def _transport(self, name: str) -> Transport:
        if name in self.boxes:
            return self.boxes[name].fake
        return Fake(name, [(lambda _: True, Unreachable("name unknown", where=name, hint=f"try:  ssh {name} true"))])


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Lab:
    made = Lab()
    monkeypatch.setitem(provision.PROVISIONERS, "static", made.transports)
    monkeypatch.setattr(route, "USER_CONFIG", str(tmp_path / "ssh_config"))
    monkeypatch.setattr(route, "SYSTEM_CONFIG", str(tmp_path / "none"))
    (tmp_path / "ssh_config").write_text("Host spare other\n  HostName 192.0.2.12\nHost *\n  Port 22\n")
    return made


@pytest.fixture
def desk(tmp_path: Path) -> Settings:
    path = tmp_path / "mine.yaml"
    path.write_text(FILE)
    return Settings(inventory=path, recipes=ROOT / "recipes", results=tmp_path / "results")


def add(settings: Settings, *hosts: str, **options: Any) -> int | None:
    return enrol.run(settings, hosts=hosts, **options)


# --------------------------------------------------------------------- writing


def test_hosts_are_added_and_nothing_else_moves(desk: Settings, lab: Lab, capsys: Captured) -> None:
    lab.boxes["mi355x-06"].vram = "card0 0 1\ncard1 0 1\n"
    assert add(desk, "mi355x-[05-06]", group="rack1") is None
    assert added_lines(FILE, desk.inventory.read_text()) == [
        "        mi355x-05: {fabric: {address: 198.51.100.5, nics: [rdma0]}, models: /data/models}",
        "        mi355x-06: {gpus: 2, fabric: {address: 198.51.100.6, nics: [rdma0]}, models: /data/models}",
    ]
    found = {host.name: host for host in load.inventory(desk.inventory).hosts}
    fifth = found["mi355x-05"]
    assert (fifth.user, fifth.gpus, fifth.gpu, fifth.accelerator, fifth.models, fifth.runners, fifth.groups) == (
        "amd", 8, "mi355x", "rocm", "/data/models", ("mi355x",), ("rack1",),
    )  # fmt: skip
    said = capsys.readouterr()
    assert said.err == ""
    lines = said.out.splitlines()
    assert lines[1].split("  ")[:2] == ["mi355x-05", "8 × mi355x"]
    assert "+        mi355x-05: {fabric: {address: 198.51.100.5, nics: [rdma0]}, models: /data/models}" in lines
    assert "written: mi355x-[05-06]" in lines
    assert lines[-2] == f"{desk.inventory} is sound: 7 hosts, 4 of 4 recipes can run on them"
    assert lines[-1] == f"next: invoke health --inventory {desk.inventory} --limit 'mi355x-[05-06]'"


def test_a_file_that_is_not_there_is_made(tmp_path: Path, desk: Settings, lab: Lab, capsys: Captured) -> None:
    path = tmp_path / "new" / "mine.yaml"
    assert add(desk.model_copy(update={"inventory": path}), "mi355x-01", "ada@mi355x-02:2222", group="rack1") is None
    assert (
        path.read_text()
        == f"""\
# Who we have. What each key means: docs/inventory.md
# Is it right? invoke inventory.check --inventory {path}
all:
  children:
    rack1:
      hosts:
        mi355x-01:
          gpus: 8
          gpu: mi355x
          accelerator: rocm
          fabric: {{address: 198.51.100.1, nics: [rdma0]}}
          models: /data/models
          runners: [mi355x]
        mi355x-02:
          user: ada
          port: 2222
          gpus: 8
          gpu: mi355x
          accelerator: rocm
          fabric: {{address: 198.51.100.2, nics: [rdma0]}}
          models: /data/models
          runners: [mi355x]
"""
    )
    assert path.stat().st_mode & 0o777 == 0o644
    assert "--- /dev/null\n" in capsys.readouterr().out
    assert [(host.user, host.port) for host in lab.met[0].hosts] == [(None, None), ("ada", 2222)]


EMPTY = [
    ("# nobody yet\n", "# nobody yet\nall:\n  hosts:\n    mi355x-01:\n"),
    ("all:\n  vars: {gpus: 8}\n  hosts: {}  # none\n", "all:\n  vars: {gpus: 8}\n  hosts:  # none\n    mi355x-01:\n"),
    ("rack:\n  hosts:\n    a:", "rack:\n  hosts:\n    a:\nall:\n  hosts:\n    mi355x-01:\n"),
]


@pytest.mark.parametrize(("before", "after"), EMPTY)
def test_files_without_hosts(desk: Settings, lab: Lab, before: str, after: str) -> None:
    desk.inventory.write_text(before)
    assert add(desk, "mi355x-01") is None
    assert desk.inventory.read_text().startswith(after)
    assert "mi355x-01" in [host.name for host in load.inventory(desk.inventory).hosts]


def test_a_dry_run_is_the_diff_alone(desk: Settings, lab: Lab, capsys: Captured) -> None:
    lab.boxes["mi355x-05"].docker = (1, "", "permission denied")
    assert add(desk, "mi355x-05", "mi355x-01", group="rack1", dry_run=True) is None
    said = capsys.readouterr()
    assert desk.inventory.read_text() == FILE
    assert said.out == (
        f"--- {desk.inventory}\n+++ {desk.inventory}\n@@ -19,6 +19,7 @@\n"
        "             address: 198.51.100.2\n             nics: [rdma0]\n"
        "         mi355x-[03-04]: {ansible_become: yes}\n"
        "+        mi355x-05: {fabric: {address: 198.51.100.5, nics: [rdma0]}, models: /data/models}\n"
        " \n   # login nodes have no GPUs\n   hosts:\n"
    )
    assert "mi355x-05: Docker cannot be used: this user may not use the Docker socket" in said.err
    assert add(desk, "mi355x-05", group="rack1", dry_run=True, models="/m") is None
    capsys.readouterr()
    desk.inventory.write_text(
        FILE.replace("[03-04]", "[03-05]").replace("become: yes", "become: yes, models: /data/models")
    )
    assert add(desk, "mi355x-05", dry_run=True) is None
    assert capsys.readouterr().out == ""


def test_the_mode_and_the_link_of_a_file_stay(tmp_path: Path, desk: Settings, lab: Lab) -> None:
    desk.inventory.chmod(0o640)
    link = tmp_path / "link.yaml"
    link.symlink_to(desk.inventory.name)
    assert add(desk.model_copy(update={"inventory": link}), "mi355x-05") is None
    assert link.is_symlink()
    assert "mi355x-05:" in desk.inventory.read_text()
    assert desk.inventory.stat().st_mode & 0o777 == 0o640


def test_a_file_that_changes_meanwhile_is_left_alone(desk: Settings, lab: Lab) -> None:
    box = lab.boxes["mi355x-05"]
    box.fake.script = [
        (["docker", "version"], lambda *_: (desk.inventory.write_text(FILE + "# me too\n"), "27.3\n")[1]),
        *box.fake.script,
    ]
    with pytest.raises(UsageError, match="was changed meanwhile"):
        add(desk, "mi355x-05")
    assert desk.inventory.read_text() == FILE + "# me too\n"
    assert sorted(os.listdir(desk.inventory.parent)) == ["mine.yaml", "ssh_config"]


# --------------------------------------------------------------------- hosts that are there


def test_a_host_that_is_there_is_told_and_not_changed(desk: Settings, lab: Lab, capsys: Captured) -> None:
    lab.boxes["mi355x-02"].vram = "card0 0 1\n" * 7
    lab.boxes["mi355x-02"].rdma += "nic rdma1 ACTIVE ens1\n"
    assert add(desk, "mi355x-02", "mi355x-01", models="/data/models") is None
    assert desk.inventory.read_text() == FILE
    told = capsys.readouterr().out
    assert (
        f"mi355x-02: is in {desk.inventory} already and stays as it is; it says gpus: 8 (found: 7), "
        "fabric: 198.51.100.2 rdma0 (found: 198.51.100.2 rdma[0-1])\n"
        f"to write what was found:  invoke inventory.add --inventory {desk.inventory} --host mi355x-02 --update\n"
    ) in told
    assert "mi355x-01: is in" in told
    assert "models: /models (found: /data/models)" in told
    assert "written" not in told


def test_as_it_was_found(desk: Settings, lab: Lab, capsys: Captured) -> None:
    assert add(desk, "mi355x-02", update=True) is None
    assert f"mi355x-02: is in {desk.inventory} already, as it was found\n" in capsys.readouterr().out
    assert desk.inventory.read_text() == FILE


def test_an_update_changes_what_differs_and_nothing_else(desk: Settings, lab: Lab, capsys: Captured) -> None:
    second = lab.boxes["mi355x-02"]
    second.vram, second.models = "card0 0 1\n" * 7, "/mnt/a/models\t/mnt/a/models/X\n"
    second.rdma = "nic rdma0 ACTIVE ens1\nnic rdma1 ACTIVE ens1\n2: ens1    inet 198.51.100.22/24\n"
    assert add(desk, "mi355x-[01-03]", update=True) is None
    assert desk.inventory.read_text() == (
        FILE.replace("nics: [ rdma0 ] } }", "nics: [ rdma0 ] }, models: /data/models }")
        .replace("/data/models    # not", "/mnt/a/models    # not")
        .replace(
            "198.51.100.2\n            nics: [rdma0]\n",
            "198.51.100.22\n            nics: [rdma0, rdma1]\n          gpus: 7\n",
        )
        .replace(
            "{ansible_become: yes}\n",
            "{ansible_become: yes}\n        mi355x-03:\n          "
            "fabric: {address: 198.51.100.3, nics: [rdma0]}\n          models: /data/models\n",
        )
    )
    found = {host.name: host for host in load.inventory(desk.inventory).hosts}
    assert found["mi355x-02"].gpus == 7
    assert found["mi355x-03"].fabric == Fabric(address="198.51.100.3", nics=("rdma0",))
    assert found["mi355x-04"].fabric == Fabric()
    assert "written: mi355x-[01-03]\n" in capsys.readouterr().out


def test_an_update_adds_to_a_group(desk: Settings, lab: Lab, capsys: Captured) -> None:
    assert add(desk, "mi355x-02", "mi355x-05", group="rack2") is None
    assert "it says group: rack1 (found: rack2)" in capsys.readouterr().out
    assert add(desk, "mi355x-02", group="rack2", update=True) is None
    groups = {host.name: host.groups for host in load.inventory(desk.inventory).hosts}
    assert groups["mi355x-02"] == ("rack1", "rack2")
    assert groups["mi355x-05"] == ("rack2",)


PARTS = """\
all:
  hosts:
    mi355x-01: {gpus: 4}
  children:
    lab:
      children:
        rack1:
    rack1:
      vars: {models: /data/models}
      hosts:
        mi355x-01: {models: /m}
"""


def test_what_is_written_in_several_places(desk: Settings, lab: Lab) -> None:
    """A value is changed where the one that counts stands; a group gets hosts where it is filled, not where named."""
    desk.inventory.write_text(PARTS)
    assert add(desk, "mi355x-[01-02]", group="rack1", update=True) is None
    first = "gpu: mi355x, accelerator: rocm, fabric: {address: 198.51.100.1, nics: [rdma0]}, runners: [mi355x]"
    second = """
        mi355x-02:
          gpus: 8
          gpu: mi355x
          accelerator: rocm
          fabric: {address: 198.51.100.2, nics: [rdma0]}
          runners: [mi355x]"""
    changed = PARTS.replace("{gpus: 4}", "{gpus: 8}").replace(
        "{models: /m}", f"{{models: /data/models, {first}}}{second}"
    )
    assert desk.inventory.read_text() == changed


def test_what_cannot_be_written_without_changing_more_is_refused(desk: Settings, lab: Lab) -> None:
    text = "all:\n  hosts:\n    mi355x-01: &one {gpus: 4}\n    mi355x-02: *one\n"
    desk.inventory.write_text(text)
    with pytest.raises(UsageError, match="mi355x-02: stands there as an alias"):
        add(desk, "mi355x-02", update=True)
    with pytest.raises(UsageError, match="mi355x-02 would change"):
        add(desk, "mi355x-01", update=True)
    assert desk.inventory.read_text() == text


# --------------------------------------------------------------------- hosts that cannot be asked


def test_one_that_fails_does_not_keep_the_others(desk: Settings, lab: Lab, capsys: Captured) -> None:
    assert add(desk, "mi355x-05", "gone", "mi355x-06") == 3
    said = capsys.readouterr()
    assert said.err == "gone: name unknown\ntry:  ssh gone true\n"
    names = [host.name for host in load.inventory(desk.inventory).hosts]
    assert names == ["login", "mi355x-05", "mi355x-06", *(f"mi355x-0{number}" for number in range(1, 5))]


def test_all_fail(desk: Settings, lab: Lab, capsys: Captured) -> None:
    assert add(desk, "gone") == 3
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "gone: name unknown\ntry:  ssh gone true\nnothing was written\n")
    assert desk.inventory.read_text() == FILE


def test_unknown_keys_of_several_hosts_are_one_line(desk: Settings, lab: Lab, capsys: Captured) -> None:
    for number in (5, 6, 7):
        error = HostKeyError("the host key is unknown", where=f"mi355x-0{number}", hint="trust it: one")
        lab.boxes[f"mi355x-0{number}"].fake.script = [(lambda _: True, error)]
    assert add(desk, "mi355x-[05-06]", "ops@mi355x-07:2222", "gone") == 3
    assert capsys.readouterr().err.splitlines() == [
        "mi355x-05: the host key is unknown",
        "mi355x-06: the host key is unknown",
        "mi355x-07: the host key is unknown",
        "gone: name unknown",
        "try:  ssh gone true",
        f"compare the fingerprints with the hosts' own, then:  invoke trust --inventory {desk.inventory}"
        " --host mi355x-05 --host mi355x-06 --host ops@mi355x-07:2222",
        "nothing was written",
    ]
    assert add(desk, "mi355x-05") == 3
    assert capsys.readouterr().err.splitlines()[1].endswith(f"trust --inventory {desk.inventory} --host mi355x-05")


def test_a_mount_that_hangs_keeps_no_host_out(desk: Settings, lab: Lab, capsys: Captured) -> None:
    lab.boxes["mi355x-05"].models = CommandTimeout("did not end within 30 s", where="mi355x-05")
    assert add(desk, "mi355x-05") is None
    assert "mi355x-05: looking for models took more than 10 s" in capsys.readouterr().out
    assert load.inventory(desk.inventory).hosts[-1].models == "/models"


def test_the_same_machine_under_another_name(desk: Settings, lab: Lab, capsys: Captured) -> None:
    """By its address as it is written, and as ssh_config resolves an alias; two aliases at once."""
    lab.boxes |= {"192.0.2.11": Box("192.0.2.11", 1), "new": Box("new", 9), "new2": Box("new2", 9)}
    config = Path(route.USER_CONFIG)
    config.write_text(config.read_text() + "Host new new2\n  HostName 192.0.2.99\n")
    assert add(desk, "192.0.2.11", "spare", "new", "new2") == 3
    told = capsys.readouterr().err
    assert "192.0.2.11: the same machine as mi355x-01: 192.0.2.11 port 22\n" in told
    assert "spare: the same machine as mi355x-02: 192.0.2.12 port 22\n" in told
    assert "new2: the same machine as new: 192.0.2.99 port 22\n" in told
    assert [host.name for host in lab.met[0].hosts] == ["new"]


# --------------------------------------------------------------------- no GPUs


def test_hosts_without_gpus_are_told_once_with_what_to_write(desk: Settings, lab: Lab, capsys: Captured) -> None:
    path = desk.inventory.with_name("new.yaml")
    for name in ("mi355x-01", "mi355x-02", "mi355x-03"):
        lab.boxes[name].drivers = ""
        lab.boxes[name].docker = (1, "", "permission denied")
        lab.boxes[name].models = "/models\t\n"
    lab.boxes["mi355x-03"].models = CommandTimeout("did not end within 30 s", where="mi355x-03")
    lab.boxes["mi355x-02"].models = CommandTimeout("did not end within 30 s", where="mi355x-02")
    settings = desk.model_copy(update={"inventory": path})
    assert add(settings, "mi355x-[01-03]") is None
    told = capsys.readouterr().out
    line = "no GPUs found on mi355x-[01-03]; if they have some write: gpus: 8, accelerator: rocm (or cuda)"
    assert f"{line}, runners: [mi355x]\n" in told
    assert told.count("no GPUs found") == told.count("Docker cannot be used") == 1
    more = f"invoke inventory.add --inventory {path} --host 'mi355x-[02-03]' --update --models DIR"
    assert f"mi355x-[02-03]: looking for models took more than 10 s; where are they? type: {more}\n" in told
    assert "is sound: 3 hosts, 0 of 4 recipes can run on them\n" in told
    assert add(settings, "mi355x-[01-03]", runners=["x"], update=True) is None
    assert f"{line}\n" in capsys.readouterr().out


# --------------------------------------------------------------------- the fast network


TWO = "nic rdma0 ACTIVE ens1\nnic rdma1 ACTIVE ens2\n1: ens1    inet 198.51.100.5/24\n2: ens2    inet 198.51.101.5/24\n"


def test_which_address_is_asked_for(desk: Settings, lab: Lab, capsys: Captured) -> None:
    lab.boxes["mi355x-05"].rdma = TWO
    assert add(desk, "mi355x-05") is None
    line = f"invoke inventory.add --inventory {desk.inventory} --host mi355x-05 --update --fabric ens1"
    choices = "198.51.100.5 (rdma0 ens1), 198.51.101.5 (rdma1 ens2)"
    assert f"mi355x-05: which address do its peers use? {choices}; type: {line}\n" in capsys.readouterr().out
    found = {host.name: host for host in load.inventory(desk.inventory).hosts}["mi355x-05"]
    assert found.fabric == Fabric(nics=("rdma0", "rdma1"))
    assert add(desk, "mi355x-05", update=True, fabric="198.51.101.0/24") is None
    found = {host.name: host for host in load.inventory(desk.inventory).hosts}["mi355x-05"]
    assert found.fabric == Fabric(address="198.51.101.5", nics=("rdma0", "rdma1"))


def test_a_network_that_a_host_has_not(desk: Settings, lab: Lab, capsys: Captured) -> None:
    lab.boxes["mi355x-05"].rdma = TWO
    assert add(desk, "mi355x-05", "mi355x-06", fabric="ens2") == 3
    assert capsys.readouterr().err == (
        "mi355x-06: --fabric ens2 fits none of its RDMA devices with a link\nthere are: 198.51.100.6 (rdma0 ens1)\n"
    )
    assert "mi355x-06" not in desk.inventory.read_text()


def test_ordinary_interfaces_where_there_is_no_rdma(desk: Settings, lab: Lab, capsys: Captured) -> None:
    for number in (5, 6):
        lab.boxes[
            f"mi355x-0{number}"
        ].rdma = f"2: eth0    inet 192.0.2.{number}/24\n3: eth1    inet 10.0.0.{number}/24\n"
    assert add(desk, "mi355x-05", fabric="10.0.0.0/24") is None
    assert add(desk, "mi355x-06", fabric="eth1") is None
    found = {host.name: host.fabric for host in load.inventory(desk.inventory).hosts}
    assert (found["mi355x-05"], found["mi355x-06"]) == (Fabric(address="10.0.0.5"), Fabric(address="10.0.0.6"))
    capsys.readouterr()
    assert add(desk, "mi355x-06", update=True, fabric="eth9") == 3
    assert capsys.readouterr().err == (
        "mi355x-06: --fabric eth9 fits none of its interfaces\nthere are: 192.0.2.6 (eth0), 10.0.0.6 (eth1)\n"
        "nothing was written\n"
    )


# --------------------------------------------------------------------- what is refused


REFUSED: list[tuple[tuple[str, ...], dict[str, Any], str, str]] = [
    ((), {}, "which host?", "type: invoke inventory.add --host NAME\naliases in ~/.ssh/config: spare, other"),
    (("n[3-1]",), {}, "--host n[3-1]: 3 comes after 1", "type: --host 'node[01-08]'"),
    (("::1",), {}, "--host ::1: an alias of ~/.ssh/config, a name or an IPv4 address expected",
     "for anything else write an alias into ~/.ssh/config first"),
    (("a b",), {}, "--host a b: an alias of ~/.ssh/config, a name or an IPv4 address expected",
     "for anything else write an alias into ~/.ssh/config first"),
    (("rack1",), {}, "--host rack1: that is a group in mine.yaml", "a host's name is needed"),
    (("mi355x-05",), {"group": "a b"}, "--group a b: letters, digits, dots and dashes expected", "nothing was written"),
    (("mi355x-05",), {"models": "models"}, "--models models: a path from / expected", "nothing was written"),
    (("mi355x-05:99999",), {}, "mine.yaml would not be sound with these hosts:\n"
     "  port: 99999  from 1 to 65535 expected", "nothing was written"),
]  # fmt: skip


@pytest.mark.parametrize(("hosts", "options", "what", "hint"), REFUSED)
def test_refused(
    desk: Settings,
    lab: Lab,
    monkeypatch: pytest.MonkeyPatch,
    hosts: tuple[str, ...],
    options: Any,
    what: str,
    hint: str,
) -> None:
    monkeypatch.chdir(desk.inventory.parent)
    with pytest.raises(UsageError) as caught:
        add(desk.model_copy(update={"inventory": Path("mine.yaml")}), *hosts, **options)
    assert (caught.value.what, caught.value.hint) == (what, hint)
    assert desk.inventory.read_text() == FILE
    assert lab.met == []


def test_the_labs_own_inventory_is_left_alone(desk: Settings, lab: Lab) -> None:
    settings = desk.model_copy(update={"inventory": ROOT / "inventories" / "lab.yaml"})
    with pytest.raises(UsageError, match="has the nodes of invoke") as caught:
        add(settings, "mi355x-[01-02]", "login")
    mine = ROOT / "inventories" / "mine.yaml"
    line = f"invoke inventory.add --inventory {mine} --host 'mi355x-[01-02]' --host login"
    assert caught.value.hint == f"type: {line}"


def test_a_faulty_file_is_refused_with_its_faults(desk: Settings, lab: Lab) -> None:
    desk.inventory.write_text(FILE.replace("gpus: 8", "gpuss: 8").replace("'rocm'", "rocn"))
    with pytest.raises(FileFaults, match="2 faults") as caught:
        add(desk, "mi355x-05")
    assert [fault.line for fault in caught.value.faults] == [3, 9]
    assert caught.value.hint == "nothing was written"
    desk.inventory.write_text("[gpu]\nnode1\n")
    with pytest.raises(FileFaults, match="an INI inventory"):
        add(desk, "mi355x-05")
    assert lab.met == []


def test_the_verb_hands_all_on(desk: Settings, lab: Lab, capsys: Captured) -> None:
    options: dict[str, Any] = {"group": "rack1", "runners": ["x"], "models": "/m", "fabric": "ens1", "dry_run": True}
    assert enrol.run(desk, hosts=["mi355x-05"], update=False, **options) is None
    line = "+        mi355x-05: {fabric: {address: 198.51.100.5, nics: [rdma0]}, models: /m, runners: [x]}"
    assert line in capsys.readouterr().out
