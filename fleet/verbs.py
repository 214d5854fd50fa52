"""What each verb of the command line does: one function a verb, the same ones that the console offers.

Each returns an exit code (None is 0) or raises a FleetError. `settings` carries the inventory to use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import get_args

from fleet import ui
from fleet.errors import FleetError, HostError, UsageError
from fleet.lab import packages
from fleet.lab.lab import Lab
from fleet.lab.node import NodeStatus
from fleet.model import load, matrix
from fleet.model.near import did_you_mean, nearest
from fleet.settings import Settings

_NOT_BUILT = "not built yet"


def plan(
    settings: Settings,
    *,
    config: str,
    arm: str = "",
    conc: Sequence[int] = (),
    limit: Sequence[str] = (),
    trial: bool = False,
    json: bool = False,
) -> int | None:
    raise FleetError(_NOT_BUILT)


def sweep(
    settings: Settings,
    *,
    config: str,
    arm: str = "",
    conc: Sequence[int] = (),
    limit: Sequence[str] = (),
    trial: bool = False,
    fail_fast: bool = False,
    keep_going: bool = False,
    json: bool = False,
) -> int | None:
    raise FleetError(_NOT_BUILT)


def health(settings: Settings, *, config: str = "", limit: Sequence[str] = (), json: bool = False) -> int | None:
    raise FleetError(_NOT_BUILT)


def ps(settings: Settings, *, limit: Sequence[str] = (), json: bool = False) -> int | None:
    raise FleetError(_NOT_BUILT)


def logs(settings: Settings, *, run: str = "", host: str = "", role: str = "", tail: int = 100) -> int | None:
    raise FleetError(_NOT_BUILT)


def down(settings: Settings, *, run: str = "", limit: Sequence[str] = (), config: str = "") -> int | None:
    raise FleetError(_NOT_BUILT)


def stage(settings: Settings, *, config: str, limit: Sequence[str] = ()) -> int | None:
    raise FleetError(_NOT_BUILT)


def shell(settings: Settings, *, config: str = "") -> int | None:
    raise FleetError(_NOT_BUILT)


def expand(
    settings: Settings, *, config: str, master: str = "", evals: str = "default", json: bool = False
) -> int | None:
    """Reading a config asks only the public schema; what cannot run is planning's to say."""
    mode = _evals(evals)
    if master:
        path = Path.cwd() / master
        recipe = load.pick(load.master(path), config, path)
    else:
        recipe = load.recipe(config, settings.recipes)
    entries = matrix.entries(recipe, evals=mode)
    if json:
        ui.as_json(entries)
    else:
        ui.table(("entry", "tokens", "spec", "conc", "evaluated"), map(_entry_row, entries))
    return None


def _evals(word: str) -> matrix.Evals:
    choices: tuple[matrix.Evals, ...] = get_args(matrix.Evals)
    for choice in choices:
        if word == choice:
            return choice
    raise UsageError(
        f"--evals {word}: one of {', '.join(choices)} expected{did_you_mean(word, choices)}",
        hint=f"type: --evals {nearest(word, choices) or choices[0]}",
    )


def _entry_row(entry: matrix.Entry) -> tuple[str, ...]:
    conc = entry["conc"]
    return (
        str(entry["exp-name"]),
        f"{entry['isl']}/{entry['osl']}" if "isl" in entry else "-",
        str(entry.get("spec-decoding", "none")),
        " ".join(map(str, conc)) if isinstance(conc, list) else str(conc),
        "yes" if entry.get("run-eval") else "-",
    )


def lab_install(settings: Settings) -> int | None:
    if not packages.missing():
        ui.say("all Debian packages that the lab needs are installed")
    packages.install(ui.say)
    return None


def lab_up(settings: Settings, *, nodes: int = 3) -> int | None:
    lab = Lab()
    lab.up(nodes, say=ui.say)
    ui.say(f"the lab is up with {len(lab.nodes())} nodes; see them: invoke lab.status; take it down: invoke lab.down")
    return None


def lab_down(settings: Settings) -> int | None:
    Lab().down()
    ui.say("no lab is left here")
    return None


def lab_status(settings: Settings, *, json: bool = False) -> int | None:
    """0 only if there is a lab and each of its nodes answers, else 3."""
    nodes = Lab().status()
    if json:
        ui.as_json([asdict(node) for node in nodes])
    elif nodes:
        ui.table(("node", "address", "state", "sshd", "docker", "containers", "disk", "faults"), map(_lab_row, nodes))
    else:
        ui.say("the lab is not up; bring it up: invoke lab.up")
    return 0 if nodes and all(node.sshd and node.docker for node in nodes) else HostError.exit_code


def _lab_row(node: NodeStatus) -> tuple[str, ...]:
    return (
        node.name,
        node.address,
        node.state,
        "answers" if node.sshd else "silent",
        "answers" if node.docker else "silent",
        "-" if node.containers is None else str(node.containers),
        "-" if node.disk is None else f"{node.disk_used}/{node.disk} MB",
        ", ".join(node.faults) or "-",
    )
