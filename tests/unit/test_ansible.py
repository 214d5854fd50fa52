"""Inventories that Ansible made, or that it shares with fleet, load as they are; other formats are told apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.model import ansible, load, roster
from fleet.model.inventory import Inventory
from tests.unit.describing import edited, told

SHARED = """\
---
# A lab's inventory as Ansible reads it.
all:
  vars:
    ansible_user: amd
    ansible_become: yes
    ansible_become_password: !vault |
      $ANSIBLE_VAULT;1.1;AES256
      6231
    ansible_ssh_common_args: '-o ControlMaster=auto'
    ntp_server: ntp.lab.example
    datacenter: Zürich 2
    vlan: 012
    mac: 00:11:22:33:44:55
    bought: 2025-01-31
    motd: "{{ datacenter }} – no smoking"
    users: &users [{name: ada, uid: 0x10}, {name: ada, name: bob}]
    cpus: 128
    http_port: 80
    empty:
  children:
    gpu_nodes:
      vars: &eight {gpus: 8, accelerator: rocm, kernel: {iommu: pt, numa: off}}
      children:
        rack_a:
          hosts:
            mi355x-[01:02]:
        rack_b: {}
      hosts:
        mi355x-03:
          <<: *eight
          gpus: 4
          admins: *users
          ansible_ssh_host: 192.0.2.3
          ansible_ssh_port: 2222
    rack_b:
      hosts:
        mi355x-04: {ansible_host: 192.0.2.4, host: 192.0.2.4}
      vars: {asset: 007}
drained:
"""


def load_text(tmp_path: Path, text: str) -> Inventory:
    path = tmp_path / "i.yaml"
    path.write_text(text)
    return load.inventory(path)


def test_an_inventory_shared_with_ansible_loads_whatever_its_other_variables_say(tmp_path: Path) -> None:
    found = load_text(tmp_path, SHARED)
    hosts = {host.name: host for host in found.hosts}
    assert [(one.name, one.gpus, one.accelerator) for one in found.hosts] == [
        ("mi355x-03", 4, "rocm"),
        ("mi355x-01", 8, "rocm"),
        ("mi355x-02", 8, "rocm"),
        ("mi355x-04", 8, "rocm"),
    ]
    assert {one.user for one in found.hosts} == {"amd"}
    assert (hosts["mi355x-03"].address, hosts["mi355x-03"].port) == ("192.0.2.3", 2222)
    assert hosts["mi355x-04"].groups == ("gpu_nodes", "rack_b")
    notes = [note.removeprefix(f"{tmp_path}/i.yaml:") for note in found.notes]
    assert notes[:3] == [
        "6  ansible_become is not used by fleet",
        "7  ansible_become_password is not used by fleet",
        "10  ansible_ssh_common_args is not used by fleet",
    ]
    assert {note.split("  ")[1].split()[0] for note in notes} == {
        "ansible_become", "ansible_become_password", "ansible_ssh_common_args", "ntp_server", "datacenter", "vlan",
        "mac", "bought", "motd", "users", "cpus", "http_port", "empty", "kernel", "admins", "host", "asset",
    }  # fmt: skip


def test_what_the_shared_inventory_says_to_fleet_is_judged_as_ever(tmp_path: Path) -> None:
    wrongs = edited(
        SHARED,
        ("    vlan: 012\n", "    gpuss: 8\n"),
        ("gpus: 8, accelerator: rocm,", "gpus: 012, privileged: yes,"),
        ("ansible_ssh_port:", "ansible_ssh_prot:"),
        ("    empty:\n", "    scratch:\n    http_port: 81\n"),
        ("gpus: 4", "models: *missing"),
    )
    assert told(load_text, tmp_path, wrongs) == [
        (13, "gpuss  unknown key in vars; did you mean gpus?"),
        (20, "scratch:  no value is written; give one or take the key out"),
        (21, "http_port  written twice in one mapping, first on line 19"),
        (24, 'gpus: 012  an octal number for some readers; type 12, or "012" for text'),
        (24, 'privileged: yes  true for some readers, text for others; type true, or "yes" for text'),
        (33, "*missing  no &missing is whole before this line"),
        (36, "ansible_ssh_prot  unknown key in mi355x-03; did you mean ansible_ssh_port?"),
    ]


LISTED = """\
all:
  children:
    everything:
      children:
        gpu: {}
        login: {}
    gpu:
      hosts:
        node01:
          accelerator: rocm
          ansible_become: true
          ansible_user: amd
          dns: &id001
          - 10.0.0.1
          - 10.0.0.2
          fabric: &id002
            nics: &id003
            - rdma0
          gpus: 8
          note: 'several

            lines

            '
          runners: &id004
          - mi355x
          since: 2024-01-01
        node02:
          accelerator: rocm
          ansible_become: true
          ansible_host: 10.0.0.4
          ansible_user: amd
          dns: *id001
          fabric: *id002
          gpus: 8
          runners: *id004
          since: 2024-01-01
    login:
      hosts:
        gate:
          ansible_user: amd
          dns: *id001
    ungrouped: {}
"""


def test_what_ansible_inventory_lists_as_yaml_loads(tmp_path: Path) -> None:
    found = load_text(tmp_path, LISTED)
    assert [(one.name, one.runners, one.fabric.nics, one.groups) for one in found.hosts] == [
        ("node01", ("mi355x",), ("rdma0",), ("everything", "gpu")),
        ("node02", ("mi355x",), ("rdma0",), ("everything", "gpu")),
        ("gate", (), (), ("everything", "login")),
    ]
    assert found.notes == (
        f"{tmp_path}/i.yaml:11  ansible_become is not used by fleet (and on 1 more line)",
        f"{tmp_path}/i.yaml:13  dns is not used by fleet (and on 2 more lines)",
        f"{tmp_path}/i.yaml:20  note is not used by fleet",
        f"{tmp_path}/i.yaml:27  since is not used by fleet (and on 1 more line)",
    )


def test_aliases_cannot_stand_for_everything(tmp_path: Path) -> None:
    """Each line ten times the one before: a gigabyte of values in a few hundred bytes."""
    bomb = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    bomb += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    text = "all:\n  hosts:\n    n1:\n" + "".join(f"      {line}\n" for line in bomb) + "      mounts: *a9\n"
    faults = told(load_text, tmp_path, text)
    assert (14, "*a9  aliases stand for too much") in faults


NEAR = [
    *[(word, "gpus") for word in ("gpuss", "gpsu", "gus", "Gpus")],
    *[(word, "models") for word in ("modles", "model", "moddels")],
    ("runner", "runners"),
    ("adress", "address"),
    ("accelarator", "accelerator"),
    ("acelerater", "accelerator"),
    ("ssh-config", "ssh_config"),
    ("asnible_host", "ansible_host"),
    ("ansible_prot", "ansible_port"),
    ("ansible_ssh_privat_key_file", "ansible_ssh_private_key_file"),
]
OTHERS = """
ntp_server datacenter http_port ssh_port db_user app_user mac_address ip_address ips hosts_file report
transport  users ports cpu cpus services modules nodes gpu_model num_gpus device_type environment name groups
rack zone  ansible_become ansible_become_user ansible_su_user ansible_sudo_user ansible_ssh_pass
ansible_ssh_args  ansible_connection ansible_python_interpreter ansible_shell_type ansible_password
ansible_ssh_common_args
"""


@pytest.mark.parametrize(("written", "meant"), NEAR)
def test_a_misspelt_key_is_told_from_another_programs(written: str, meant: str) -> None:
    assert ansible.misspelt(written, roster.GENERAL_KEYS) == meant


@pytest.mark.parametrize("written", OTHERS.split())
def test_another_programs_variable_is_no_slip(written: str) -> None:
    assert ansible.misspelt(written, roster.GENERAL_KEYS) is None


def test_a_note_asks_where_a_key_of_ours_may_be_meant(tmp_path: Path) -> None:
    found = load_text(tmp_path, "all: {vars: {num_gpus: 8, rack: 3}, hosts: {a: {scratch_dir: /x}}}")
    assert [note.partition("  ")[2] for note in found.notes] == [
        "num_gpus is not used by fleet; did you mean gpus?",
        "rack is not used by fleet",
        "scratch_dir is not used by fleet; did you mean scratch?",
    ]


def test_two_names_of_one_key(tmp_path: Path) -> None:
    text = "all: {hosts: {a: {ansible_host: x, ansible_ssh_host: x, ansible_user: u, ansible_ssh_user: v}}}"
    assert told(load_text, tmp_path, text) == [(1, "ansible_ssh_user  written beside ansible_user (line 1); keep one")]


LINE = "and fleet reads YAML; type: ansible-inventory -i {} --list --yaml > {}"
OTHER_FORMATS = [
    ("hosts.ini", "# lab\n\n[gpu]\nnode[01:03]\n", 3, "an INI inventory", "fleet-hosts.yaml"),
    ("hosts", "node1 ansible_host=10.0.0.1 note='a b'\n", 1, "an INI inventory", "fleet-hosts.yaml"),
    ("hosts", "; lab\nnode1\nnode2.lab\n", 2, "an INI inventory", "fleet-hosts.yaml"),
    ("inv.yaml", "[all:vars]\nansible_user=amd\n", 1, "an INI inventory", "fleet-inv.yaml"),
    ("ec2.yml", "plugin: amazon.aws.aws_ec2\n", 1, "the settings of an inventory plugin", "fleet-ec2.yaml"),
    ("dyn.py", "#!/usr/bin/python3\nprint('{}')\n", 1, "a script that makes an inventory", "fleet-dyn.yaml"),
    ("l.json", '{\n    "_meta": {\n    }\n}\n', 2, "the JSON of ansible-inventory --list", "fleet-l.yaml"),
]


@pytest.mark.parametrize(("name", "text", "line", "kind", "target"), OTHER_FORMATS)
def test_other_formats_are_told(tmp_path: Path, name: str, text: str, line: int, kind: str, target: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    expected = f"{kind}, {LINE.format(path, tmp_path / target)}"
    assert told(load.inventory, path) == [(line, expected)]


def test_a_folder_is_told(tmp_path: Path) -> None:
    what = f"a folder, {LINE.format(tmp_path, tmp_path.with_name(f'fleet-{tmp_path.name}.yaml'))}"
    assert told(load.inventory, tmp_path) == [(0, what)]
