"""The way to a host: what an inventory says, completed by ssh_config, as OpenSSH would read both."""

from __future__ import annotations

import getpass
import glob
import ipaddress
import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import paramiko

from fleet.errors import HostError
from fleet.model.inventory import Host, Inventory

USER_CONFIG = "~/.ssh/config"
SYSTEM_CONFIG = "/etc/ssh/ssh_config"
USER_KNOWN_HOSTS = "~/.ssh/known_hosts ~/.ssh/known_hosts2"
SYSTEM_KNOWN_HOSTS = "/etc/ssh/ssh_known_hosts"


@dataclass(frozen=True)
class Route:
    """Where one SSH connection goes. `jumps` are the hosts before it, first to last, as `[user@]host[:port]`."""

    host: str
    port: int
    user: str
    identities: tuple[str, ...]
    identities_only: bool
    jumps: tuple[str, ...]
    proxy_command: str | None
    known_hosts: tuple[str, ...]
    label: str
    """The name under which known_hosts files hold the host's keys."""

    def __str__(self) -> str:
        return f"{self.host}:{self.port} as {self.user}"


def resolve(
    target: str,
    *,
    user: str | None = None,
    port: int | None = None,
    gateway: str | None = None,
    identity: str | None = None,
    ssh_config: str | None = None,
    known_hosts: str | None = None,
) -> Route:
    """Explicit values win over ssh_config; a given `known_hosts` takes the place of the user's own file.

    `gateway` is what ProxyJump takes, `none` included. Raises HostError for an ssh_config that cannot be used.
    """
    said = read_config(ssh_config).lookup(target)
    host = said.get("hostname", target)
    chosen_port = port or int(said.get("port", 22))
    jump = gateway or said.get("proxyjump") or "none"
    command = None if gateway else said.get("proxycommand")
    listed = said.get("identityfile", [])
    identities = [identity] if identity else [path for path in listed if os.path.exists(os.path.expanduser(path))]
    user_files = known_hosts or said.get("userknownhostsfile") or USER_KNOWN_HOSTS
    files = f"{user_files} {said.get('globalknownhostsfile') or SYSTEM_KNOWN_HOSTS}"
    return Route(
        host=host,
        port=chosen_port,
        user=user or said.get("user") or getpass.getuser(),
        identities=tuple(os.path.expanduser(path) for path in identities),
        identities_only=bool(identity) or said.get("identitiesonly", "no").lower() == "yes",
        jumps=() if jump.lower() == "none" else tuple(part.strip() for part in jump.split(",")),
        proxy_command=command if command and command.lower() != "none" else None,
        known_hosts=tuple(os.path.expanduser(path) for path in shlex.split(files)),
        label=said.get("hostkeyalias") or (host if chosen_port == 22 else f"[{host}]:{chosen_port}"),
    )


def with_peer_addresses(inventory: Inventory) -> Inventory:
    """Every alias of ssh_config with its HostName as `fabric.address`, where the inventory gives none: no other host
    can resolve an alias of ours. A lab's nodes resolve each other's names.

    Raises HostError for an ssh_config that cannot be used.
    """
    if inventory.provision == "lab":
        return inventory
    hosts = tuple(_with_peer_address(host, inventory.ssh_config) for host in inventory.hosts)
    return inventory.model_copy(update={"hosts": hosts})


def _with_peer_address(host: Host, ssh_config: str | None) -> Host:
    name = host.fast_address
    if host.fabric.address or _ip(name):
        return host
    found = str(read_config(ssh_config).lookup(name).get("hostname", name))
    if found.casefold() == name.casefold() or _only_here(found):
        return host
    return host.model_copy(update={"fabric": host.fabric.model_copy(update={"address": found})})


def _ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _only_here(text: str) -> bool:
    """The way into a tunnel: on another machine it leads elsewhere."""
    address = _ip(text)
    return address.is_loopback if address else text.casefold() == "localhost"


def split_jump(spec: str) -> tuple[str | None, str, int | None]:
    """`[user@]host[:port]`, also as an `ssh://` URI, into user, host and port."""
    rest = spec.removeprefix("ssh://")
    user, _, rest = rest.rpartition("@")
    host, colon, port = rest.rpartition(":")
    if not colon or not port.isdigit() or (":" in host and not host.startswith("[")):
        host, port = rest, ""
    return user or None, host.strip("[]"), int(port) if port else None


def read_config(path: str | None) -> paramiko.SSHConfig:
    """The given file alone (like `ssh -F`), or the user's file and then the system's. Includes are followed."""
    if path is not None and not Path(path).expanduser().is_file():
        raise HostError(f"no such ssh_config file: {path}", hint="correct the path in the inventory")
    paths = [path] if path is not None else [USER_CONFIG, SYSTEM_CONFIG]
    lines = [line for name in paths for line in ["Host *", *config_lines(Path(name).expanduser())]]
    try:
        return parsed("\n".join(lines))
    except (paramiko.ConfigParseError, paramiko.CouldNotCanonicalize, ImportError) as problem:
        raise HostError(f"cannot use the ssh_config {' '.join(paths)}: {problem}") from problem


@lru_cache(maxsize=8)
def parsed(text: str) -> paramiko.SSHConfig:
    """Once for all hosts of one file."""
    return paramiko.SSHConfig.from_text(text)


def aliases() -> list[str]:
    """The names that the user's own ssh_config has hosts for; patterns are none."""
    words = [line.strip().replace("=", " ", 1).split() for line in config_lines(Path(USER_CONFIG).expanduser())]
    names = [name for line in words if line and line[0].lower() == "host" for name in line[1:]]
    return [name for name in dict.fromkeys(names) if not set(name) & set("*?!")]


def config_lines(path: Path, depth: int = 0) -> Iterator[str]:
    """The lines of a config file with `Include` replaced by what it names; a missing file has none.

    paramiko does not know Include. ssh_config(5): relative names are below ~/.ssh, and after an Include the
    enclosing Host or Match block goes on.
    """
    if depth > 16 or not path.is_file():
        return
    block = "Host *"
    for line in path.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        word, _, rest = line.strip().replace("=", " ", 1).partition(" ")
        if word.lower() in ("host", "match"):
            block = line
        if word.lower() != "include":
            yield line
            continue
        for pattern in shlex.split(rest):
            base = Path("~/.ssh").expanduser() / os.path.expanduser(pattern)
            for name in sorted(glob.glob(str(base))):
                yield from config_lines(Path(name), depth + 1)
                yield block
