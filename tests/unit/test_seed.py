"""The files of a lab node: accounts, keys, names, and a model that says what it is."""

from __future__ import annotations

import io
import json
import struct
import tarfile
from pathlib import Path

from fleet.lab import weights
from fleet.lab.seed import Entry, Identity, Keys, accounts, known_hosts, pack, seed

PASSWD = "root:x:0:0:root:/root:/bin/bash\nops:x:1000:1000::/home/elsewhere:/bin/sh\n"
GROUP = "root:x:0:\ndocker:x:998:alice\nops:x:1000:\n"
SHADOW = "root:$y$secret:19000:0:99999:7:::\nalice:$6$secret:19000:0:99999:7:::\n"
ME = Identity("node1", "10.77.1.1", "ssh-ed25519 AAAA1")
PEER = Identity("node2", "10.77.1.2", "ssh-ed25519 AAAA2")
KEYS = Keys("ssh-ed25519 OPERATOR\n", "ssh-ed25519 NODES\n", b"node private\n")


def made() -> dict[str, str]:
    return {entry.path: (entry.data or b"").decode() for entry in accounts(PASSWD, GROUP, SHADOW)}


def test_the_machines_accounts_stay_and_their_passwords_do_not() -> None:
    assert made()["/etc/passwd"].splitlines() == [
        "root:x:0:0:root:/root:/bin/bash",
        "ops:x:7700:7700::/home/ops:/bin/bash",
        "nodock:x:7701:7701::/home/nodock:/bin/bash",
        "sudopw:x:7702:7702::/home/sudopw:/bin/bash",
        "plain:x:7703:7703::/home/plain:/bin/bash",
    ]
    assert "secret" not in made()["/etc/shadow"]
    assert made()["/etc/shadow"].startswith("root:*:19000:0:99999:7:::\nalice:*:19000")


def test_ops_alone_is_in_group_docker() -> None:
    groups = {line.split(":")[0]: line.split(":")[2:] for line in made()["/etc/group"].splitlines()}
    assert groups["docker"] == ["998", "ops"]
    assert groups["ops"] == ["7700", ""]


def unpacked(etc: Path) -> dict[str, tuple[tarfile.TarInfo, bytes]]:
    for name, text in (("passwd", PASSWD), ("group", GROUP), ("shadow", SHADOW)):
        (etc / name).write_text(text)
    packed = seed(ME, b"host private\n", [ME, PEER], KEYS, "/cg/node1", etc)
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        opened = [(info, tar.extractfile(info)) for info in tar.getmembers()]
        return {f"/{info.name}": (info, file.read() if file else b"") for info, file in opened}


def test_who_may_log_in_where(tmp_path: Path) -> None:
    files = unpacked(tmp_path)
    assert files["/home/plain/.ssh/authorized_keys"][1] == b"ssh-ed25519 OPERATOR\nssh-ed25519 NODES\n"
    assert files["/root/.ssh/authorized_keys"][1] == b"ssh-ed25519 OPERATOR\n"
    assert [path for path, (_, data) in files.items() if b"node private" in data] == ["/home/ops/.ssh/id_ed25519"]
    private, _ = files["/home/ops/.ssh/id_ed25519"]
    assert (private.mode, private.uid, private.gid) == (0o600, 7700, 7700)
    assert files["/etc/ssh/ssh_host_ed25519_key"][0].mode == 0o600


def test_nodes_know_each_other(tmp_path: Path) -> None:
    files = unpacked(tmp_path)
    assert files["/etc/hosts"][1] == b"127.0.0.1 localhost\n10.77.1.1 node1\n10.77.1.2 node2\n"
    assert files["/etc/ssh/ssh_known_hosts"][1].decode() == known_hosts([ME, PEER])
    assert known_hosts([PEER]) == "node2,10.77.1.2 ssh-ed25519 AAAA2\n"


def test_containers_have_the_nodes_cgroup(tmp_path: Path) -> None:
    engine = json.loads(unpacked(tmp_path)["/etc/docker/daemon.json"][1])
    assert engine["cgroup-parent"] == "/cg/node1"
    assert engine["bridge"] == "none"


def test_scratch_is_everyones_and_the_model_is_of_ops(tmp_path: Path) -> None:
    files = unpacked(tmp_path)
    assert files["/srv/fleet"][0].mode == 0o1777
    config, text = files["/srv/models/DeepSeek-V4-Pro/config.json"]
    assert (config.mode, config.uid) == (0o644, 7700)
    assert "not a model" in json.loads(text)["fleet_lab_double"]


def test_weights_are_a_sound_safetensors_file() -> None:
    data = weights.files()[weights.WEIGHTS]
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    assert header["double"]["data_offsets"] == [0, len(data) - 8 - length]
    index = json.loads(weights.files()["model.safetensors.index.json"])
    assert set(index["weight_map"]) == set(header)


def test_a_tar_depends_on_its_entries_alone() -> None:
    entries = [Entry("/a", None, 0o700, 5), Entry("/a/b", b"x")]
    assert pack(entries) == pack(entries)
    assert pack(entries) != pack(entries[:1])
