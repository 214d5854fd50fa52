"""Golden plans: every command line of the recipes. Renew with `pytest --update-golden`, then read the diff."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fleet import plan
from fleet.model import load
from tests import interop

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "plan"
ATOM = ("dsv4-fp4-mi355x-atom-disagg", "dsv4-fp4-mi355x-atom-disagg-mtp")
VLLM = ("dsv4-fp4-mi355x-vllm", "dsv4-fp4-mi355x-vllm-mtp")
KEYS = (*ATOM, *VLLM)


def build(key: str) -> plan.Plan:
    inventory = load.inventory(ROOT / "inventories" / "example-mi355x.yaml")
    return plan.build(load.recipe(key, ROOT / "recipes", rules=True), inventory, ROOT / "recipes")


@pytest.mark.parametrize("key", KEYS)
def test_plan_is_the_golden_one(key: str, update_golden: bool):
    path = GOLDEN / f"{key}.txt"
    made = plan.listing(build(key))
    if update_golden:
        path.write_text(made)
    assert made == path.read_text(), f"the plan of {key} has changed: pytest --update-golden, then review the diff"


def words(key: str) -> tuple[set[str], set[str]]:
    """Flags and variables of a golden plan."""
    lines = (GOLDEN / f"{key}.txt").read_text().splitlines()
    options = {line.split()[0] for line in lines if re.match(r"  --?[a-zA-Z]", line)}
    variables = {line.split()[1].partition("=")[0] for line in lines if line.startswith("  --env ")}
    return options - {"-m"}, variables


@pytest.mark.parametrize("key", KEYS)
def test_each_flag_and_variable_is_in_the_table(key: str):
    table = set(re.findall(r"^\| `([^`]+)` \|", (ROOT / "docs" / "flags.md").read_text(), re.MULTILINE))
    options, variables = words(key)
    assert len(options) > 40
    assert len(variables) > 2
    assert options | variables <= table


def test_the_table_has_no_flag_that_no_plan_uses():
    table = set(re.findall(r"^\| `([^`]+)` \|", (ROOT / "docs" / "flags.md").read_text(), re.MULTILINE))
    used = set().union(*(part for key in KEYS for part in words(key)))
    assert table <= used


@pytest.mark.parametrize("key", ATOM)
def test_engine_flags_are_registered(key: str):
    server, client = interop.flags("atom-server.ffdf3bb"), interop.flags("atom-bench.ffdf3bb")
    for arm in build(key).arms:
        for service in arm.servers:
            _taken(service.argv[3:], server)
        for planned in arm.points:
            _taken(planned.client.argv[3:], client)


@pytest.mark.parametrize("key", VLLM)
def test_vllm_flags_are_registered(key: str):
    server, client = interop.flags("vllm-serve-0.22.0"), interop.flags("vllm-bench-serve-0.22.0")
    # Their values are lists of choices, which leave no mark in that table.
    server |= dict.fromkeys(("--distributed-executor-backend", "--tokenizer-mode"), True)
    for arm in build(key).arms:
        for service in arm.servers:
            assert service.argv[:3] == ("vllm", "serve", "/models/DeepSeek-V4-Pro")
            _taken(service.argv[3:], server)
        for planned in arm.points:
            assert planned.client.argv[:3] == ("vllm", "bench", "serve")
            _taken(planned.client.argv[3:], client)


def _taken(argv: tuple[str, ...], registered: dict[str, bool]) -> None:
    """Every word is a registered flag or the value of one."""
    words = iter(argv)
    for word in words:
        assert word in registered
        if registered[word] and word != "--enable-tbo":
            next(words)


def test_stp_and_mtp_differ_in_image_speculation_and_framing_only():
    stp, mtp = (build(key).arms for key in ATOM)
    for plain, drafting in zip(stp, mtp, strict=True):
        for one, other in zip(plain.servers, drafting.servers, strict=True):
            more = [word for word in other.argv if word not in one.argv]
            assert more == ["--method", "mtp", "--num-speculative-tokens", "3"]
            assert [word for word in one.argv if word not in other.argv] == []
            assert one.env == other.env
        assert plain.router
        assert drafting.router
        assert plain.router.argv == drafting.router.argv
        for one, other in zip(plain.points, drafting.points, strict=True):
            assert set(other.client.argv) - set(one.client.argv) == {
                "--use-chat-template",
                f"{drafting.arm.name}-c{other.point.conc}.json",
            }


def test_stp_and_mtp_on_vllm_differ_in_speculation_and_the_clients_endpoint_only():
    stp, mtp = (build(key).arms for key in VLLM)
    assert [arm.arm.name for arm in stp] == ["tp8-1k1k", "tp8-8k1k"]
    assert [arm.arm.name for arm in mtp] == ["tp8-mtp2-1k1k", "tp8-mtp2-8k1k"]
    for plain, drafting in zip(stp, mtp, strict=True):
        (one,), (other,) = plain.servers, drafting.servers
        speculation = ("--speculative-config", '{"method":"mtp","num_speculative_tokens":2}')
        assert other.argv == one.argv + speculation
        assert other.env == one.env
        for raw, framed in zip(plain.points, drafting.points, strict=True):
            changed = {"vllm": "openai-chat", "/v1/completions": "/v1/chat/completions"}
            changed[f"{raw.point.id}.json"] = f"{framed.point.id}.json"
            words = raw.client.argv
            assert framed.client.argv == (words[0], *(changed.get(word, word) for word in words[1:]))


def test_what_vllm_plans_tell_of_deviations():
    told = "\n".join(build(VLLM[1]).deviations)
    assert "--max-model-len is passed (the public script requires the value and never gives it" in told
    assert "another sequence than the public one" in told
    assert "the server frames MTP prompts" in told
    assert "the server frames MTP prompts" not in "\n".join(build(VLLM[0]).deviations)
