"""A private, real sshd on a port of 127.0.0.1, for tests that must not trust a double."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.ports import free_ports

SSHD = "/usr/sbin/sshd"


def need_sshd() -> None:
    """Skip where sshd cannot run; on CI that is a failure."""
    lack = "" if os.path.exists(SSHD) else f"no {SSHD}"
    lack = lack or ("" if os.geteuid() == 0 else "starting sshd needs root")
    if not lack:
        return
    if os.environ.get("CI"):
        pytest.fail(lack)
    pytest.skip(lack)


@dataclass
class Sshd:
    """A running sshd. `known_hosts` holds its key; `key` logs in as root, whose home there is `home`."""

    folder: Path
    port: int
    key: Path
    known_hosts: Path
    process: subprocess.Popen[bytes]

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def stop(self) -> None:
        """End the listener and every session that came from it."""
        for pid in descendants(self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
        self.process.kill()
        self.process.wait(5)

    def cut_sessions(self) -> None:
        """End the connections, as a network or a restart does; the listener stays."""
        for pid in descendants(self.process.pid):
            if "sshd" in command(pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, 9)

    def sessions(self) -> int:
        """How many connections are logged in."""
        return sum("sshd" in command(pid) for pid in children(self.process.pid))


def command(pid: int) -> str:
    """A process's name; "" of one that has ended meanwhile."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text()
    return ""


def children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def descendants(pid: int) -> list[int]:
    return [one for child in children(pid) for one in [child, *descendants(child)]]


def keygen(path: Path) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True, timeout=20)
    return path


@contextlib.contextmanager
def running(folder: Path, *, extra: str = "", port: int | None = None) -> Iterator[Sshd]:
    """Start it, wait until it shows a banner, stop it. sshd re-executes itself: its config path must be absolute."""
    need_sshd()
    folder.mkdir(parents=True, exist_ok=True)
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    hostkey, key, port = keygen(folder / "hostkey"), keygen(folder / "key"), port or free_ports()
    config, home = folder / "sshd_config", folder / "home"
    home.mkdir()
    config.write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {hostkey}\nAuthorizedKeysFile {key}.pub\nPidFile none\n"
        f"StrictModes no\nUsePAM no\nUseDNS no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
        f"PermitRootLogin prohibit-password\nSetEnv HOME={home}\n{extra}\n"
    )
    known = folder / "known_hosts"
    known.write_text(f"[127.0.0.1]:{port} {' '.join((folder / 'hostkey.pub').read_text().split()[:2])}\n")
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([SSHD, "-D", "-e", "-f", str(config)], stdin=subprocess.DEVNULL, stderr=log)
    server = Sshd(folder, port, key, known, process)
    try:
        until(lambda: banner(port), 10, lambda: (folder / "log").read_text())
        yield server
    finally:
        server.stop()


def banner(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as probe:
        probe.settimeout(2)
        return probe.recv(3) == b"SSH"
    return False


def until(condition: object, seconds: float, tell: object = None) -> None:
    """Poll until it holds; fail with what `tell` says after `seconds`."""
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        if time.monotonic() > end:
            pytest.fail(f"did not happen within {seconds} s: {tell() if callable(tell) else tell or condition}")
        time.sleep(0.02)
