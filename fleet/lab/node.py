"""One node: a process tree under a PID 1 of its own, on a disk of its own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fleet.errors import LabError
from fleet.lab import process
from fleet.lab.command import Completed, attempt, launch, run
from fleet.lab.seed import HOST_KEY, Identity

DISK = "8G"  # sparse: takes of the machine's disk what the node has written
SEED = "seed.tar"  # init.sh reads it, too
CGROUPS = Path("/sys/fs/cgroup")
BOOT_SECONDS = 60.0


@dataclass(frozen=True)
class NodeStatus:
    """What a node does now. Sizes in MB (2^20 bytes); None where it could not be learnt.

    memory: proportional set size of all its processes. faults: the faults in force.
    """

    name: str
    address: str
    state: str  # up | down
    sshd: bool
    docker: bool
    containers: int | None
    memory: int | None
    disk_used: int | None
    disk: int | None
    faults: tuple[str, ...]


class Node:
    """`folder`: its state. `lab`: the lab's id. `cgroup`: path of the cgroup of its containers, in every hierarchy."""

    def __init__(self, name: str, address: str, folder: Path, lab: str, cgroup: str) -> None:
        self.name = name
        self.address = address
        self.folder = folder
        self.lab = lab
        self.cgroup = cgroup
        self.disk = folder / "disk.img"
        self.host_key = folder / "host_key"
        self.seed = folder / SEED
        self.record = folder / "init"

    # ------------------------------------------------------------------ what there is

    def create(self) -> None:
        """Make the disk and the host key, all or nothing."""
        making = self.folder.with_name(f"{self.name}.making")
        shutil.rmtree(making, ignore_errors=True)
        for sub in ("ctl", "disk", "root"):
            (making / sub).mkdir(parents=True)
        make_disk(making / "disk.img")
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"root@{self.name}", "-f", str(making / "host_key")])
        making.rename(self.folder)

    @property
    def identity(self) -> Identity:
        kind, key = self.host_key.with_suffix(".pub").read_text().split()[:2]
        return Identity(self.name, self.address, f"{kind} {key}")

    @property
    def pid(self) -> int | None:
        """PID 1 of the node, as this machine numbers it; None when the node is down."""
        init = process.recorded(self.record)
        return init.pid if init and init.alive else None

    def running(self) -> int:
        """The pid of a node that has a root of its own; LabError otherwise.

        A node that is still starting has this machine's root: what is run or written "inside" would happen here.
        """
        hint = f"try: python -m fleet.lab heal {self.name}"
        if (pid := self.pid) is None:
            raise LabError("the node is down", where=self.name, hint=hint)
        with suppress(OSError):
            if os.stat(f"/proc/{pid}/root/").st_dev != os.stat("/").st_dev:
                return pid
        raise LabError("the node has not started yet", where=self.name, hint=hint)

    @property
    def root(self) -> Path:
        """The node's root file system, as seen from here."""
        return Path(f"/proc/{self.running()}/root")

    def processes(self, *names: str) -> list[int]:
        """Pids on this machine of the node's processes (not of its containers) with one of these command names."""
        space = os.stat(f"/proc/{self.running()}/ns/pid").st_ino
        return [pid for pid in process.in_namespace("pid", space) if process.name(pid) in names]

    def sshd_listener(self) -> int | None:
        """Pid on this machine of the sshd that accepts connections."""
        return next((pid for pid in self.processes("sshd") if "[listener]" in process.title(pid)), None)

    # ------------------------------------------------------------------ commands

    def inside(
        self, argv: Sequence[str], *, stdin: bytes | str | None = None, timeout: float = 30.0, check: bool = False
    ) -> Completed:
        """Run as root in the node's namespaces, without ssh. Raises LabError when the node is down or time runs out."""
        enter = ["nsenter", "-t", str(self.running()), "-m", "-u", "-i", "-n", "-p", "-r", "-w", "--"]
        return run([*enter, *argv], stdin=stdin, timeout=timeout, check=check)

    def docker(
        self, argv: Sequence[str], *, stdin: bytes | str | None = None, timeout: float = 30.0, check: bool = False
    ) -> Completed:
        """This machine's docker client against the node's engine, without ssh."""
        return run(["docker", "-H", f"unix://{self.socket}", *argv], stdin=stdin, timeout=timeout, check=check)

    @property
    def socket(self) -> Path:
        """The engine's second socket; through /proc because a socket's path may not be longer than 107 bytes."""
        return self.root / "run/fleetlab/docker.sock"

    def plant(self) -> None:
        """Unpack the seed again: whatever happened to the node's own files, they are right afterwards."""
        before = self.inside(["cat", HOST_KEY]).stdout
        extract = ["tar", "--extract", "--preserve-permissions", "--numeric-owner", "--file", "-", "-C", "/"]
        self.inside(extract, stdin=self.seed.read_bytes(), check=True)
        if before != self.host_key.read_bytes():
            self.reload_sshd()

    def reload_sshd(self) -> None:
        """Make sshd read its host key again, and wait until it listens: it executes itself anew on HUP."""
        listener = self.sshd_listener()
        if listener is None:
            return
        written = self.folder / "ctl/sshd.pid"
        written.unlink(missing_ok=True)
        os.kill(listener, signal.SIGHUP)
        process.wait(written.exists, 10, f"{self.name}: sshd did not listen again")

    # ------------------------------------------------------------------ power

    def boot(self, namespace: str, hidden: Sequence[str]) -> None:
        """Start the node in a network namespace, without the `hidden` paths of this machine. Waits for no service."""
        if self.pid is not None:
            return
        self.clear()
        if self.last_boot not in ("", process.boot_id()) and not attempt(["e2fsck", "-p", str(self.disk)], timeout=120):
            make_disk(self.disk)  # the machine went down under it
        self.record.unlink(missing_ok=True)
        (self.folder / "init.log").unlink(missing_ok=True)
        unshare = [
            "unshare",
            "--mount",
            "--propagation",
            "private",
            "--uts",
            "--ipc",
            "--pid",
            "--fork",
            "--kill-child",
        ]
        script = ["sh", str(Path(__file__).with_name("init.sh")), self.name, str(self.folder), *hidden]
        enter = ["nsenter", f"--net=/run/netns/{namespace}"]
        mark = {process.MARK: f"{self.lab}/{self.name}"}
        launch([*enter, *unshare, *script], log=str(self.folder / "init.log"), extra=mark)
        try:
            process.wait(self.record.exists, 20, f"{self.name} did not start")
        except LabError as error:
            raise self.failure(str(error)) from None

    @property
    def last_boot(self) -> str:
        """Boot id of this machine when the node was last started; empty before that."""
        init = process.recorded(self.record)
        return init.boot if init else ""

    def clear(self) -> None:
        """Remove what a dead node left: processes without a PID 1 on record, loop devices, cgroups."""
        process.kill(process.marked(self.lab, self.name))
        free_loops(self.disk)
        remove_cgroups(self.cgroup)

    def halt(self) -> None:
        """Power off without warning: the kernel ends everything in the node with its PID 1."""
        if (pid := self.pid) is not None:
            process.kill([pid])
        for leftover in ("ctl/sshd.pid", "ctl/docker.sock"):
            (self.folder / leftover).unlink(missing_ok=True)

    def await_services(self, seconds: float = BOOT_SECONDS) -> None:
        """Wait until sshd and the engine answer. Raises LabError with the end of the node's logs."""
        end = time.monotonic() + seconds
        while not (self.ssh_answers() and self.engine_answers()):
            if self.pid is None:
                raise self.failure("died while starting")
            if time.monotonic() > end:
                raise self.failure(f"sshd and dockerd do not both answer within {seconds:g} s")
            time.sleep(0.05)

    def failure(self, what: str) -> LabError:
        logs = [self.folder / "init.log", *sorted((self.folder / "ctl").glob("*.log"))]
        tails = [f"{log.name}: {line}" for log in logs if log.exists() for line in _tail(log)]
        return LabError("\n".join([what, *tails]), where=self.name, hint="state: " + str(self.folder))

    # ------------------------------------------------------------------ questions

    def ssh_answers(self) -> bool:
        """Whether the node's sshd sends its banner within a second."""
        with suppress(OSError), socket.create_connection((self.address, 22), timeout=1) as channel:
            return channel.recv(4) == b"SSH-"
        return False

    def engine_answers(self) -> bool:
        return self.ask_engine("/_ping") == b"OK"

    def ask_engine(self, path: str) -> bytes | None:
        """Body of the engine's answer to a GET; None if there is none within two seconds."""
        with suppress(OSError, LabError), socket.socket(socket.AF_UNIX) as channel:
            channel.settimeout(2)
            channel.connect(str(self.socket))
            channel.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
            with channel.makefile("rb") as answer:
                return answer.read().partition(b"\r\n\r\n")[2]
        return None

    def status(self) -> NodeStatus:
        pid = None
        with suppress(LabError):
            pid = self.running()
        docker = pid is not None and self.engine_answers()
        used, size = self.disk_usage() if pid else (None, None)
        return NodeStatus(
            name=self.name,
            address=self.address,
            state="up" if pid else "down",
            sshd=pid is not None and self.ssh_answers(),
            docker=docker,
            containers=(self.ask_engine("/containers/json") or b"").count(b'"Id":') if docker else None,
            memory=self.memory() if pid else None,
            disk_used=used,
            disk=size,
            faults=tuple(self.faults()),
        )

    def memory(self) -> int:
        """Proportional set size of everything in the node, containers too, in MB."""
        total = 0
        for rollup in (self.root / "proc").glob("[0-9]*/smaps_rollup"):
            with suppress(OSError):
                total += sum(
                    int(line.split()[1]) for line in rollup.read_text().splitlines() if line.startswith("Pss:")
                )
        return total // 1024

    def disk_usage(self) -> tuple[int, int]:
        """Used and total MB of the node's disk."""
        disk = os.statvfs(f"{self.root}/")
        return (disk.f_blocks - disk.f_bfree) * disk.f_frsize >> 20, disk.f_blocks * disk.f_frsize >> 20

    # ------------------------------------------------------------------ the faults in force, by their verbs

    def faults(self) -> list[str]:
        with suppress(FileNotFoundError):
            return (self.folder / "faults").read_text().splitlines()
        return []

    def held(self) -> list[str]:
        """The docker commands that wait on the node, without "docker" (faults.hold)."""
        with suppress(OSError, LabError):
            waiting = sorted((self.root / "run/hold").glob("waiting.*"))
            return [path.read_text() for path in waiting if (self.root / "proc" / path.suffix[1:]).exists()]
        return []

    def note(self, fault: str, *, on: bool) -> None:
        """Remember that a fault is in force, or is no longer."""
        kept = [line for line in self.faults() if line.split(" ")[0] != fault.split(" ")[0]]
        (self.folder / "faults").write_text("".join(f"{line}\n" for line in [*kept, *([fault] if on else [])]))

    def forget_faults(self) -> None:
        (self.folder / "faults").unlink(missing_ok=True)

    def swap_host_key(self) -> None:
        """Give sshd a host key that nobody knows."""
        generate = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", HOST_KEY]
        self.inside(["rm", "-f", HOST_KEY, f"{HOST_KEY}.pub"], check=True)
        self.inside(generate, check=True)


def make_disk(path: Path) -> None:
    """An empty ext4 file system in a sparse file."""
    path.unlink(missing_ok=True)
    run(["truncate", "-s", DISK, str(path)])
    quick = ["-O", "^has_journal", "-E", "lazy_itable_init=1,nodiscard"]
    run(["mkfs.ext4", "-q", "-F", "-m", "0", *quick, str(path)], timeout=120)


def loops(image: Path) -> list[str]:
    """Loop devices on a file."""
    lines = run(["losetup", "-j", str(image)], check=False).out.splitlines()
    return [line.split(":")[0] for line in lines]


def free_loops(image: Path) -> None:
    """Detach the file's loop devices. The kernel does so when a node ends; this is for what it could not know."""
    for device in loops(image):
        attempt(["umount", "-l", device])
        attempt(["losetup", "-d", device])


def remove_cgroups(path: str) -> None:
    """Remove a cgroup and those below it in every hierarchy. Raises LabError while processes are in them."""

    def left() -> list[Path]:
        roots = [CGROUPS, *(entry for entry in CGROUPS.iterdir() if entry.is_dir())] if CGROUPS.is_dir() else []
        return [folder for root in roots if (folder := root / path.strip("/")).is_dir()]

    def gone() -> bool:
        for top in left():
            for folder, _, _ in os.walk(top, topdown=False):
                with suppress(OSError):
                    os.rmdir(folder)
        return not left()

    process.wait(gone, 5, f"the cgroups {path} are still in use")


def _tail(log: Path) -> list[str]:
    return log.read_text(errors="replace").splitlines()[-4:]
