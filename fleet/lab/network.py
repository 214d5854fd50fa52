"""The lab's network: a switch in a namespace of its own, a cable to each node, one to this machine.

The switch is not in the machine's own namespace because there bridged frames pass the FORWARD chain
(net.bridge.bridge-nf-call-iptables=1), whose policy any Docker engine on the machine sets to DROP.
"""

from __future__ import annotations

import ipaddress
import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from fleet.errors import LabError
from fleet.lab import process
from fleet.lab.command import attempt, launch, run

NETNS = Path("/run/netns")
SPACES = ("10.77", "10.78", "172.29", "192.168")
HERE = "host"  # this machine's port of the switch: no node has that name


class Network:
    """`prefix`: of all names outside the namespaces (interface names end at 15 characters). `net`: a /24."""

    def __init__(self, prefix: str, net: str, lab: str) -> None:
        self.prefix = prefix
        self.net = ipaddress.IPv4Network(net)
        self.lab = lab
        self.switch = f"{prefix}-sw"
        self.uplink = f"{prefix}h"

    def address(self, number: int) -> str:
        return str(self.net[number])

    def mac(self, number: int) -> str:
        """A locally administered address that outlives the interface: neighbours remember it for half a minute."""
        return ":".join(f"{byte:02x}" for byte in (2, *bytes.fromhex(self.lab), 0, number))

    def namespace(self, node: str) -> str:
        return f"{self.prefix}-{node}"

    def owned(self) -> list[str]:
        """Names of this lab's network namespaces, sound or not."""
        return sorted(entry.name for entry in NETNS.glob(f"{self.prefix}-*"))

    # ------------------------------------------------------------------ making, where something is missing

    def make_switch(self) -> None:
        if not is_namespace(self.switch):
            forget(self.switch)
            run(["ip", "netns", "add", self.switch])
        links = link_names(self.switch)
        if "br0" not in links:
            run(["ip", "-n", self.switch, "link", "add", "br0", "type", "bridge", "forward_delay", "0"])
        if "host" not in links or not Path("/sys/class/net", self.uplink).exists():
            attempt(["ip", "link", "del", self.uplink])
            attempt(["ip", "-n", self.switch, "link", "del", "host"])
            mac = ["address", self.mac(254)]
            run(["ip", "link", "add", self.uplink, *mac, "type", "veth", "peer", "name", "host", "netns", self.switch])
        batch(self.switch, "link set lo up", "link set br0 up", "link set host master br0 up")
        batch(None, f"addr replace {self.net[254]}/24 dev {self.uplink}", f"link set {self.uplink} up")

    def make_cable(self, node: str, number: int, pid: int | None) -> None:
        """The node's namespace (that of its PID 1, if it runs) and its cable to the switch."""
        space = self.namespace(node)
        if pid is not None and not same_namespace(space, pid):
            forget(space)
            run(["ip", "netns", "attach", space, str(pid)])
        elif not is_namespace(space):
            forget(space)
            run(["ip", "netns", "add", space])
        if "eth0" not in link_names(space) or node not in link_names(self.switch):
            attempt(["ip", "-n", space, "link", "del", "eth0"])
            attempt(["ip", "-n", self.switch, "link", "del", node])
            veth = ["type", "veth", "peer", "name", node, "netns", self.switch]
            run(["ip", "-n", space, "link", "add", "eth0", "address", self.mac(number), *veth])
        batch(space, "link set lo up", f"addr replace {self.address(number)}/24 dev eth0", "link set eth0 up")
        if f"{node}-d" not in link_names(self.switch):
            batch(self.switch, f"link set {node} master br0 up")

    def sound(self, node: str, pid: int) -> bool:
        """Whether the node's namespace can be reached by its name, for the faults' sake."""
        return is_namespace(self.switch) and same_namespace(self.namespace(node), pid)

    def remove(self) -> None:
        """End what runs in the lab's namespaces, then remove them and all interfaces."""
        for space in self.owned():
            if is_namespace(space):
                process.kill(process.in_namespace("net", (NETNS / space).stat().st_ino))
            forget(space)
        attempt(["ip", "link", "del", self.uplink])

    # ------------------------------------------------------------------ faults of the wire

    def plug(self, node: str, *, up: bool) -> None:
        run(["ip", "-n", self.switch, "link", "set", node, "up" if up else "down"])

    def ends(self, node: str) -> tuple[tuple[str, str], tuple[str, str]]:
        """Namespace ("": this machine's) and interface of both ends: what leaves each is what the cable carries so."""
        return ("", self.uplink) if node == HERE else (self.namespace(node), "eth0"), (self.switch, node)

    def rate(self, node: str, mbit: str) -> None:
        """Cap a cable in each direction; HERE is this machine's."""
        for space, end in self.ends(node):
            shape = ["tbf", "rate", f"{mbit}mbit", "burst", "128kb", "latency", "50ms"]
            run([*_tc(space), "qdisc", "replace", "dev", end, "root", *shape])

    def unrate(self, node: str) -> None:
        for space, end in self.ends(node):
            attempt([*_tc(space), "qdisc", "del", "dev", end, "root"])

    def carried(self, node: str) -> tuple[int, int]:
        """Bytes that a capped cable has carried from the node and to it, the frames' headers with them."""
        out, back = (_sent(space, end) for space, end in self.ends(node))
        return out, back

    def delay(self, node: str, ms: str, folder: Path) -> None:
        """Put a delay line (delay.py) between the node's port and the switch."""
        self.undelay(node, folder)
        batch(
            self.switch,
            f"link add {node}-d type veth peer name {node}-b",
            f"link set {node} nomaster",
            f"link set {node}-b master br0 up",
            f"link set {node}-d up",
        )
        record = folder / "delay"
        line = [sys.executable, str(Path(__file__).with_name("delay.py")), str(record), node, f"{node}-d", ms]
        mark = {process.MARK: f"{self.lab}/switch"}
        launch(["ip", "netns", "exec", self.switch, *line], log=str(folder / "delay.log"), extra=mark)
        process.wait(record.exists, 10, f"the delay line of {node} did not start")

    def undelay(self, node: str, folder: Path) -> None:
        record = folder / "delay"
        line = process.recorded(record)
        if line and line.alive:
            process.kill([line.pid])
        record.unlink(missing_ok=True)
        if f"{node}-d" in link_names(self.switch):
            batch(self.switch, f"link del {node}-d", f"link set {node} master br0")


def is_namespace(name: str) -> bool:
    """False also for the plain file that an interrupted `ip netns add` leaves."""
    try:
        return (NETNS / name).stat().st_dev == os.stat("/proc/self/ns/net").st_dev
    except OSError:
        return False


def same_namespace(name: str, pid: int) -> bool:
    try:
        return is_namespace(name) and os.path.samefile(NETNS / name, f"/proc/{pid}/ns/net")
    except OSError:
        return False


def forget(name: str) -> None:
    """Remove a namespace's name; what still runs in it keeps it."""
    if not (NETNS / name).exists():
        return
    if not attempt(["ip", "netns", "del", name]):
        attempt(["umount", "-l", str(NETNS / name)])
        (NETNS / name).unlink(missing_ok=True)


def _tc(space: str) -> list[str]:
    return ["tc", *(["-n", space] if space else [])]


def _sent(space: str, end: str) -> int:
    """Of the queue that caps this end: the interface's own counter takes 64 KB of segments for one frame."""
    queues = json.loads(run([*_tc(space), "-s", "-j", "qdisc", "show", "dev", end]).out)
    return sum(int(queue["bytes"]) for queue in queues if queue["kind"] == "tbf")


def link_names(space: str) -> set[str]:
    return {link["ifname"] for link in json.loads(run(["ip", "-n", space, "-j", "link", "show"]).out or "[]")}


def batch(space: str | None, *commands: str) -> None:
    """Several `ip` commands in one process."""
    run(["ip", *(["-n", space] if space else []), "-batch", "-"], stdin="\n".join(commands) + "\n")


def choose(seed: int, taken: Iterable[str]) -> str:
    """A /24 that overlaps nothing of `taken` (networks in CIDR notation); `seed` says where the search begins."""
    used = [ipaddress.IPv4Network(net, strict=False) for net in taken]
    for space in SPACES:
        for step in range(256):
            net = ipaddress.IPv4Network(f"{space}.{(seed + step) % 256}.0/24")
            if not any(net.overlaps(other) for other in used):
                return str(net)
    raise LabError("no free private /24 network on this machine")


def routed(ours: str) -> Iterator[str]:
    """The networks this machine already routes, but for the default route and those through the interface `ours`."""
    for route in json.loads(run(["ip", "-4", "-j", "route", "show", "table", "all"]).out or "[]"):
        target = route.get("dst", "default")
        if route.get("dev") not in (ours, "lo") and target not in ("default", "0.0.0.0/0"):
            yield target
