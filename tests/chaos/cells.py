"""Which fault strikes in which stage, and what is to come of it."""

from __future__ import annotations

from collections.abc import Iterator

from tests.chaos import promises
from tests.chaos.cell import Cell
from tests.chaos.faults import AT_START

SILENT = r"no answer|no SSH banner|the connection was (lost|dropped)|`docker [^`]*` did not end|connection refused"
LOST = rf"node2( is lost|: lost|: ({SILENT}))"
REFUSED = r"node2( is lost|: (connection refused|the connection was lost))"
ENGINE = (
    r"the Docker engine on node2 stopped|node2: (`docker [^`]*` ended with code|Docker cannot be used)|"
    r"^ *Cannot connect to the Docker daemon"
)
FULL = r"(?i)node2: .*GB free|no space left on device"
KEY = r"node2: .*host key"
DECODE = "decode 0 on node2 "
INTERRUPTED = "^interrupted"
NONE: tuple[str, ...] = ()
FIRST = ("valid",)
SECOND = ("valid", "incomplete")
BOTH = ("valid", "valid")

BEFORE = ("preflight", "stage", "launch", "ready")
HAVE = {**dict.fromkeys(BEFORE, NONE), "mid-point": SECOND, "between points": SECOND}
"""Records by stage in which a sweep ends; after the last point it has both."""


def ends(
    fault: str, code: int, says: str, *stages: str, promise: float | None = None, **more: object
) -> Iterator[Cell]:
    """A fault that ends the sweep, told in the same words in all these stages."""
    for stage in stages:
        yield Cell(fault, stage, code, says, HAVE.get(stage, BOTH), promise=promise, **more)  # type: ignore[arg-type]


def lost(fault: str, says: str, *stages: str, **more: object) -> Iterator[Cell]:
    """A host that goes: with serving containers on it that is a death."""
    for stage in stages:
        serving = stage not in ("preflight", "stage")
        promise = promises.LOST if serving else promises.SILENT
        yield from ends(fault, 4 if serving else 3, says, stage, promise=promise, **more)  # type: ignore[arg-type]


def passes(fault: str, *stages: str, within: float = 40, code: int = 0) -> Iterator[Cell]:
    """A fault that the sweep outlives, whole."""
    for stage in stages:
        yield Cell(fault, stage, code, within=within)


def nodes() -> Iterator[Cell]:
    yield from lost("node cut", LOST, "preflight", "stage", "ready", "mid-point", "between points", within=30)
    yield from homeless("node cut", LOST, "collect", "teardown")
    yield from lost("connection refused", LOST, "preflight", "launch", "mid-point", within=30)
    yield from homeless("connection refused", LOST, "collect")
    yield from passes("packet loss 5 %", "preflight", "stage", "mid-point", within=90)
    yield from passes("sshd killed", "launch", "mid-point", "teardown")
    yield from lost("sshd and sessions killed", REFUSED, "stage", "ready", "between points")
    yield from lost("engine killed", ENGINE, "preflight", "launch", "ready", "mid-point", within=40)
    yield from homeless("engine killed", ENGINE, "collect")
    yield from lost("node frozen", LOST, "preflight", "ready", "mid-point", within=40)
    yield from homeless("node frozen", LOST, "teardown")
    yield from ends("disk full", 3, FULL, "preflight", "stage", "launch")
    # Where not even the client's last words find room, only that it failed is known.
    yield Cell("disk full, client's", "mid-point", 1, r"conc +8 .*client: exit 1", ("valid", "failed"))
    yield from lost("node crashed", LOST, "stage", "ready", "mid-point", within=30)
    yield from homeless("node crashed", LOST, "collect")
    yield from ends("node rebooted", 3, LOST, "launch")
    yield from ends("node rebooted", 4, DECODE + "died", "mid-point", "between points")
    yield from ends("host key swapped early", 3, KEY, "preflight")
    yield from ends("host key swapped", 3, LOST, "stage")
    yield from ends("host key swapped", 3, KEY, "ready", "mid-point")


def homeless(fault: str, says: str, *stages: str) -> Iterator[Cell]:
    """After the last point all results are home: a host that is lost then is told, and takes no point back."""
    for stage in stages:
        yield Cell(fault, stage, 0, r"teardown: " + says, within=40)


def containers() -> Iterator[Cell]:
    death = promises.DEATH
    stages = ("ready", "mid-point", "between points")
    yield from ends("container killed", 4, DECODE + r"died \(exit 137: killed\)", *stages, promise=death)
    yield from passes("container killed", "teardown")
    yield from ends("container paused", 4, DECODE + r"is paused", *stages, promise=death)
    yield from passes("container paused", "teardown")
    memory = DECODE + r"died \(exit 137: killed, out of memory\)"
    yield from ends("container out of memory", 4, memory, *stages, promise=death)


def operators() -> Iterator[Cell]:
    yield from ends("SIGINT", 130, INTERRUPTED, "preflight", "stage", "launch", "ready", "between points")
    yield from ends("SIGINT on a terminal", 130, INTERRUPTED, "mid-point")
    yield from ends("SIGINT", 130, INTERRUPTED, "collect", "teardown")
    left = r"left at once; containers of \S+ may still run on node1, node2"
    yield from ends("SIGINT twice", 130, left, "ready", "mid-point", "collect", "teardown")
    for stage in ("stage", "mid-point", "teardown"):
        yield Cell("SIGHUP", stage, 130, "", HAVE.get(stage, BOTH))
    for stage in ("stage", "launch", "mid-point", "collect", "teardown"):
        yield Cell("SIGKILL", stage, -9, "", {"mid-point": FIRST}.get(stage, HAVE.get(stage, BOTH)))
    yield from passes("SIGSTOP, SIGCONT", "preflight", "ready", "mid-point", "between points")
    yield from passes("second operator", "launch", "mid-point", "collect")
    yield from passes("second operator", "preflight", "stage")


def engines() -> Iterator[Cell]:
    def engine(failure: str, stage: str, code: int, says: str, points: tuple[str, ...], **more: object) -> Cell:
        return Cell(f"engine: {failure}", stage, code, says, points, **more)  # type: ignore[arg-type]

    death = promises.DEATH
    yield from passes("engine: slow-start", "ready")
    yield engine("hang-before-ready", "ready", 4, DECODE.strip() + ": not after", NONE)
    for failure, text in AT_START.items():
        yield engine(failure, "ready", 4, DECODE + rf" +.*{text}.*← first fatal line", NONE, promise=death)
    yield engine("oom-after, ready", "ready", 4, DECODE + r"died \(exit 1: failed\)", NONE, promise=death)
    yield engine("exit-after, ready", "ready", 4, DECODE + r"died \(exit 3: failed\)", NONE, promise=death)
    yield engine(
        "no-kv-params", "ready", 4, "prefill_missing_kv_transfer_params|pair prefill 0 on node1", NONE, within=90
    )
    yield engine("oom-after", "mid-point", 4, DECODE + r"died \(exit 1: failed\)", SECOND, promise=death)
    yield engine("exit-after", "mid-point", 4, DECODE + r"died \(exit 7: failed\)", SECOND, promise=death)
    dead = DECODE + r"died \(its engine: nothing has moved for .*proc died"
    yield engine("core-dies-after", "mid-point", 4, dead, SECOND, within=40)
    yield engine("core-hangs-after", "mid-point", 4, dead, SECOND, within=40)
    yield engine("stall-request", "mid-point", 1, r"conc +8 .*\d+ of \d+ requests not done", SECOND, within=40)
    yield engine("short-output", "mid-point", 1, r"conc +4 .*output tokens", ("invalid", "invalid"))
    yield engine("no-accept", "mid-point", 1, r"conc +4 .*speculation did not run", ("invalid", "invalid"))
    yield engine("fail-transfer", "mid-point", 1, r"conc +8 .*kv transfer", ("valid", "invalid"))


CELLS: tuple[Cell, ...] = (*nodes(), *containers(), *operators(), *engines())

SHORT = (
    "node cut / mid-point",
    "sshd and sessions killed / stage",
    "engine killed / launch",
    "disk full / preflight",
    "container killed / between points",
    "container out of memory / mid-point",
    "SIGINT / collect",
    "SIGINT twice / mid-point",
    "SIGKILL / launch",
    "engine: oom-after, ready / ready",
)
"""What `make test` runs."""
