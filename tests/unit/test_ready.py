"""Ready means it answered: in which order that is proven, what is said on the way, and what ends the wait."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from fleet.errors import NotReady, ServiceDied
from fleet.stages import ready as stage
from fleet.stages import watch
from fleet.stages.deployment import Deployment
from fleet.stages.launch import launch
from fleet.stages.ready import ready
from tests.world import World, a_plan

Answer = tuple[int, object] | str | None


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(watch, "EVERY", 0.02)
    return World()


@pytest.fixture
def up(world: World, tmp_path: Path) -> Deployment:
    made = world.deployment(tmp_path)
    launch(made)
    return made


def test_servers_then_router_then_completions_then_pairs(world: World, up: Deployment) -> None:
    told = ready(up, within=20)
    assert told.partition(" s: ")[2] == (
        "4 completions counted by all 2 workers, 1 of 1 pairs answered, router sees 2 of 2"
    )
    asked = [(name, path) for name, path, _ in world.heard if path != "/metrics"]
    servers = {
        (name, path) for name in ("prefill0", "decode0") for path in ("/health", "/v1/models", "/kv_transfer_info")
    }
    assert set(asked[:6]) == servers
    assert asked[6:] == [
        ("router", "/readiness"),
        ("router", "/v1/models"),
        *[("router", "/v1/completions")] * 4,
        ("prefill0", "/kv_transfer_info"),
        ("prefill0", "/v1/completions"),
        ("decode0", "/v1/completions"),
    ]


def test_no_two_completions_share_a_prompt_and_each_wants_several_tokens(world: World, up: Deployment) -> None:
    ready(up, within=20)
    bodies = [body for name, path, body in world.heard if name == "router" and path == "/v1/completions"]
    assert len({body["prompt"] for body in bodies}) == 4
    assert {body["max_tokens"] for body in bodies} == {8}


def test_the_router_is_not_started_before_all_servers_answer(world: World, up: Deployment) -> None:
    world.handlers["decode0"] = lambda path, body: (503, "loading") if path == "/health" else None
    with pytest.raises(NotReady) as told:
        ready(up, within=0.3)
    assert told.value.what.startswith("prefill 0 on mi355x-01, decode 0 on mi355x-02: not after ")
    assert told.value.what.endswith("last answer: decode0: health: status 503")
    assert world.nodes["mi355x-01"].asked("docker run .*router") == []
    assert ("ready", "mi355x-01", "prefill0 answers after 0.0 s", True) in world.told.hosts


def test_a_silent_server_tells_how_far_its_log_has_come(world: World, up: Deployment) -> None:
    world.handlers["decode0"] = lambda path, body: "refused"
    world.box("decode0").log = "t Loading tokenizer from x\nt Engine kwargs: {}\nt noise\n"
    with pytest.raises(
        NotReady, match=r"health: http://198.51.100.12:8020/health: connection refused \(loading weights"
    ):
        ready(up, within=0.3)


def test_a_wrong_model_is_told_even_when_the_log_says_serving(world: World, up: Deployment) -> None:
    world.handlers["decode0"] = lambda path, body: (200, {"data": [{"id": "gpt2"}]}) if path == "/v1/models" else None
    world.box("decode0").log = "t Server started successfully and ready to accept requests\n"
    with pytest.raises(NotReady, match="model: serves gpt2 instead of /models/DeepSeek-V4-Pro"):
        ready(up, within=0.3)


def test_a_router_that_sees_too_few_workers_is_not_ready(world: World, up: Deployment) -> None:
    few = {"healthy_workers": 1, "total_workers": 2}
    world.handlers["router"] = lambda path, body: (200, few) if path == "/readiness" else None
    with pytest.raises(NotReady, match=r"router on mi355x-01: .* sees 1 healthy of 2 workers, 2 are planned"):
        ready(up, within=0.3)


def test_a_completion_of_too_few_tokens_is_none(world: World, up: Deployment) -> None:
    short = {"usage": {"completion_tokens": 1}}
    world.handlers["router"] = lambda path, body: (200, short) if path == "/v1/completions" else None
    with pytest.raises(NotReady, match=r"completions through router on mi355x-01: .*1 token instead of 8"):
        ready(up, within=0.3)


def test_a_refused_completion_is_asked_again_with_another_prompt(world: World, up: Deployment) -> None:
    prompts: list[str] = []

    def handler(path: str, body: dict[str, str]) -> Answer:
        if path == "/v1/completions":
            prompts.append(body["prompt"])
            return (503, "no worker") if len(prompts) == 1 else None
        return None

    world.handlers["router"] = handler
    assert "4 completions" in ready(up, within=20)
    assert len(set(prompts)) == 5


def test_a_worker_that_counts_nothing_is_named(world: World, up: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "LARGEST_ROUND", 6)
    world.handlers["router"] = lambda path, body: (
        (200, {"usage": {"completion_tokens": 8}}) if path == "/v1/completions" else None
    )
    world.counted["decode0"].finished = 5
    with pytest.raises(NotReady) as told:
        ready(up, within=20)
    words = r"\d+ s and 6 completions through router on mi355x-01: none counted by prefill0, decode0"
    assert re.fullmatch(words, told.value.what)
    assert told.value.hint == "type: invoke logs"


def test_a_worker_without_counters_has_not_counted(
    world: World, up: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "LARGEST_ROUND", 4)
    world.handlers["decode0"] = lambda path, body: (404, "") if path == "/metrics" else None
    with pytest.raises(NotReady, match="none counted by decode0"):
        ready(up, within=20)


def test_more_rounds_until_every_worker_has_its_turn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Six completions a round; the first two rounds go to one prefill worker only."""
    monkeypatch.setattr(watch, "EVERY", 0.02)
    world = World(a_plan("2p1d-dpa-mtp3", (256,)))
    up = world.deployment(tmp_path)
    launch(up)

    def handler(path: str, body: object) -> Answer:
        if path == "/v1/completions" and world.turns < 12:
            world.turns += 1
            world.counted["prefill0"].finished += 1
            world.counted["decode0"].finished += 1
            return 200, {"usage": {"completion_tokens": 8}}
        return None

    world.handlers["router"] = handler
    told = ready(up, within=20)
    assert "18 completions counted by all 3 workers, 2 of 2 pairs answered, router sees 3 of 3" in told


@pytest.mark.parametrize(
    ("seat", "answer", "why"),
    [
        ("decode0", (500, "transfer failed"), "decode: status 500: transfer failed"),
        ("prefill0", (500, "no"), "prefill: status 500: no"),
        ("prefill0", (200, {"usage": {}}), "prefill answered without kv_transfer_params: decode would wait for ever"),
        ("decode0", (200, {"usage": {"completion_tokens": 3}}), "decode: 3 tokens instead of 8"),
    ],
)
def test_a_pair_that_does_not_answer_is_named(
    world: World, up: Deployment, seat: str, answer: tuple[int, object], why: str
) -> None:
    world.handlers[seat] = lambda path, body: answer if path == "/v1/completions" else None
    with pytest.raises(NotReady) as told:
        ready(up, within=20)
    assert told.value.what == f"pair prefill 0 on mi355x-01 → decode 0 on mi355x-02 does not answer: {why}"


@pytest.mark.parametrize("seat", ["prefill0", "decode0"])
def test_a_death_while_servers_start_ends_the_wait_at_once(world: World, up: Deployment, seat: str) -> None:
    world.handlers["decode0"] = lambda path, body: "refused"
    world.box(seat).end(1)
    began = time.monotonic()
    with pytest.raises(ServiceDied, match=r"died \(exit 1: failed\)"):
        ready(up, within=60)
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("seat", ["router", "decode0"])
def test_a_death_during_a_request_ends_the_wait_at_once(world: World, up: Deployment, seat: str) -> None:
    """The request itself would hang for long."""

    def handler(path: str, body: object) -> Answer:
        if path == "/v1/completions":
            world.box("decode0").end(137, oom=True)
            time.sleep(3)
        return None

    world.handlers[seat] = handler
    began = time.monotonic()
    with pytest.raises(ServiceDied, match=r"decode 0 on mi355x-02 died .exit 137: killed, out of memory"):
        ready(up, within=60)
    assert time.monotonic() - began < 2.5


def test_everything_is_within_the_deadline(world: World, up: Deployment) -> None:
    world.counted["decode0"].late = 1000.0
    began = time.monotonic()
    with pytest.raises(NotReady):
        ready(up, within=1.0)
    assert time.monotonic() - began < 6
