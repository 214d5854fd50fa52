"""What can be made to go wrong with a node, by verb; `heal` undoes all of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fleet.errors import UsageError
from fleet.lab import process
from fleet.lab.command import run
from fleet.lab.network import Network
from fleet.lab.node import Node

REFUSE = ["INPUT", "-p", "tcp", "--dport", "22", "-j", "REJECT", "--reject-with", "tcp-reset"]
# fallocate alone: the node's disk is full, and this machine's disk has not lost a block.
FILL = """
keep=$1 i=0
rm -f /FILL.*
[ "$keep" = 0 ] || fallocate -l "${keep}M" /KEEP
for size in 1G 128M 16M 2M 256K 32K 4K; do
    while fallocate -l $size /FILL.$i 2>/dev/null; do i=$((i+1)); done
    rm -f /FILL.$i
done
rm -f /KEEP
"""
# A mount over the client, not a file in its place: what is under it comes back as it was, or with the next boot.
HOLD = """
mkdir -p -m 1777 /run/hold
cd /run/hold
if [ ! -e docker ]; then
    command -v docker >path
    touch docker
    mount --bind "$(cat path)" docker
fi
if [ ! -e held ]; then
    printf '%s' "$2" >held
    chmod 755 held
fi
[ -e on ] || rm -f waiting.*
[ -e on ] || mount --bind held "$(cat path)"
printf '%s' "$1" >on
"""
HELD = """#!/bin/sh
# Plays a wire or an engine that is slow: a docker command that has these words in it waits here until it is let go.
words=$(cat /run/hold/on 2>/dev/null)
case " $* " in
*$words*)
    printf '%s' "$*" >"/run/hold/waiting.$$"
    while [ -e /run/hold/on ]; do sleep 0.05; done
    rm -f "/run/hold/waiting.$$" ;;
esac
exec /run/hold/docker "$@"
"""
RELEASE = """
[ -e /run/hold/on ] || exit 0
umount -l "$(cat /run/hold/path)"
rm -f /run/hold/on
"""
# The container's own processes are the first to go; two that join them take more than there is, neither of them as much
# as would make it the first.
OOM = """
set -e
pid=$(docker inspect -f '{{.State.Pid}}' "$1")
group=/sys/fs/cgroup/$(sed -n 's/^[0-9]*:\\(memory\\):/\\1/p; s/^0:://p' "/proc/$pid/cgroup" | sed -n 1p)
docker update --memory 192m --memory-swap 192m "$1" >/dev/null
for one in $(cat "$group/cgroup.procs"); do echo 1000 >"/proc/$one/oom_score_adj" || true; done
hog='import os, time; os.fork(); taken = bytearray(150 << 20); time.sleep(1)'
sh -c 'echo $$ >"$1/cgroup.procs" && exec python3 -c "$2"' hog "$group" "$hog" || true
"""


@dataclass(frozen=True)
class Bench:
    """A node and all that its faults act upon. `boot` starts it and waits for its services."""

    node: Node
    network: Network
    boot: Callable[[], None]


@dataclass(frozen=True)
class Verb:
    """`arguments`: how it is typed after the node, optional ones in brackets. `ends`: the fault that it takes back."""

    act: Callable[..., None]
    arguments: str = ""
    ends: str = ""


def cut(bench: Bench) -> None:
    """Unplug the cable: packets vanish."""
    bench.network.plug(bench.node.name, up=False)


def uncut(bench: Bench) -> None:
    bench.network.plug(bench.node.name, up=True)


def refuse(bench: Bench) -> None:
    """Answer TCP to port 22 with a reset."""
    bench.node.inside(["iptables", "-w", "-I", *REFUSE], check=True)


def unrefuse(bench: Bench) -> None:
    bench.node.inside(["iptables", "-w", "-D", *REFUSE])


def loss(bench: Bench, percent: str) -> None:
    """Drop PERCENT of the packets that the node receives."""
    chance = ["-m", "statistic", "--mode", "random", "--probability", f"{float(percent) / 100:.4f}"]
    bench.node.inside(["iptables", "-w", "-I", "INPUT", "-i", "eth0", *chance, "-j", "DROP"], check=True)


def unloss(bench: Bench) -> None:
    """Take all rules off the node's incoming packets; `refuse` ends with it."""
    bench.node.inside(["iptables", "-w", "-F", "INPUT"], check=True)
    bench.node.note("refuse", on=False)


def rate(bench: Bench, mbit: str) -> None:
    """Cap the cable at MBIT (10^6 bit/s) in each direction."""
    bench.network.rate(bench.node.name, mbit)


def unrate(bench: Bench) -> None:
    bench.network.unrate(bench.node.name)


def delay(bench: Bench, ms: str) -> None:
    """Add MS milliseconds to each direction."""
    bench.network.delay(bench.node.name, ms, bench.node.folder)


def undelay(bench: Bench) -> None:
    bench.network.undelay(bench.node.name, bench.node.folder)


def kill_sshd(bench: Bench, sessions: str = "") -> None:
    """Kill the listener; open sessions live on, unless `sessions` says that they end too (their commands never do)."""
    listener = bench.node.sshd_listener()
    process.kill(bench.node.processes("sshd", "sshd-session") if sessions else [listener] if listener else [])


def start_sshd(bench: Bench) -> None:
    if bench.node.sshd_listener() is None:
        bench.node.inside(["lab-sshd"], check=True)
        process.wait(lambda: bench.node.sshd_listener() is not None, 10, "sshd did not start")


def kill_docker(bench: Bench) -> None:
    """Kill the engine. Containers live on until it starts again, which ends them."""
    process.kill(bench.node.processes("dockerd", "containerd"))


def start_docker(bench: Bench) -> None:
    if not bench.node.processes("dockerd"):
        bench.node.inside(["lab-dockerd"], check=True)
    process.wait(bench.node.engine_answers, 60, "the engine did not answer")


def freeze(bench: Bench) -> None:
    """Stop every process of the node, as a hung kernel would: TCP connects, nothing answers."""
    _signal_all(bench, "STOP")


def thaw(bench: Bench) -> None:
    _signal_all(bench, "CONT")


def _signal_all(bench: Bench, signal: str) -> None:
    # -1 is every process of the pid namespace but its PID 1 and the sender.
    enter = ["nsenter", "-t", str(bench.node.running()), "-p", "--", "sh", "-c", f"kill -{signal} -1 || true"]
    run(enter)


def fill_disk(bench: Bench, keep: str = "0") -> None:
    """Fill the node's disk, but for KEEP MB."""
    bench.node.inside(["sh", "-c", FILL, "fill", str(int(keep))], check=True)


def free_disk(bench: Bench) -> None:
    bench.node.inside(["sh", "-c", "rm -f /FILL.* /KEEP"], check=True)


def swap_hostkey(bench: Bench) -> None:
    """A new host key, as of a machine that was installed anew, or of another that poses as it."""
    bench.node.swap_host_key()
    bench.node.reload_sshd()


def pause_container(bench: Bench, name: str) -> None:
    bench.node.docker(["pause", name], check=True)


def kill_container(bench: Bench, name: str) -> None:
    """SIGKILL to all of a container, as by somebody's hand."""
    bench.node.docker(["kill", name], check=True)


def oom_container(bench: Bench, name: str) -> None:
    """The kernel kills a container because it has no memory left for it."""
    bench.node.inside(["sh", "-c", OOM, "oom", name], check=True)


def hold(bench: Bench, words: str) -> None:
    """Docker commands on the node that have WORDS (a shell pattern) in them wait; `Node.held` tells which do."""
    bench.node.inside(["sh", "-euc", HOLD, "hold", words, HELD], check=True)


def release(bench: Bench) -> None:
    """What waits goes on, and nothing waits any more."""
    bench.node.inside(["sh", "-euc", RELEASE], check=True)


def unpause_all(bench: Bench) -> None:
    paused = bench.node.docker(["ps", "-q", "-f", "status=paused"], check=True).out.split()
    if paused:
        bench.node.docker(["unpause", *paused], check=True)


def crash(bench: Bench) -> None:
    """Power off without warning. The disk is kept."""
    cut(bench)
    bench.node.halt()


def boot(bench: Bench) -> None:
    uncut(bench)
    bench.boot()


VERBS: Mapping[str, Verb] = {
    "cut": Verb(cut),
    "uncut": Verb(uncut, ends="cut"),
    "refuse": Verb(refuse),
    "unrefuse": Verb(unrefuse, ends="refuse"),
    "loss": Verb(loss, "PERCENT"),
    "unloss": Verb(unloss, ends="loss"),
    "rate": Verb(rate, "MBIT"),
    "unrate": Verb(unrate, ends="rate"),
    "delay": Verb(delay, "MS"),
    "undelay": Verb(undelay, ends="delay"),
    "kill-sshd": Verb(kill_sshd, "[sessions]"),
    "start-sshd": Verb(start_sshd, ends="kill-sshd"),
    "kill-docker": Verb(kill_docker),
    "start-docker": Verb(start_docker, ends="kill-docker"),
    "freeze": Verb(freeze),
    "thaw": Verb(thaw, ends="freeze"),
    "fill-disk": Verb(fill_disk, "[KEEP_MB]"),
    "free-disk": Verb(free_disk, ends="fill-disk"),
    "swap-hostkey": Verb(swap_hostkey),
    "pause-container": Verb(pause_container, "CONTAINER"),
    "kill-container": Verb(kill_container, "CONTAINER"),
    "oom-container": Verb(oom_container, "CONTAINER"),
    "hold": Verb(hold, "WORDS"),
    "release": Verb(release, ends="hold"),
    "crash": Verb(crash),
    "boot": Verb(boot, ends="crash"),
}


def _typed(verb: str) -> str:
    return f"type: python -m fleet.lab {verb} NODE {VERBS[verb].arguments}".rstrip()


def act(bench: Bench, verb: str, arguments: Sequence[str]) -> None:
    """Bring a fault about, or end it, and keep the node's list of faults right. Raises UsageError on a wrong word."""
    if verb not in VERBS:
        raise UsageError(f"unknown fault: {verb}", hint="one of: " + " ".join(VERBS))
    known = VERBS[verb]
    wanted = known.arguments.split()
    least = sum(not word.startswith("[") for word in wanted)
    if not least <= len(arguments) <= len(wanted):
        raise UsageError(
            f"{verb} takes {known.arguments or 'no arguments'}, not: {' '.join(arguments) or 'nothing'}",
            hint=_typed(verb),
        )
    if not known.ends:  # on record before it is done: an interrupted fault is healed like any other
        bench.node.note(" ".join([verb, *arguments]), on=True)
    try:
        known.act(bench, *arguments)
    except ValueError:
        raise UsageError(
            f"{verb} {known.arguments}: a number expected, not: {' '.join(arguments)}", hint=_typed(verb)
        ) from None
    if known.ends:
        bench.node.note(known.ends, on=False)


def heal(bench: Bench) -> None:
    """Undo every fault, known or not, and wait until sshd and the engine answer. Raises LabError when they do not."""
    node = bench.node
    if node.pid is None:
        boot(bench)
    else:
        thaw(bench)
        uncut(bench)
    unrate(bench)
    undelay(bench)
    node.inside(["iptables", "-w", "-F", "INPUT"], check=True)
    free_disk(bench)
    release(bench)
    node.plant()
    start_sshd(bench)
    start_docker(bench)
    node.await_services(30)
    unpause_all(bench)
    node.forget_faults()
