"""The stages of a sweep: how the world is slowed so that a stage can be met, and how it is known to be reached."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.chaos.scene import CONC, Scene


def nothing(_: Scene) -> None:
    """The stage is long enough by itself."""


@dataclass(frozen=True)
class Stage:
    """reach: waits until the sweep is in it."""

    prepare: Callable[[Scene], None]
    reach: Callable[[Scene], None]


def held(node: str, words: str) -> Stage:
    """A stage that is met where one docker command of it waits on a node."""

    def reach(scene: Scene) -> None:
        scene.running.until(scene.waits(node), f"docker {words} on {node}", scene.patience)

    return Stage(lambda scene: scene.hold(node, words), reach)


def lack_image(scene: Scene) -> None:
    scene.desk.forget_images("node2")
    scene.hold("node2", " load ")


def start_slowly(scene: Scene) -> None:
    failure = scene.engine.get("node2", "")
    scene.engine["node2"] = ",".join(filter(None, [failure, f"slow-start={4 * scene.slow:.1f}"]))


def compute_slowly(scene: Scene) -> None:
    scene.environment["FLEET_DOUBLE_SPEED"] = "0.5"


def one_waits(scene: Scene) -> None:
    scene.running.until_said("prefill0 answers", scene.patience)
    scene.seat("node2", "decode0")


def loaded(scene: Scene) -> None:
    scene.running.until(lambda: scene.running_client(CONC[1]), f"the client at conc {CONC[1]}", scene.patience)


STAGES: Mapping[str, Stage] = {
    "preflight": held("node2", " info "),
    "stage": Stage(lack_image, held("node2", "load").reach),
    "launch": held("node2", " run * --name fleet-*-decode0 "),
    "ready": Stage(start_slowly, one_waits),
    "mid-point": Stage(compute_slowly, loaded),
    "between points": held("node1", f" run * --name fleet-*-c{CONC[1]} "),
    "collect": held("node2", " logs --timestamps fleet-"),
    "teardown": held("node2", " stop "),
}
"""In the order of a sweep."""
