"""Images on real engines: who lacks layers gets them and no others, and whatever fails is that host's failure alone."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fleet.errors import FleetError, HostError, Interrupted
from fleet.lab.lab import Lab
from fleet.layers import PART
from fleet.progress import Silent
from fleet.session import Machine
from fleet.stages import stage as stages
from fleet.stages.stage import stage
from fleet.stages.stock import Stock, stock
from tests import images
from tests.images import Made
from tests.lab import staging

pytestmark = [pytest.mark.lab, pytest.mark.timeout(120)]

MB = 1_000_000
NODES = staging.NODES
TAG = "reg.lab:5000/x/engine:n2"
BASE = Made(tuple(images.layer(f"base{number}", 2 * MB) for number in range(3)), "reg.lab:5000/x/engine:n1")
IMAGE = Made((*BASE.layers, *(images.layer(f"top{number}", 3 * MB) for number in range(4))), TAG)
UPPER = sum(map(len, IMAGE.layers[3:]))


class Told(Silent):
    """Keeps what was told; `when` acts once a host has so many bytes."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.done: dict[str, str] = {}
        self.totals: dict[str, int] = {}
        self._acts: dict[str, tuple[int, Callable[[], object]]] = {}
        self._threads: list[threading.Thread] = []

    def when(self, host: str, got: int, act: Callable[[], object]) -> None:
        self._acts[host] = (got, act)

    def acted(self) -> None:
        assert not self._acts
        for thread in self._threads:
            thread.join(30)

    def line(self, text: str) -> None:
        self.lines.append(text)

    def host(self, stage: str, host: str, text: str, *, done: bool = False) -> None:
        if done:
            self.done[host] = text

    def moved(self, stage: str, host: str, done: int, total: int, rate: float) -> None:
        self.totals[host] = total
        least, act = self._acts.get(host, (done + 1, lambda: None))
        if done >= least:
            del self._acts[host]
            self._threads.append(threading.Thread(target=act))
            self._threads[-1].start()


@pytest.fixture(scope="module")
def own(able: None) -> Iterator[Lab]:
    with staging.own_lab() as made:
        yield made


@pytest.fixture
def lab(own: Lab) -> Iterator[Lab]:
    """Engines without images; whatever a test did to a node is healed."""
    for node in NODES:
        own.docker(node, ["image", "prune", "--all", "--force"], check=True)
        own.inside(node, ["sh", "-c", "rm -rf /tmp/.fleet-* /srv/fleet/.stage-*"])
    yield own
    for node in NODES:
        if own.node(node).faults():
            own.heal(node)


def have(lab: Lab, image: Made, *nodes: str) -> None:
    for node in nodes:
        lab.docker(node, ["load", "--quiet"], stdin=image.archive(), check=True)


def slowly(lab: Lab, mbit: int = 40) -> None:
    for node in NODES:
        lab.fault("rate", node, mbit)


def ids(lab: Lab, tag: str = TAG) -> dict[str, str]:
    """Who has the image, by the engines themselves."""
    asked = {node: lab.docker(node, ["image", "inspect", "--format", "{{.Id}}", tag]) for node in NODES}
    return {node: one.out.strip() for node, one in asked.items() if one.returncode == 0}


def clean(lab: Lab, *nodes: str) -> None:
    """Nothing but images is left."""
    for node in nodes or NODES:
        left = lab.inside(node, ["sh", "-c", "ls -d /tmp/.fleet-* /srv/fleet/.stage-* 2>/dev/null"]).out
        assert not left, (node, left)
        assert not lab.docker(node, ["images", "-q", "--filter", f"label={PART}"]).out, node


def session(told: Told, **more: dict[str, str]) -> staging.Opened:
    return staging.session({node: {"user": "ops", **more.get(node, {})} for node in NODES}, told)


def test_each_gets_the_layers_it_lacks_and_no_others(lab: Lab) -> None:
    have(lab, IMAGE, "node1")
    have(lab, BASE, "node3", "node5")
    other = Made((IMAGE.layers[3], *IMAGE.layers[:3]), "x:other")  # the same layers on others: no use
    have(lab, other, "node4")
    told = Told()
    with session(told, node3={"user": "nodock"}) as made:
        found = stage(made, TAG, NODES)
    assert {image.id for image in found.values()} == {IMAGE.id}
    assert ids(lab) == dict.fromkeys(NODES, IMAGE.id)
    whole = sum(map(len, IMAGE.layers))
    for node, most in {"node2": whole, "node3": UPPER, "node4": whole, "node5": UPPER}.items():
        assert most < told.totals[node] < most + 50_000, node
    assert "4 layers of 7" in "\n".join(told.lines)
    clean(lab)


def test_a_layer_that_is_missing_after_all(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    have(lab, IMAGE, "node1")

    def claimed(machine: Machine, image: str = "", **more: float) -> Stock:
        found = stock(machine, image)
        return Stock(**{**vars(found), "chains": (tuple(IMAGE.diff_ids[:5]),)}) if machine.name == "node3" else found

    monkeypatch.setattr(stages, "stock", claimed)
    told = Told()
    with session(told, node1={"user": "nodock"}) as made:
        stage(made, TAG, NODES[:3])
    assert ids(lab) == dict.fromkeys(NODES[:3], IMAGE.id)
    assert "node2: through this machine" in "\n".join(told.lines)  # nodock has no key of its own
    clean(lab)


@pytest.mark.long
def test_the_nodes_cut_in_the_middle_and_at_the_end_are_the_only_ones_without_it(lab: Lab) -> None:
    have(lab, IMAGE, "node1")
    slowly(lab)
    told = Told()
    told.when("node3", 6 * MB, lambda: lab.fault("cut", "node3"))
    told.when("node5", 6 * MB, lambda: lab.fault("cut", "node5"))
    with session(told) as made, pytest.raises(HostError) as error:
        stage(made, TAG, NODES)
    told.acted()
    assert re.findall("^(node.): ", str(error.value), re.M) == ["node3", "node5"]
    assert "node3: no answer for 5 s" in str(error.value)
    assert ids(lab) == dict.fromkeys(["node1", "node2", "node4"], IMAGE.id)
    clean(lab, "node1", "node2", "node4")


@pytest.mark.long
def test_a_slow_node_is_fed_by_itself_and_holds_nobody_back(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    class Eased(Told):
        def line(self, text: str) -> None:
            super().line(text)
            if "it goes on by itself" in text:
                lab.fault("rate", "node3", 40)

    monkeypatch.setattr(stages, "PATIENCE", 3.0)
    have(lab, IMAGE, "node1")
    slowly(lab)
    told = Eased()
    told.when("node3", 5 * MB, lambda: lab.fault("rate", "node3", 1))
    with session(told) as made:
        stage(made, TAG, NODES)
    told.acted()
    assert "node3: held back the others" in "\n".join(told.lines)
    assert ids(lab) == dict.fromkeys(NODES, IMAGE.id)
    clean(lab)


def test_the_source_is_lost_and_another_takes_over(lab: Lab) -> None:
    have(lab, IMAGE, "node1", "node2")
    slowly(lab)
    told = Told()
    told.when("node3", 3 * MB, lambda: lab.fault("cut", "node1"))
    with session(told) as made:
        stage(made, TAG, NODES[1:] + NODES[:1])
    told.acted()
    assert ids(lab) == dict.fromkeys(NODES, IMAGE.id)


def test_a_disk_without_room_gets_nothing_and_one_that_fills_keeps_nothing(lab: Lab) -> None:
    have(lab, IMAGE, "node1")
    slowly(lab, 20)
    lab.fault("fill-disk", "node2", 20)
    told = Told()
    told.when("node4", 6 * MB, lambda: lab.fault("fill-disk", "node4"))
    with session(told) as made, pytest.raises(HostError) as error:
        stage(made, TAG, NODES)
    told.acted()
    text = str(error.value)
    assert f"node2: no room for {TAG}" in text
    assert f"node4: no space left on device: the engine's disk is full, and nothing of {TAG} stays there" in text
    assert ids(lab) == dict.fromkeys(["node1", "node3", "node5"], IMAGE.id)
    clean(lab)


def test_an_engine_killed_during_the_load_and_only_what_is_missing_the_next_time(lab: Lab) -> None:
    have(lab, IMAGE, "node1")
    slowly(lab)
    told = Told()
    told.when("node4", 16 * MB, lambda: lab.fault("kill-docker", "node4"))
    with session(told) as made, pytest.raises(HostError) as error:
        stage(made, TAG, NODES)
    told.acted()
    assert error.value.where == "node4"
    assert ids(lab) == dict.fromkeys(["node1", "node2", "node3", "node5"], IMAGE.id)
    lab.heal("node4")
    again = Told()
    with session(again) as made:
        stage(made, TAG, NODES)
    assert 0 < again.totals["node4"] < told.totals["node4"] - 3 * MB
    assert ids(lab) == dict.fromkeys(NODES, IMAGE.id)
    clean(lab)


def test_after_an_interrupt_nothing_that_arrived_is_sent_again(lab: Lab) -> None:
    have(lab, IMAGE, "node1")
    slowly(lab)
    told = Told()
    with session(told) as made:
        told.when("node5", 11 * MB, lambda: made.stops.append(Interrupted("interrupted")))
        with pytest.raises(Interrupted):
            stage(made, TAG, NODES)
    told.acted()
    assert list(ids(lab)) == ["node1"]
    again = Told()
    with session(again) as made:
        stage(made, TAG, NODES)
    for node in NODES[1:]:
        assert again.totals[node] < told.totals[node] - 3 * MB, node
    assert ids(lab) == dict.fromkeys(NODES, IMAGE.id)
    clean(lab)


def test_two_at_once_do_not_hurt_each_other(lab: Lab) -> None:
    have(lab, IMAGE, "node1")
    problems: list[BaseException] = []

    def one() -> None:
        try:
            with session(Told()) as made:
                stage(made, TAG, NODES)
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=one) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    assert not problems
    assert ids(lab) == dict.fromkeys(NODES, IMAGE.id)
    clean(lab)


@pytest.mark.parametrize("layout", ["links", "oci"])
def test_an_archive_here(lab: Lab, tmp_path: Path, layout: images.Layout) -> None:
    image = Made((*IMAGE.layers[:4], IMAGE.layers[1]), TAG)
    (tmp_path / "image.tar").write_bytes(image.archive(layout))
    have(lab, BASE, "node3")
    told = Told()
    with session(told) as made:
        stage(made, TAG, NODES[:3], tar=tmp_path / "image.tar")
    assert ids(lab) == dict.fromkeys(NODES[:3], image.id)
    assert told.totals["node3"] < told.totals["node2"] - 5 * MB


def test_what_nobody_has_and_another_image_under_the_tag(lab: Lab) -> None:
    told = Told()
    with session(told) as made:
        with pytest.raises(HostError, match=r"is on none of node1, node2.* and node1 cannot pull it"):
            stage(made, TAG, NODES)
        have(lab, IMAGE, "node1")
        have(lab, Made(BASE.layers, TAG), "node2")
        with pytest.raises(HostError, match="is not the same on all hosts") as error:
            stage(made, TAG, NODES)
        assert f"  node2  {Made(BASE.layers, TAG).id}" in error.value.what


def test_a_name_with_a_digest_is_given_by_a_registry_alone(lab: Lab) -> None:
    have(lab, IMAGE, "node1")
    name = f"reg.lab:5000/x/engine@sha256:{'ab' * 32}"
    with session(Told()) as made, pytest.raises(FleetError, match="cannot pull it"):
        stage(made, name, NODES[:2])
