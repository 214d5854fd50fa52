"""What strikes a sweep: the world, the engines (played by doubles), the operator, another operator."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from tests.chaos.scene import CONC, SECRET, Scene
from tests.chaos.stages import nothing
from tests.lab.desk import MTP, PLAIN, ROOT, STP, until

OTHER = 'hostname other-desk && exec "$@"'
MEMORY = "HIP out of memory"
AT_START = {
    "oom-at-start": MEMORY,
    "start-error=kv-room": "Not enough memory for KV cache",
    "start-error=gpu-taken": "is physically free on the GPU",
    "start-error=weights": "default_weight_loader: shape mismatch",
    "start-error=mooncake": "Mooncake TransferEngine.initialize",
}
STOPPED = 4.0
"""Seconds that a stopped controller stays so."""


@dataclass(frozen=True)
class Fault:
    """prepare: before the sweep starts. strike: when the stage is reached; the stage is let go after it. ease: what
    follows once nothing is held any more.
    """

    strike: Callable[[Scene], None]
    prepare: Callable[[Scene], None] = nothing
    ease: Callable[[Scene], None] = nothing
    early: bool = False
    """It strikes in `prepare`: the sweep meets it with its first question."""
    telltale: str = ""
    """Of one that comes by itself, wherever the sweep is then: what the engine's log says at that moment."""


# ---------------------------------------------------------------------- nodes


def lab(verb: str, *args: str, node: str = "node2") -> Fault:
    return Fault(lambda scene: scene.fault(verb, node, *args))


def reboot(scene: Scene) -> None:
    scene.fault("crash", "node2")
    scene.held.discard("node2")
    scene.desk.lab.fault("boot", "node2")


def swap(scene: Scene) -> None:
    """Connections end, too: those that are open would not ask for the key."""
    scene.fault("swap-hostkey", "node2")
    scene.desk.lab.fault("kill-sshd", "node2", "sessions")
    scene.desk.lab.fault("start-sshd", "node2")


def container(verb: str) -> Fault:
    return Fault(lambda scene: scene.fault(verb, "node2", scene.seat("node2", "decode0")))


# ---------------------------------------------------------------------- engines


def engine(failure: str, telltale: str, *, node: str = "node2", key: str = STP, **limits: float) -> Fault:
    """A failure that a double brings about by itself. limits: the operator's, in seconds."""

    def prepare(scene: Scene) -> None:
        scene.engine[node] = failure
        scene.key = key
        scene.seconds |= limits

    return Fault(nothing, prepare, telltale=telltale)


# ---------------------------------------------------------------------- the operator


def on_terminal(scene: Scene) -> None:
    scene.terminal = True


def send(number: signal.Signals) -> Callable[[Scene], None]:
    def strike(scene: Scene) -> None:
        scene.struck = time.time()
        scene.running.send(number)

    return strike


def twice(scene: Scene) -> None:
    """The second while the clearing that the first began is held up."""
    scene.hold("node2", "*")
    send(signal.SIGINT)(scene)
    scene.running.until_said("again leaves now", scene.patience)
    scene.running.send(signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        scene.running.process.wait(20 * scene.slow)


def hang_up(scene: Scene) -> None:
    scene.struck = time.time()
    scene.running.hang_up()


def stop(scene: Scene) -> None:
    send(signal.SIGSTOP)(scene)


def go_on(scene: Scene) -> None:
    end = scene.struck + STOPPED
    until(lambda: time.time() > end, "time", 2 * STOPPED)
    scene.running.send(signal.SIGCONT)


def second(scene: Scene) -> None:
    """Somebody else, at another machine, sweeps the same plan: refused, and told whose the nodes are."""
    scene.struck = time.time()
    desk = scene.desk
    words = ["sweep", "--config", STP, "--arm", PLAIN, "--conc", str(CONC[0]), "--inventory", scene.inventory]
    argv = ["unshare", "--uts", "sh", "-c", OTHER, "_", *desk.argv(*words)]
    env = desk.environment(**scene.limits(), **{SECRET: "other"}, INVOKE_FLEET_RESULTS=str(desk.folder / "other"))
    done = subprocess.run(argv, env=env, cwd=ROOT, capture_output=True, text=True, timeout=30 * scene.slow)
    assert done.returncode == 5, done.stdout + done.stderr
    assert re.search(r"node\d is ", done.stderr), done.stderr
    assert scene.folder is not None
    assert scene.folder.name in done.stderr, "whose run it is"


FAULTS: Mapping[str, Fault] = {
    "node cut": lab("cut"),
    "connection refused": lab("refuse"),
    "packet loss 5 %": lab("loss", "5"),
    "sshd killed": lab("kill-sshd"),
    "sshd and sessions killed": lab("kill-sshd", "sessions"),
    "engine killed": lab("kill-docker"),
    "node frozen": lab("freeze"),
    "disk full": lab("fill-disk"),
    "disk full, client's": lab("fill-disk", node="node1"),
    "node crashed": lab("crash"),
    "node rebooted": Fault(reboot),
    "host key swapped": Fault(swap),
    "host key swapped early": Fault(nothing, swap, early=True),
    "container killed": container("kill-container"),
    "container paused": container("pause-container"),
    "container out of memory": container("oom-container"),
    "SIGINT": Fault(send(signal.SIGINT)),
    "SIGINT on a terminal": Fault(send(signal.SIGINT), on_terminal),
    "SIGINT twice": Fault(twice),
    "SIGHUP": Fault(hang_up, on_terminal),
    "SIGKILL": Fault(send(signal.SIGKILL)),
    "SIGSTOP, SIGCONT": Fault(stop, ease=go_on),
    "second operator": Fault(second),
    "engine: slow-start": engine("slow-start=3", "Memory budget"),
    "engine: hang-before-ready": engine("hang-before-ready", "Memory budget", ready_within=6),
    **{f"engine: {name}": engine(name, telltale) for name, telltale in AT_START.items()},
    "engine: oom-after, ready": engine("oom-after=2", MEMORY),
    "engine: exit-after, ready": engine("exit-after=2:3", "proc died"),
    "engine: no-kv-params": engine("no-kv-params", "Server started", node="node1"),
    "engine: oom-after": engine("oom-after=60", MEMORY),
    "engine: exit-after": engine("exit-after=60:7", "proc died"),
    "engine: core-dies-after": engine("core-dies-after=60", "proc died"),
    "engine: core-hangs-after": engine("core-hangs-after=60", "proc died"),
    "engine: stall-request": engine("stall-request=60", "Server started", request_within=6),
    "engine: short-output": engine("short-output=9", "Server started"),
    "engine: no-accept": engine("no-accept", "Server started", key=MTP),
    "engine: fail-transfer": engine("fail-transfer=60", "fail", node="node1"),
}
