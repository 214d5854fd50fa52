"""The Debian packages that the lab and the demo need: which are missing, and how to get them."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping

from fleet.errors import LabError
from fleet.lab.command import ENVIRONMENT, PATH

# Package → the commands that prove it is there; `a|b`: either one will do.
NODE: Mapping[str, tuple[str, ...]] = {
    "docker.io": ("dockerd", "docker"),
    "tini": ("tini|docker-init",),
    "openssh-server": ("sshd",),
    "openssh-client": ("ssh", "ssh-keygen"),
    "iproute2": ("ip", "tc"),
    "iptables": ("iptables",),
    "e2fsprogs": ("mkfs.ext4", "e2fsck"),
    "util-linux": ("nsenter", "unshare", "setsid", "losetup", "fallocate"),
    "mount": ("mount", "umount"),
    "sudo": ("sudo",),
    "python3": ("python3",),
}
IMAGE: Mapping[str, tuple[str, ...]] = {"busybox-static": ("busybox",), "zstd": ("zstd",)}
VENV = "python3-venv"
ALL = (*NODE, *IMAGE, VENV)


def missing(packages: Iterable[str] = ALL) -> list[str]:
    """Those of `packages` whose commands this machine lacks, whoever installed them."""
    return [package for package in packages if not _present(package)]


def _present(package: str) -> bool:
    if package == VENV:
        return importlib.util.find_spec("ensurepip") is not None
    commands = {**NODE, **IMAGE}[package]
    return all(any(shutil.which(name, path=PATH) for name in command.split("|")) for command in commands)


def install(say: Callable[[str], object]) -> None:
    """Install what is missing with apt-get. Raises LabError without root, without apt-get, or when apt-get fails."""
    lacking = missing()
    if not lacking:
        return
    names = " ".join(lacking)
    if os.geteuid() != 0 or not shutil.which("apt-get", path=PATH):
        reason = "apt-get" if os.geteuid() == 0 else "root"
        raise LabError(f"missing: {names}; without {reason} they cannot be installed here", hint=without_a_lab())
    say(f"installing Debian packages: {names}")
    command = ["apt-get", "install", "-y", "--no-install-recommends", *lacking]
    if _apt(command) is not None:
        say("apt-get update")
        _apt(["apt-get", "update"])
        if (complaint := _apt(command)) is not None:
            raise LabError(f"apt-get could not install {names}: {complaint}", hint=without_a_lab())
    if still := missing(lacking):
        raise LabError(f"installed, and still missing: {' '.join(still)}", hint=without_a_lab())


def _apt(command: list[str]) -> str | None:
    """None when it went well, else the end of what it said. Proxy settings of the caller are respected."""
    proxies = {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
    environment = {**ENVIRONMENT, **proxies, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment, timeout=900
        )
    except subprocess.TimeoutExpired:
        return "no end within 900 s"
    return None if done.returncode == 0 else (done.stderr or done.stdout).strip()[-600:]


def without_a_lab() -> str:
    return "works without a lab: invoke plan --config KEY"
