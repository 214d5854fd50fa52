"""Inventories: nearest wins, aliases, limits, and what is refused."""

from __future__ import annotations

import posixpath
from pathlib import Path

import pytest

from fleet import docker
from fleet.errors import UsageError
from fleet.model import hostrange, load, roster
from fleet.model.inventory import Fabric, Inventory, Trial
from fleet.results import lastfailed
from tests import build
from tests.unit.describing import INVENTORIES, edited, told

FILE = """\
all:
  vars:
    user: amd
    gpus: 8
    accelerator: rocm
    env: {A: "all", B: "all"}
  hosts:
    login:
      gpus: 0
  children:
    gpu:
      vars:
        models: /data/models
        env: {B: "gpu", C: "gpu"}
        runners: [mi355x]
      hosts:
        n1: {ansible_host: 192.0.2.1, ansible_port: 2222, env: {C: "n1"}}
      children:
        fast:
          vars: {user: root, fabric: {nics: [rdma0]}}
          hosts:
            n2: {user: me}
            n3:
    rack:
      vars: {scratch: /rack}
      hosts:
        n3: {identity: ~/.ssh/id}
"""


def load_text(tmp_path: Path, text: str) -> Inventory:
    path = tmp_path / "i.yaml"
    path.write_text(text)
    return load.inventory(path)


def test_the_nearest_value_wins(tmp_path: Path) -> None:
    found = {host.name: host for host in load_text(tmp_path, FILE).hosts}
    assert list(found) == ["login", "n1", "n2", "n3"]
    assert [host.user for host in found.values()] == ["amd", "amd", "me", "root"]
    assert [host.gpus for host in found.values()] == [0, 8, 8, 8]
    assert [host.groups for host in found.values()] == [(), ("gpu",), ("gpu", "fast"), ("gpu", "fast", "rack")]
    n1, n3 = found["n1"], found["n3"]
    assert (n1.address, n1.port, n1.models, n1.runners) == ("192.0.2.1", 2222, "/data/models", ("mi355x",))
    assert n1.env == {"A": "all", "B": "gpu", "C": "n1"}
    assert found["login"].env == {"A": "all", "B": "all"}
    assert (n3.scratch, n3.identity, n3.fabric) == ("/rack", "~/.ssh/id", Fabric(nics=("rdma0",)))


def test_the_shipped_inventories() -> None:
    lab = load.inventory(INVENTORIES / "lab.yaml")
    assert (lab.provision, [host.name for host in lab.hosts]) == ("lab", ["node1", "node2", "node3"])
    assert lab.trial == Trial(input=256, output=32, prompts_per_concurrency=4, max_concurrency=64)
    assert {(host.gpus, host.accelerator, host.models, host.scratch, host.runners) for host in lab.hosts} == {
        (8, "none", "/srv/models", "/srv/fleet", ("mi355x",))
    }
    example = load.inventory(INVENTORIES / "example-mi355x.yaml")
    assert [host.name for host in example.hosts] == [f"mi355x-0{number}" for number in range(1, 5)]
    assert (example.provision, example.trial, example.hosts[3].groups) == ("static", None, ("rack2",))
    assert example.hosts[0].fast_address == "198.51.100.11"
    assert len(example.hosts[0].fabric.nics) == 8


def test_other_ansible_variables_are_noted(tmp_path: Path) -> None:
    found = load_text(tmp_path, "all:\n  vars: {ansible_become: true}\n  hosts:\n    a: {ansible_python: x}\n")
    assert found.notes == (
        f"{tmp_path}/i.yaml:2  ansible_become is not used by fleet",
        f"{tmp_path}/i.yaml:4  ansible_python is not used by fleet",
    )


LIMITS = [
    ([], ["login", "n1", "n2", "n3"]),
    ([""], ["login", "n1", "n2", "n3"]),
    (["all"], ["login", "n1", "n2", "n3"]),
    (["n3,login"], ["login", "n3"]),
    (["fast"], ["n2", "n3"]),
    (["rack", "n1"], ["n1", "n3"]),
    (["gpu, login"], ["login", "n1", "n2", "n3"]),
]


@pytest.mark.parametrize(("patterns", "expected"), LIMITS)
def test_limit(tmp_path: Path, patterns: list[str], expected: list[str]) -> None:
    limited = load.limit(load_text(tmp_path, FILE), patterns)
    assert [host.name for host in limited.hosts] == expected


def test_an_unknown_limit_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        load.limit(load_text(tmp_path, FILE), ["n1,fats"])
    assert caught.value.what == f"--limit fats: no such host or group in {tmp_path}/i.yaml; did you mean fast?"
    assert caught.value.hint == "hosts: login, n1, n2, n3\ngroups: gpu, fast, rack"


RACKS = """\
all:
  vars: {accelerator: rocm}
  hosts:
    login:
  children:
    web:
      hosts:
        mi355x-[01-04]:
    db:
      hosts:
        mi355x-[03-06]:
        mi300x-[a:c]: {gpus: 4}
"""

PATTERNS = [
    ("mi355x-0*", "01 02 03 04 05 06"),
    ("mi355x-0[12]", "01 02"),
    ("mi355x-[02-04]", "02 03 04"),
    ("mi355x-[02:06:2]", "02 04 06"),
    ("w*", "01 02 03 04"),
    ("web:&db", "03 04"),
    ("web:!db", "01 02"),
    ("!db:web", "01 02"),
    ("&db,web", "03 04"),
    ("web:db:!mi300x-*:!mi355x-04", "01 02 03 05 06"),
    ("web:db:&mi355x-0[1-5]:!mi355x-03", "01 02 04 05"),
    ("all:!web:!db", "login"),
    ("!web:!db", "login"),
    ("&web", "01 02 03 04"),
    ("web[0]", "01"),
    ("web[-1]", "04"),
    ("web[0:1]", "01 02"),
    ("web[2:]", "03 04"),
    ("db:!mi355x*", "mi300x-a mi300x-b mi300x-c"),
    ("@last-failed", "02 mi300x-b"),
    ("@last-failed:!web", "mi300x-b"),
    ("web:!@last-failed", "01 03 04"),
]


@pytest.mark.parametrize(("pattern", "expected"), PATTERNS)
def test_patterns_mean_what_they_mean_to_ansible(tmp_path: Path, pattern: str, expected: str) -> None:
    failed = {"last-failed": ["mi300x-b", "mi355x-02"]}
    limited = load.limit(load_text(tmp_path, RACKS), [pattern], failed)
    assert [host.name.removeprefix("mi355x-") for host in limited.hosts] == expected.split()


UNKNOWN = [
    ("web:&dbb", "--limit dbb: no such host or group in i.yaml; did you mean db?"),
    ("web:!mi355x-1*", "--limit mi355x-1*: no such host or group in i.yaml; did you mean mi355x-01?"),
    ("mi355x-[05-07]", "--limit mi355x-[05-07]: mi355x-07: no such host or group in i.yaml; did you mean mi355x-01?"),
    ("mi355x-[05-04]", "--limit mi355x-[05-04]: 05 comes after 04"),
    ("login:&web", "--limit login,&web: no host of i.yaml is left"),
    ("web[7]", "--limit web[7]: no host of i.yaml is left"),
    ("@last-faild", "--limit @last-faild: there is only @last-failed; did you mean @last-failed?"),
    ("@last-failed", "--limit @last-failed: gone failed last, and i.yaml has no such host"),
]


@pytest.mark.parametrize(("pattern", "what"), UNKNOWN)
def test_a_pattern_that_means_nobody(tmp_path: Path, pattern: str, what: str) -> None:
    inventory = load_text(tmp_path, RACKS).model_copy(update={"path": "i.yaml"})
    with pytest.raises(UsageError) as caught:
        load.limit(inventory, [pattern], {"last-failed": ["gone"]})
    assert caught.value.what == what
    assert "hosts: login, mi355x-01" in caught.value.hint


def test_ranges_keep_their_zeros_and_their_order(tmp_path: Path) -> None:
    names = [host.name for host in load_text(tmp_path, RACKS).hosts]
    assert names == ["login", *(f"mi355x-0{n}" for n in range(1, 7)), "mi300x-a", "mi300x-b", "mi300x-c"]
    assert hostrange.expand("r[1-2]n[08-10]") == ["r1n08", "r1n09", "r1n10", "r2n08", "r2n09", "r2n10"]
    assert hostrange.expand("n[8-10].x") == ["n8.x", "n9.x", "n10.x"]
    assert hostrange.expand("n[A-C]") == ["nA", "nB", "nC"]
    with pytest.raises(ValueError, match="more than 10000"):
        hostrange.expand("n[1-999999999]")


FOLDED = [
    (["node1", "node2", "node3"], "node[1-3]"),
    (["node3", "node1", "login"], "node1 node3 login"),
    (["m-08", "m-09", "m-10", "m-12"], "m-[08-10] m-12"),
    (["n9", "n10"], "n[9-10]"),
    (["n09", "n9", "n10"], "n9 n[09-10]"),
    (["r1-a", "r2-a", "r3-b"], "r[1-2]-a r3-b"),
]


@pytest.mark.parametrize(("names", "shown"), FOLDED)
def test_names_are_folded_to_what_is_read_back(names: list[str], shown: str) -> None:
    assert hostrange.folded(names) == shown
    assert sorted(one for word in shown.split() for one in hostrange.expand(word)) == sorted(names)


ANSIBLE = """\
---
all:
  vars:
    ansible_user: amd
    ansible_ssh_private_key_file: ~/.ssh/lab
    ansible_python_interpreter: /usr/bin/python3
    ansible_become: true
  children:
    lab:
      children:
        gpu_nodes:
        login:
    gpu_nodes:
      vars: {gpus: 8, accelerator: rocm, runners: [mi355x]}
      children:
        rack_a: {hosts: {"mi355x-[01:04].lab":}}
        rack_b:
          hosts:
            mi355x-05.lab: {ansible_host: 192.0.2.15, ansible_port: 2222}
            mi355x-06.lab:
      hosts:
    login:
      hosts:
        gate: {ansible_host: 192.0.2.1, ansible_connection: ssh}
    ungrouped: {}
drained:
  hosts:
    mi355x-06.lab:
"""


def test_the_ansible_inventory_of_a_lab_loads_as_it_is(tmp_path: Path) -> None:
    inventory = load_text(tmp_path, ANSIBLE)
    found = {host.name: host for host in inventory.hosts}
    nodes = [f"mi355x-0{number}.lab" for number in range(1, 7)]
    assert list(found) == [*nodes, "gate"]
    assert {(host.user, host.identity) for host in inventory.hosts} == {("amd", "~/.ssh/lab")}
    assert [host.gpus for host in inventory.hosts] == [8] * 6 + [0]
    assert (found[nodes[4]].address, found[nodes[4]].port) == ("192.0.2.15", 2222)
    assert set(found[nodes[5]].groups) == {"lab", "gpu_nodes", "rack_b", "drained"}
    assert set(found["gate"].groups) == {"lab", "login"}
    assert [note.partition("  ")[2] for note in inventory.notes] == [
        "ansible_python_interpreter is not used by fleet",
        "ansible_become is not used by fleet",
        "ansible_connection is not used by fleet",
    ]
    limited = load.limit(inventory, ["lab:!login:!drained"])
    assert [host.name for host in limited.hosts] == nodes[:5]
    path = tmp_path / "resolved.yaml"
    path.write_text(load.resolved_inventory(inventory))
    again = {host.name: host for host in load.inventory(path).hosts}
    assert {name: host.model_copy(update={"groups": ()}) for name, host in again.items()} == {
        name: host.model_copy(update={"groups": ()}) for name, host in found.items()
    }


def test_what_failed_last_is_kept(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no health or preflight is on record"):
        lastfailed.read(tmp_path)
    lastfailed.write(tmp_path / "results", "health", ["a", "b"])
    assert lastfailed.read(tmp_path / "results") == ["a", "b"]
    lastfailed.write(tmp_path / "results", "preflight", [])
    with pytest.raises(UsageError, match="no host failed in the latest preflight"):
        lastfailed.read(tmp_path / "results")
    assert [path.name for path in (tmp_path / "results").iterdir()] == [".last-failed"]


EMPTY = "the text is empty; write one or take the key out"
COMMA = "docker mounts no path with a comma in it; give the folder another name"
WORD = "one word expected, without spaces and without a dash in front"

FAULTS = [
    (("gpus: 8", "devices: [--privileged]"), 4, "devices[0]: --privileged  the path of a device expected: /dev/…"),
    (("gpus: 8", "scratch: tmp/x"), 4, "scratch: tmp/x  an absolute path expected; type /tmp/x"),
    (("gpus: 8", "mounts: [/a:/b, '/c:/models:ro']"), 4,
     "mounts[1]: '/c:/models:ro'  /models cannot be the target: every container has that already"),
    (("gpus: 8", "mounts: ['/c://x/../fleet/']"), 4,
     "mounts[0]: '/c://x/../fleet/'  /fleet cannot be the target: every container has that already"),
    (("gpus: 8", "mounts: [/c:/]"), 4, "mounts[0]: /c:/  / cannot be the target: every container has that already"),
    (("gpus: 8", "mounts: [/a:/b, /c:/b/]"), 4, "mounts[1]: /c:/b/  /b cannot be the target: it is that of mounts[0]"),
    (("gpus: 8", "mounts: ['/a:/b,ro']"), 4, f"mounts[0]: '/a:/b,ro'  {COMMA}"),
    (("gpus: 8", "mounts: ['/a,x:/b']"), 4, f"mounts[0]: '/a,x:/b'  {COMMA}"),
    (("gpus: 8", "scratch: '/a,readonly'"), 4, f"scratch: '/a,readonly'  {COMMA}"),
    (("/data/models", "'/data,1/models'"), 13, f"models: '/data,1/models'  {COMMA}"),
    (("/data/models", "'/da\"ta'"), 13,
     "models: '/da\"ta'  docker mounts no path with a quotation mark in it; give the folder another name"),
    (("/data/models", '"/da\\nta"'), 13,
     'models: "/da\\nta"  docker mounts no path with a control character in it; give the folder another name'),
    (("/data/models", "~/models"), 13,
     "models: ~/models  an absolute path expected; ~ is not read here, write the path out"),
    (("/data/models", "$HOME/models"), 13,
     "models: $HOME/models  an absolute path expected; $ is not read here, write the path out"),
    (("gpus: 8", "mounts: [x]"), 4, "mounts[0]: x  /source:/target or /source:/target:ro expected"),
    (("{A: \"all\"", "{A=1: \"all\""), 6, "A=1: \"all\"  a variable's name and a value of one line expected"),
    (("gpus: 8", "gpuss: 8"), 4, "gpuss  unknown key in vars; did you mean gpus?"),
    (("gpus: 0", "gpuss: 0"), 9, "gpuss  unknown key in login; did you mean gpus?"),
    (("gpus: 8", "gpus: '8'"), 4, "gpus: '8'  whole number expected, quoted text was written; type 8"),
    (("gpus: 8", "gpus: true"), 4, "gpus: true  whole number expected, true or false was written"),
    (("gpus: 8", "gpus:"), 4, "gpus:  no value is written; give one or take the key out"),
    (("rocm", "rocn"), 5, "accelerator: rocn  one of rocm, cuda, none expected; did you mean rocm?"),
    (('A: "all"', "A: 1"), 6, 'A: 1  text expected, a number was written; type "1"'),
    (('A: "all"', "A: on"), 6, 'A: on  true for some readers, text for others; type true, or "on" for text'),
    (("port: 2222", "port: 99999"), 17, "port: 99999  from 1 to 65535 expected"),
    (("ansible_port: 2222", "ansible_port: 2222, port: 22"), 17,
     "ansible_port  written beside port (line 17); keep one"),
    (("nics: [rdma0]", "nic: [rdma0]"), 20, "nic  unknown key in fabric; did you mean nics?"),
    (("nics: [rdma0]", "nics: rdma0"), 20, "nics: rdma0  a list expected, text was written"),
    (("n2:", "n[3:1]:"), 22, "n[3:1]  cannot be the name of a host; 3 comes after 1"),
    (("n2:", "n[1..3]:"), 22, "n[1..3]  cannot be the name of a host; a range is written [01-08] or [a-c]"),
    (("n2:", "n[01-100]:"), 22,
     "n[01-100]  cannot be the name of a host; 01 and 100 must have the same number of digits"),
    (("n2: {", "n[4-5]: {address: 192.0.2.9, "), 22,
     "address  would be the same for all 2 hosts of n[4-5]; write each host"),
    (("    rack:", "    all:"), 24, "all  cannot be the name of a group here"),
    (("children:", "childs:"), 10, "childs  unknown key in all; did you mean children?"),
    (("        fast:\n          vars: {", "        fast:\n          vars: {trial: {}, "), 20,
     "trial  is for the whole inventory; write it below all: vars:"),
    (("user: amd", "provision: slurm"), 3, "provision: slurm  one of static, lab expected"),
    (("user: amd", "ssh_config: 5"), 3, "ssh_config: 5  the path of a file expected"),
    (("user: amd", "trial: {input: 0}"), 3, "input: 0  must be at least 1"),
    (("user: amd", "trial: {inputs: 1}"), 3, "inputs  unknown key in trial; did you mean input?"),
    (("user: amd", "provison: x"), 3, "provison  unknown key in vars; did you mean provision?"),
    (("user: amd", "ssh_config: ' '"), 3, "ssh_config: ' '  the path of a file expected"),
    (("user: amd", 'user: ""'), 3, f'user: ""  {EMPTY}'),
    (("user: amd", "user: a b"), 3, f"user: a b  {WORD}"),
    (("user: amd", 'gateway: ""'), 3, f'gateway: ""  {EMPTY}'),
    (("user: amd", "gateway: -v"), 3, f"gateway: -v  {WORD}"),
    (("user: amd", 'gpu: ""'), 3, f'gpu: ""  {EMPTY}'),
    (("user: amd", 'identity: " "'), 3, f'identity: " "  {EMPTY}'),
    (("gpus: 8", 'scratch: ""'), 4, f'scratch: ""  {EMPTY}'),
    (("/data/models", '""'), 13, f'models: ""  {EMPTY}'),
    (("[mi355x]", '[""]'), 15, f'runners[0]: ""  {EMPTY}'),
    (("nics: [rdma0]", 'nics: [""]'), 20, f'nics[0]: ""  {EMPTY}'),
    (("nics: [rdma0]", 'address: ""'), 20, f'address: ""  {EMPTY}'),
    (("192.0.2.1,", '"",'), 17, f'address: ""  {EMPTY}'),
    (("{user: me}", '{address: " "}'), 22, f'address: " "  {EMPTY}'),
    (("192.0.2.1", '"{{ ip }}"'), 17, 'address: "{{ ip }}"  templates are not filled in here; write the value out'),
    (("/data/models", '"{{ m }}/x"'), 13, 'models: "{{ m }}/x"  templates are not filled in here; write the value out'),
    (("gpus: 0", "gpus: 1025"), 9, "gpus: 1025  from 0 to 1024 expected"),
    (("all:\n", "all:\n  hosts: [a]\n"), 8, "hosts  written twice in one mapping, first on line 2"),
    (("login:\n      gpus: 0", "login: 5"), 8, "login: 5  a mapping expected, a value was written"),
]  # fmt: skip


def test_what_fleet_mounts_itself_is_taken() -> None:
    assert set(roster.TAKEN) == {"/", posixpath.dirname(build.arm().model_path), docker.SCRATCH}


@pytest.mark.parametrize(("edit", "line", "text"), FAULTS)
def test_faults(tmp_path: Path, edit: tuple[str, str], line: int, text: str) -> None:
    assert (line, text) in told(load_text, tmp_path, edited(FILE, edit))
    assert len(told(load_text, tmp_path, edited(FILE, edit))) == (2 if "hosts: [a]" in edit[1] else 1)


OVERRIDDEN = """\
all:
  vars: {gpus: "8", models: data, env: [A], devices: [x]}
  children:
    gpu:
      vars: {port: 70000, fabric: {nic: a}, user: ""}
      hosts:
        n1: {gpus: 8, models: /m, env: {}, devices: [], port: 22, fabric: {}, user: me}
        n1b: {gpus: 8, models: /m, env: {}, devices: [], port: 22, fabric: {}, user: me}
    nobody:
      vars: {gpus: many}
    more:
      hosts:
        n1: {accelerator: gpu}
        n1b: {accelerator: none}
    most:
      hosts:
        n1: {accelerator: rocm}
"""


def test_a_value_that_a_nearer_one_hides_is_judged_all_the_same(tmp_path: Path) -> None:
    assert told(load_text, tmp_path, OVERRIDDEN) == [
        (2, "devices[0]: x  the path of a device expected: /dev/…"),
        (2, "env: [A]  a mapping expected, a list was written"),
        (2, 'gpus: "8"  whole number expected, quoted text was written; type 8'),
        (2, "models: data  an absolute path expected; type /data"),
        (5, "nic  unknown key in fabric; did you mean nics?"),
        (5, "port: 70000  from 1 to 65535 expected"),
        (5, f'user: ""  {EMPTY}'),
        (10, "gpus: many  whole number expected, text was written"),
        (13, "accelerator: gpu  one of rocm, cuda, none expected"),
    ]


MACHINES = [
    ("{a: {address: x}, b: {address: z}}", []),
    ("{a: {address: x}, b: {address: x, port: 23}}", []),
    ("{a: {address: x, gateway: g1}, b: {address: x, gateway: g2}}", []),
    ("{a: {address: x, port: 22},\n b: {ansible_host: X, user: me}}", [
        (3, "a b  one machine (lines 2, 3): x port 22; keep one, or give each its own address")]),
    ("{a: ,\n b: {address: a},\n c: {address: a}, d: {address: a, port: 2}}", [
        (4, "a b c  one machine (lines 2, 3, 4): a port 22; keep one, or give each its own address")]),
    ("{a: {address: x, gateway: g},\n b: {address: x, gateway: g}}", [
        (3, "a b  one machine (lines 2, 3): x port 22 behind g; keep one, or give each its own address")]),
    ("{n1: , 'n[2-4]': , n5: }\n  vars: {address: x}", [
        (2, "n[1-5]  one machine: x port 22; keep one, or give each its own address")]),
]  # fmt: skip


@pytest.mark.parametrize(("hosts", "faults"), MACHINES)
def test_a_machine_under_several_names_is_refused(tmp_path: Path, hosts: str, faults: list[tuple[int, str]]) -> None:
    assert told(load_text, tmp_path, f"all:\n  hosts: {hosts}\n") == faults


def test_a_group_named_like_a_host_is_told(tmp_path: Path) -> None:
    text = "all:\n  hosts: {a: , b: }\n  children:\n    a: {hosts: {b: }}\nc: {hosts: {c: }}\n"
    found = load_text(tmp_path, text)
    assert found.notes == (
        f"{tmp_path}/i.yaml:4  a is a group and a host (line 2): --limit a means both",
        f"{tmp_path}/i.yaml:5  c is a group and a host (line 5): --limit c means both",
    )
    assert [host.name for host in load.limit(found, ["a"]).hosts] == ["a", "b"]


def test_files_that_are_no_inventory(tmp_path: Path) -> None:
    assert told(load_text, tmp_path, "all:\n") == [(1, "no host in this inventory; write them below all: hosts:")]
    assert told(load_text, tmp_path, "al:\n  hosts: {a: {}}\n") == [
        (0, "all  missing in this file"),
        (1, "al  unknown key, an inventory is below all; did you mean all?"),
    ]
    assert told(load.inventory, INVENTORIES / "lap.yaml") == [(0, "no such file; did you mean lab.yaml?")]


@pytest.mark.parametrize("name", ["example-mi355x", "lab"])
def test_a_resolved_inventory_loads_as_the_same_hosts(tmp_path: Path, name: str) -> None:
    whole = load.inventory(INVENTORIES / f"{name}.yaml")
    path = tmp_path / "resolved.yaml"
    path.write_text(load.resolved_inventory(whole))
    again = load.inventory(path)
    assert [host.model_dump() for host in again.hosts] == [host.model_dump() for host in whole.hosts]
    assert (again.provision, again.ssh_config, again.trial) == (whole.provision, whole.ssh_config, whole.trial)
