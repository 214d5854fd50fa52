"""The lab of one checkout: its nodes, their network, and the operator's way in."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from fleet.errors import LabError, UsageError
from fleet.lab import faults, packages, process
from fleet.lab.command import Completed, attempt, run
from fleet.lab.network import HERE, Network, choose, routed
from fleet.lab.node import SEED, Node, NodeStatus, free_loops, remove_cgroups
from fleet.lab.seed import Identity, Keys, known_hosts, seed
from fleet.words import counted

Say = Callable[[str], object]
T = TypeVar("T")

FORMAT = 1  # of the state folder and of what is inside a node; another one is made anew
OLD_SEED = "old-seed"  # listed among a node's faults until its new files are in place
PARENT = "/var/lib/fleetlab"
MOST_NODES = 99
# Of this machine, and not for a node to have: homes with keys and credentials, host keys, engine data, mounts, sockets.
PRIVATE = (
    "/root",
    "/home",
    "/srv",
    "/mnt",
    "/media",
    "/tmp",
    "/var/tmp",
    "/run",
    "/var/lib/docker",
    "/etc/docker",
    "/etc/ssl/private",
    "/etc/ssh/ssh_host_rsa_key",
    "/etc/ssh/ssh_host_ecdsa_key",
    "/etc/ssh/ssh_host_ed25519_key",
)
# A checkout at one of these (or above) cannot be hidden: a node lives from them.
NEEDED = ("/usr", "/etc", "/bin", "/sbin", "/lib", "/lib64", "/var/lib", "/opt")


@dataclass(frozen=True)
class Record:
    """What a lab's folder says of itself (lab.json)."""

    format: int
    checkout: str
    net: str


def silent(_: str) -> None:
    """Say nothing."""


class Lab:
    """Two checkouts have two labs that share nothing: the id is in every name of theirs.

    FLEET_LAB_DIR says where the labs of this machine have their folders; the default is /var/lib/fleetlab.
    FLEET_LAB_NAME tells several labs of one checkout apart; by default it has one, without a name.
    """

    def __init__(self, checkout: Path | None = None) -> None:
        self.checkout = (checkout or Path(__file__).parents[2]).resolve()
        name = os.environ.get("FLEET_LAB_NAME", "")
        self.id = hashlib.sha256("\0".join([str(self.checkout), *([name] if name else [])]).encode()).hexdigest()[:6]
        self.parent = Path(os.environ.get("FLEET_LAB_DIR", PARENT)).resolve()
        self.state = self.parent / self.id
        self.prefix = f"fl{self.id}"
        self.cgroup = f"/fleetlab-{self.id}"
        self.ssh_config = self.state / "ssh_config"
        self.known_hosts = self.state / "known_hosts"
        self.key = self.state / "keys" / "operator"
        self._record = self.state / "lab.json"

    # ------------------------------------------------------------------ what there is

    @property
    def record(self) -> Record | None:
        """None when there is no lab, only half of one, or one of another format."""
        try:
            record = Record(**json.loads(self._record.read_text()))
        except PermissionError:
            raise LabError(f"{self.state} belongs to root", hint="run it as root") from None
        except (OSError, ValueError, TypeError):
            return None
        return record if record.format == FORMAT else None

    @property
    def net(self) -> str:
        """The /24 in CIDR notation; node N has its address N, this machine 254. Raises LabError without a lab."""
        if (record := self.record) is None:
            raise LabError("the lab is not up", hint="try: invoke lab.up")
        return record.net

    @property
    def network(self) -> Network:
        return Network(self.prefix, self.net, self.id)

    def nodes(self) -> list[str]:
        """node1, node2, …, up or not; empty when there is no lab."""
        found = (self.state / "nodes").glob("node*") if self.record else ()
        return sorted((entry.name for entry in found if entry.name[4:].isdigit()), key=number)

    def address(self, node: str) -> str:
        return self.node(node).address

    def node(self, name: str) -> Node:
        if name not in self.nodes():
            known = " ".join(self.nodes())
            raise UsageError(
                f"no such node: {name}",
                hint=f"there are: {known}" if known else "the lab is not up; try: invoke lab.up",
            )
        return self._node(name)

    def _node(self, name: str) -> Node:
        address = self.network.address(number(name))
        return Node(name, address, self.state / "nodes" / name, self.id, f"{self.cgroup}/{name}")

    def status(self) -> list[NodeStatus]:
        """Of each node; empty when there is no lab."""
        return self._each(lambda node: node.status(), self.nodes())

    # ------------------------------------------------------------------ up and down

    def up(self, nodes: int = 3, *, say: Say = silent) -> None:
        """Bring up node1 … nodeN; mend what a killed run, a reboot or a fault left; do nothing when all is well.

        Never removes a node: with five up, `nodes=3` sees to it that all five are well.
        Raises UsageError, or LabError when this machine cannot have a lab or a node does not come up.
        """
        if not 1 <= nodes <= MOST_NODES:
            raise UsageError(f"a lab has 1 to {MOST_NODES} nodes, not {nodes}", hint="type: invoke lab.up --nodes 3")
        require()
        with self._locked(say):
            if self.record is None:
                self._begin(say)
            names = sorted({*self.nodes(), *(f"node{n}" for n in range(1, nodes + 1))}, key=number)
            if len(names) > nodes:
                say(more_than_asked(names, nodes))
            if names == self.nodes() and self._written(names) and all(self._each(self._well, names)):
                return
            started = time.monotonic()
            self._write(names)
            self._mend(names, say)
            took = time.monotonic() - started
            say(f"{counted(len(names), 'node')} up in {took:.1f} s; ssh -F {self.ssh_config} {names[0]}")

    def down(self, *, say: Say = silent) -> None:
        """Stop everything and remove every trace, also of a half-made lab. Raises LabError without root."""
        require(tools=False)
        with self._locked(say):
            nodes, remains = self.nodes(), self.state.exists() or bool(process.marked(self.id))
            self._purge()
            shutil.rmtree(self.state, ignore_errors=True)
            self._lock.unlink(missing_ok=True)
        with lock(self._net_lock, silent):
            self._net_lock.unlink()
        with suppress(OSError):
            self.parent.rmdir()
        say(removed(nodes, remains))

    def _begin(self, say: Say) -> None:
        """A folder with keys and a network of its own, in place of whatever is left of an earlier lab."""
        if self.state.exists():
            say("an unfinished lab, or one of another version, is removed first")
        self._purge()
        shutil.rmtree(self.state, ignore_errors=True)
        (self.state / "nodes").mkdir(parents=True)
        self.state.chmod(0o700)
        self.key.parent.mkdir()
        for key, comment in ((self.key, "fleet-lab-operator"), (self._node_key, "fleet-lab-node")):
            run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(key)])
        with lock(self._net_lock, silent):
            net = choose(int(self.id, 16), [*self._neighbours(), *routed(f"{self.prefix}h")])
            replace(self._record, json.dumps(asdict(Record(FORMAT, str(self.checkout), net))))

    def _neighbours(self) -> Iterator[str]:
        """The networks of the other labs on this machine, up or not."""
        for record in self.parent.glob("*/lab.json"):
            with suppress(OSError, ValueError, KeyError):
                yield json.loads(record.read_text())["net"]

    def _write(self, names: Sequence[str]) -> None:
        """The nodes' disks, keys and seeds where missing; the files that list all nodes."""
        for half_made in (self.state / "nodes").glob("*.making"):
            shutil.rmtree(half_made)
        self._each(Node.create, [name for name in names if not self._node(name).folder.exists()])
        for path, content in self._files(names).items():
            if path.exists() and path.read_bytes() == content:
                continue
            if path.name == SEED:
                # On record before it is done: an interrupted `up` is taken up again by the next.
                self._node(path.parent.name).note(OLD_SEED, on=True)
            replace(path, content)

    def _files(self, names: Sequence[str]) -> dict[Path, bytes]:
        """Path → content of every file that says which nodes there are."""
        nodes = [self._node(name) for name in names]
        everyone = [node.identity for node in nodes]
        public = [key.with_suffix(".pub").read_text() for key in (self.key, self._node_key)]
        keys = Keys(public[0], public[1], self._node_key.read_bytes())
        return {
            self.known_hosts: known_hosts(everyone).encode(),
            self.ssh_config: ssh_config(everyone, self.key, self.known_hosts).encode(),
            **{
                node.seed: seed(node.identity, node.host_key.read_bytes(), everyone, keys, node.cgroup)
                for node in nodes
            },
        }

    def _written(self, names: Sequence[str]) -> bool:
        """Whether those files are there and say what this version of fleet would write."""
        try:
            return all(path.read_bytes() == content for path, content in self._files(names).items())
        except OSError:
            return False

    def _mend(self, names: Sequence[str], say: Say) -> None:
        network = self.network
        network.make_switch()
        network.unrate(HERE)
        for name in names:
            network.make_cable(name, number(name), self._node(name).pid)
        self._each(lambda node: self._revive(node, say), names)

    def _revive(self, node: Node, say: Say) -> None:
        """Start a dead node; heal a living one, and where that does not help start it anew."""
        bench = self._bench(node.name)
        if node.pid is None and not node.faults():
            bench.boot()
            return
        try:
            faults.heal(bench)
        except LabError as error:
            say(f"{node.name} is started anew: {error.what}")
            node.halt()
            network = self.network
            network.undelay(node.name, node.folder)
            network.make_cable(node.name, number(node.name), None)
            bench.boot()
            faults.heal(bench)

    def _well(self, node: Node) -> bool:
        pid = node.pid
        return (
            pid is not None
            and not node.faults()
            and self.network.sound(node.name, pid)
            and node.ssh_answers()
            and node.engine_answers()
        )

    def _purge(self) -> None:
        """End and remove all that carries this lab's id, in the order in which things hold each other."""
        process.kill(process.marked(self.id))
        Network(self.prefix, "192.0.2.0/24", self.id).remove()
        for mounted in reversed(mounts_under(self.state)):
            attempt(["umount", "-l", mounted])
        for disk in (self.state / "nodes").glob("*/disk.img"):
            free_loops(disk)
        remove_cgroups(self.cgroup)

    # ------------------------------------------------------------------ a node's insides, and what goes wrong there

    def inside(
        self,
        node: str,
        argv: Sequence[str],
        *,
        stdin: bytes | str | None = None,
        timeout: float = 30.0,
        check: bool = False,
    ) -> Completed:
        """Run as root in a node without ssh: what the tests believe. See Node.inside."""
        return self.node(node).inside(argv, stdin=stdin, timeout=timeout, check=check)

    def docker(
        self,
        node: str,
        argv: Sequence[str],
        *,
        stdin: bytes | str | None = None,
        timeout: float = 30.0,
        check: bool = False,
    ) -> Completed:
        """This machine's docker client against a node's engine without ssh. See Node.docker."""
        return self.node(node).docker(argv, stdin=stdin, timeout=timeout, check=check)

    def fault(self, verb: str, node: str, *args: str | int | float) -> None:
        """Bring a fault about, or end it (faults.VERBS). Raises UsageError on a wrong word, LabError when it fails."""
        require()
        self.node(node)
        faults.act(self._bench(node), verb, [str(argument) for argument in args])

    def heal(self, node: str) -> None:
        """End all faults of a node and wait until its sshd and engine answer. Raises LabError when they do not."""
        require()
        self.node(node)
        faults.heal(self._bench(node))

    def cap(self, mbit: float) -> None:
        """Cap all cables, this machine's too, at `mbit` (10^6 bit/s) in each direction, until `uncap` or `up`."""
        for name in self.nodes():
            self.fault("rate", name, f"{mbit:g}")
        self.network.rate(HERE, f"{mbit:g}")

    def uncap(self) -> None:
        for name in self.nodes():
            self.fault("unrate", name)
        self.network.unrate(HERE)

    def _bench(self, name: str) -> faults.Bench:
        node, network = self._node(name), self.network

        def boot() -> None:
            node.boot(network.namespace(name), self.hidden())
            node.await_services()

        return faults.Bench(node, network, boot)

    def hidden(self) -> list[str]:
        """Paths of this machine that no node has: private ones, all labs' folders (operators' keys), the checkout."""
        paths = [Path(path) for path in PRIVATE] + [self.parent]
        if not any(Path(needed).is_relative_to(self.checkout) for needed in NEEDED):
            paths.append(self.checkout)
        return [str(path) for path in paths if not any(path != top and path.is_relative_to(top) for top in paths)]

    # ------------------------------------------------------------------ small things

    @property
    def _node_key(self) -> Path:
        return self.key.with_name("node")

    @property
    def _lock(self) -> Path:
        return self.parent / f"{self.id}.lock"

    @property
    def _net_lock(self) -> Path:
        """Held while a lab chooses its network, whichever lab."""
        return self.parent / "net.lock"

    def _locked(self, say: Say) -> AbstractContextManager[None]:
        return lock(self._lock, say)

    def _each(self, act: Callable[[Node], T], names: Sequence[str]) -> list[T]:
        """Act on nodes at once; the first error is raised when all are through."""
        if not names:
            return []
        with ThreadPoolExecutor(max_workers=min(len(names), 8)) as pool:
            return list(pool.map(lambda name: act(self._node(name)), names))


def number(node: str) -> int:
    """7 of node7."""
    return int(node.removeprefix("node"))


def more_than_asked(names: Sequence[str], nodes: int) -> str:
    """Why there are more nodes than were asked for, and how to have fewer."""
    up = f"{counted(len(names), 'node')} are there ({', '.join(names)}), and up takes none away"
    return f"{up}; for a lab of {nodes}: invoke lab.down, then invoke lab.up --nodes {nodes}"


def removed(nodes: Sequence[str], remains: bool) -> str:
    """What `down` found and removed. remains: there was a folder or a process of the lab."""
    if nodes:
        return f"{', '.join(nodes)} removed, with all images, containers and files"
    if remains:
        return "no lab was up; what was left of an earlier one is removed"
    return "no lab was up: nothing to remove"


def require(*, tools: bool = True) -> None:
    """Raises LabError, with all that is missing, when this machine cannot have a lab."""
    lacks = []
    if platform.system() != "Linux":
        lacks.append(f"Linux (this is {platform.system()})")
    elif os.geteuid() != 0:
        lacks.append("root (network namespaces, loop devices, overlay mounts)")
    if tools and (lacking := packages.missing(packages.NODE)):
        lacks.append(
            f"Debian packages: {' '.join(lacking)} (apt-get install --no-install-recommends {' '.join(lacking)})"
        )
    if lacks:
        raise LabError("\n  ".join(["the lab needs:", *lacks]), hint=packages.without_a_lab())


def ssh_config(everyone: Sequence[Identity], key: Path, known: Path) -> str:
    """The operator's way in: `ssh -F … node1`."""
    hosts = [f"Host {node.name}\n  HostName {node.address}\n" for node in everyone]
    common = {
        "User": "ops",
        "Port": "22",
        "IdentityFile": key,
        "IdentitiesOnly": "yes",
        "UserKnownHostsFile": known,
        "GlobalKnownHostsFile": "/dev/null",
        "StrictHostKeyChecking": "yes",
        "BatchMode": "yes",
    }
    return "".join([*hosts, "Host node*\n", *(f"  {word} {value}\n" for word, value in common.items())])


def mounts_under(folder: Path) -> list[str]:
    """Mount points at or below a folder, outermost first."""
    points = [Path(line.split()[1]) for line in Path("/proc/self/mounts").read_text().splitlines()]
    return [str(point) for point in points if point.is_relative_to(folder)]


def replace(path: Path, content: str | bytes) -> None:
    """Write a file aside, readable by its owner only, then rename it into place."""
    aside = path.with_name(f"{path.name}.new")
    aside.touch(mode=0o600)
    aside.write_bytes(content.encode() if isinstance(content, str) else content)
    aside.rename(path)


@contextmanager
def lock(path: Path, say: Say, seconds: float = 120.0) -> Iterator[None]:
    """Hold a lock file, alone on this machine. Raises LabError when another holds it for `seconds`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    end, told = time.monotonic() + seconds, False
    while True:
        with open(path, "w") as file, suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The holder before may have removed the file: then this lock is on nothing.
            if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
                yield
                return
            continue
        if not told:
            say("another lab command is at work; waiting for it")
            told = True
        if time.monotonic() > end:
            raise LabError(f"another lab command holds {path} for more than {seconds:g} s")
        time.sleep(0.05)
