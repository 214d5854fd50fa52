"""How one host reaches another by its own ssh: with its own keys, and with the host keys that this machine believes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from fleet.hosts.base import Argv, Peer, quoted

OPTIONS = (
    "BatchMode=yes",
    "StrictHostKeyChecking=yes",
    "GlobalKnownHostsFile=/dev/null",
    "UpdateHostKeys=no",
    "ForwardAgent=no",
    "ForwardX11=no",
    "ControlPath=none",
    "Compression=no",
    "ConnectTimeout=10",
    "ServerAliveInterval=5",
    "ServerAliveCountMax=3",
    "LogLevel=ERROR",
)
"""Nobody is asked, nothing is learnt, nothing is shared; a peer that says nothing for fifteen seconds is gone."""


def known_hosts(peers: Iterable[Peer]) -> bytes:
    """A known_hosts file with what this machine believes of these hosts, and of no other."""
    return "".join(f"{alias(peer)} {key}\n" for peer in peers for key in peer.keys).encode()


def alias(peer: Peer) -> str:
    """The name of its keys in that file: no pattern, whatever the host is called."""
    return f"fleet-{hashlib.sha256(peer.name.encode()).hexdigest()[:16]}"


def ssh_argv(peer: Peer, known: str, command: Argv) -> list[str]:
    """A command on a peer, to be run on another host. known: the path of a known_hosts file there."""
    options = [*OPTIONS, f"UserKnownHostsFile={known}", f"HostKeyAlias={alias(peer)}"]
    words = [word for option in options for word in ("-o", option)]
    return ["ssh", "-T", *words, "-p", str(peer.port), "-l", peer.user, "--", peer.address, quoted(command)]
