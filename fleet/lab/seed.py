"""The files that make a node itself: users, keys, names, services, the model. One tar, unpacked at each boot."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fleet.lab import weights

USERS = {"ops": 7700, "nodock": 7701, "sudopw": 7702, "plain": 7703}
# `openssl passwd -6 lab`: sudopw's password is no secret.
PASSWORD = "$6$fleetlab$x8I5kIi06hon2Yz6.ZSJhwqZJ0HnH3CfaVdBUmc/wfqeLGg9fSIrlzVLMj1SySvZEDTmcJdAQIHtL8tTspoHv."
HOST_KEY = "/etc/ssh/ssh_host_ed25519_key"
SSHD_CONFIG = f"""\
Port 22
ListenAddress 0.0.0.0
HostKey {HOST_KEY}
PidFile /run/fleetlab/sshd.pid
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
UsePAM no
UseDNS no
AcceptEnv LANG LC_* FLEET_*
Subsystem sftp internal-sftp
"""
SUDOERS = """\
nodock ALL=(root) NOPASSWD: /usr/bin/docker, /usr/local/bin/docker
sudopw ALL=(ALL) ALL
"""
START_SSHD = """\
#!/bin/sh
exec /usr/sbin/sshd -f /etc/ssh/sshd_lab -E /run/fleetlab/sshd.log
"""
START_DOCKERD = """\
#!/bin/sh
rm -f /run/docker.pid
setsid --fork dockerd </dev/null >>/run/fleetlab/dockerd.log 2>&1
"""


@dataclass(frozen=True)
class Identity:
    name: str
    address: str
    host_key: str  # "ssh-ed25519 AAAA…", the public half


@dataclass(frozen=True)
class Keys:
    """Public halves of the operator's and the nodes' key; `node` is the private half of the latter."""

    operator_public: str
    node_public: str
    node: bytes


@dataclass(frozen=True)
class Entry:
    """A file, or a folder where data is None. Users' files belong to `owner`, a uid and gid alike."""

    path: str
    data: bytes | None = None
    mode: int = 0o644
    owner: int = 0


def seed(
    me: Identity, host_key: bytes, everyone: Sequence[Identity], keys: Keys, cgroup: str, etc: Path = Path("/etc")
) -> bytes:
    """One node's tar. host_key: its private half. cgroup: the parent of its containers. etc: this machine's /etc."""
    entries = [
        *names(me, host_key, everyone),
        *accounts(*((etc / name).read_text() for name in ("passwd", "group", "shadow"))),
        *homes(keys),
        *services(cgroup),
        *model(),
    ]
    return pack(entries)


def names(me: Identity, host_key: bytes, everyone: Sequence[Identity]) -> list[Entry]:
    hosts = "127.0.0.1 localhost\n" + "".join(f"{node.address} {node.name}\n" for node in everyone)
    return [
        Entry("/etc/hostname", f"{me.name}\n".encode()),
        Entry("/etc/hosts", hosts.encode()),
        Entry("/etc/ssh/ssh_known_hosts", known_hosts(everyone).encode()),
        Entry(HOST_KEY, host_key, 0o600),
        Entry(f"{HOST_KEY}.pub", f"{me.host_key}\n".encode()),
    ]


def known_hosts(everyone: Iterable[Identity]) -> str:
    return "".join(f"{node.name},{node.address} {node.host_key}\n" for node in everyone)


def accounts(passwd: str, group: str, shadow: str) -> list[Entry]:
    """This machine's accounts without their passwords, and the lab's users; ops alone is in group docker."""

    def others(text: str) -> list[list[str]]:
        return [line.split(":") for line in text.splitlines() if line and line.split(":")[0] not in USERS]

    users = [":".join(fields) for fields in others(passwd)]
    users += [f"{user}:x:{uid}:{uid}::/home/{user}:/bin/bash" for user, uid in USERS.items()]
    groups = [":".join(fields) for fields in others(group) if fields[0] != "docker"]
    groups += [f"{user}:x:{uid}:" for user, uid in USERS.items()]
    gid = next((fields[2] for fields in others(group) if fields[0] == "docker"), "7799")
    groups.append(f"docker:x:{gid}:ops")
    secrets = [":".join([fields[0], "*", *fields[2:]]) for fields in others(shadow)]
    secrets += [f"{user}:{PASSWORD if user == 'sudopw' else '*'}:19000:0:99999:7:::" for user in USERS]
    return [
        Entry("/etc/passwd", _lines(users)),
        Entry("/etc/group", _lines(groups)),
        Entry("/etc/shadow", _lines(secrets), 0o600),
        Entry("/etc/sudoers.d", None, 0o750),
        Entry("/etc/sudoers.d/fleetlab", SUDOERS.encode(), 0o440),
    ]


def homes(keys: Keys) -> list[Entry]:
    """The operator's key opens every account, the nodes' key all but root; its private half is ops' alone."""
    entries = [
        Entry("/root", None, 0o700),
        Entry("/root/.ssh", None, 0o700),
        Entry("/root/.ssh/authorized_keys", keys.operator_public.encode(), 0o600),
    ]
    for user, uid in USERS.items():
        home = f"/home/{user}"
        both = (keys.operator_public + keys.node_public).encode()
        entries += [
            Entry(home, None, 0o755, uid),
            Entry(f"{home}/.ssh", None, 0o700, uid),
            Entry(f"{home}/.ssh/authorized_keys", both, 0o600, uid),
        ]
    entries.append(Entry("/home/ops/.ssh/id_ed25519", keys.node, 0o600, USERS["ops"]))
    return entries


def services(cgroup: str) -> list[Entry]:
    engine = {
        "hosts": ["unix:///run/docker.sock", "unix:///run/fleetlab/docker.sock"],
        "group": "docker",
        "bridge": "none",
        "iptables": False,
        "ip6tables": False,
        "ip-forward": False,
        "ip-masq": False,
        "userland-proxy": False,
        "cgroup-parent": cgroup,
        "exec-opts": ["native.cgroupdriver=cgroupfs"],
        "log-level": "warn",
    }
    return [
        Entry("/etc/ssh/sshd_lab", SSHD_CONFIG.encode()),
        Entry("/etc/docker", None, 0o755),
        Entry("/etc/docker/daemon.json", (json.dumps(engine, indent=2) + "\n").encode()),
        Entry("/usr/local/sbin/lab-sshd", START_SSHD.encode(), 0o755),
        Entry("/usr/local/sbin/lab-dockerd", START_DOCKERD.encode(), 0o755),
    ]


def model() -> list[Entry]:
    return [
        Entry("/srv", None, 0o755),
        Entry("/srv/fleet", None, 0o1777),
        Entry("/srv/models", None, 0o755, USERS["ops"]),
        Entry(weights.FOLDER, None, 0o755, USERS["ops"]),
        *(Entry(f"{weights.FOLDER}/{name}", data, owner=USERS["ops"]) for name, data in weights.files().items()),
    ]


def pack(entries: Iterable[Entry]) -> bytes:
    """A tar whose bytes depend on nothing but the entries."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for entry in entries:
            info = tarfile.TarInfo(entry.path.lstrip("/"))
            info.mode, info.uid, info.gid, info.mtime = entry.mode, entry.owner, entry.owner, 1_700_000_000
            if entry.data is None:
                info.type = tarfile.DIRTYPE
                tar.addfile(info)
            else:
                info.size = len(entry.data)
                tar.addfile(info, io.BytesIO(entry.data))
    return buffer.getvalue()


def _lines(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()
