"""Each gate is seen passing and failing, with its figures."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.model.arm import Workers
from fleet.model.evidence import Counters, Drawn
from fleet.results.judge import GATES, acceptance_length, judge
from fleet.results.record import GateResult, Verdict
from tests.judged import ROLES, a_measurement, a_point, after, before, disagg_arm, prefilled, single_arm

DRAWN = Drawn(client="c", input=(6553, 8192), output=(819, 1024), public_sequence=True)
STP = {"spec": "none", "depth": 0, "name": "1p1d"}


def asked(**changes: Any) -> tuple[Verdict, dict[str, GateResult]]:
    case: dict[str, Any] = {
        "point": a_point(),
        "arm": disagg_arm(),
        "measurement": a_measurement(),
        "before": before(),
        "after": after(),
        "roles": ROLES,
        "deaths": (),
        "transfer_errors": (),
        "drawn": DRAWN,
        "wall_s": 130.0,
        "prefix_cache": False,
        "unlike": (),
    }
    verdict, gates = judge(**(case | changes))
    return verdict, {gate.name: gate for gate in gates}


def only(verdict: Verdict, reason: str) -> None:
    """Exactly this one reason."""
    assert not verdict.valid
    assert verdict.reasons == (reason,)


def test_a_sound_point_passes_every_gate_that_applies() -> None:
    verdict, gates = asked()
    assert verdict == Verdict(valid=True)
    assert len(gates) == len(GATES)
    assert {name: gate.ok for name, gate in gates.items()} == {
        "requests": True,
        "output tokens": True,
        "input tokens": True,
        "numbers": True,
        "window": True,
        "services": True,
        "deployment": True,
        "kv transfer": True,
        "workers": True,
        "prefill requests": True,
        "decode requests": True,
        "prompt tokens": True,
        "generated tokens": True,
        "prefix cache": True,
        "acceptance": True,
        "no drafting": None,
    }
    assert gates["requests"].why == "40 of 40 completed, 40 asked"
    assert gates["output tokens"].why == "40000 in 40 answers, each within 819..1024"
    assert gates["decode requests"].why == "48 finished, 48 sent"
    assert gates["generated tokens"].why == "48000 generated, client counted 48000 with warm-ups"
    assert gates["acceptance"].why == "length 2.6: 29440 accepted in 18400 steps, depth 3"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (
            {"completed": 39, "errors": {"decode_server_error": 1}},
            "39 of 40 completed, 40 asked; 1 × decode_server_error",
        ),
        ({"requested": 41}, "40 of 41 completed, 40 asked"),
        ({"completed": 30, "requested": 30}, "30 of 30 completed, 40 asked"),
        ({"completed": 0, "requested": 0}, "0 of 0 completed, 40 asked"),
    ],
)
def test_requests_that_did_not_all_complete(changes: dict[str, Any], why: str) -> None:
    verdict, gates = asked(measurement=a_measurement(**changes))
    assert not verdict.valid
    assert gates["requests"].ok is False
    assert gates["requests"].why == why


def test_a_point_without_a_success_never_passes_even_if_none_was_asked() -> None:
    nothing = a_measurement(completed=0, requested=0, input_lens=(), output_lens=(), total_output_tokens=0)
    _, gates = asked(point=a_point(prompts=0, warmups=0), measurement=nothing)
    assert gates["requests"].ok is False


def test_no_result_at_all() -> None:
    verdict, gates = asked(measurement=None)
    assert gates["requests"].why == "the client left no result; 40 were asked"
    assert [name for name, gate in gates.items() if gate.ok is False] == [
        "requests",
        "output tokens",
        "input tokens",
        "numbers",
        "window",
        "prompt tokens",
        "generated tokens",
    ]
    assert len(verdict.reasons) == 7


def test_an_answer_that_was_cut_short_counts_as_success_for_the_client_and_not_for_us() -> None:
    lens = (1000,) * 39 + (818,)
    verdict, _ = asked(measurement=a_measurement(output_lens=lens, total_output_tokens=sum(lens)))
    only(verdict, "output tokens: 1 of 40 outside 819..1024 (818)")


@pytest.mark.parametrize("length", [819, 1024])
def test_both_ends_of_the_drawn_range_are_within(length: int) -> None:
    lens = (1000,) * 39 + (length,)
    verdict, _ = asked(measurement=a_measurement(output_lens=lens, total_output_tokens=sum(lens)))
    assert verdict.valid


def test_an_answer_longer_than_asked() -> None:
    lens = (1000,) * 37 + (945, 1025, 1030)
    verdict, _ = asked(measurement=a_measurement(output_lens=lens, total_output_tokens=sum(lens)))
    only(verdict, "output tokens: 2 of 40 outside 819..1024 (1025 to 1030)")


def test_lengths_that_do_not_add_up_to_the_total() -> None:
    verdict, _ = asked(measurement=a_measurement(total_output_tokens=39999))
    only(verdict, "output tokens: 40 lengths, 40000 in all; 40 requests, 39999 in all")


def test_an_empty_answer_is_never_within_even_where_the_range_starts_at_zero() -> None:
    lens = (1000,) * 39 + (0,)
    measurement = a_measurement(output_lens=lens, total_output_tokens=sum(lens))
    _, gates = asked(drawn=DRAWN.model_copy(update={"output": (0, 1024)}), measurement=measurement)
    assert gates["output tokens"].why == "1 of 40 outside 1..1024 (0)"


def test_lengths_that_were_not_saved() -> None:
    _, gates = asked(measurement=a_measurement(output_lens=(), input_lens=()))
    assert gates["output tokens"].why == gates["input tokens"].why == "no per-request lengths"
    assert gates["output tokens"].ok is gates["input tokens"].ok is False


@pytest.mark.parametrize(
    ("chat", "length", "ok"),
    [
        (False, 6553 - 81, True),
        (False, 6553 - 82, False),
        (False, 8192 + 81, True),
        (False, 8192 + 82, False),
        (True, 8192 + 81 + 64, True),
        (True, 8192 + 81 + 65, False),
        (True, 6553 - 81 - 64, True),
        (True, 256, False),
    ],
)
def test_prompt_lengths_may_drift_by_a_recount_and_a_chat_frame_only(chat: bool, length: int, ok: bool) -> None:
    _, gates = asked(point=a_point(chat=chat), measurement=a_measurement(input_lens=(7000,) * 39 + (length,)))
    assert gates["input tokens"].ok is ok
    assert "each within" in gates["input tokens"].why if ok else f"({length})" in gates["input tokens"].why


def test_a_death_invalidates_and_is_quoted() -> None:
    verdict, _ = asked(deaths=["decode0 on node3 died (exit 137)"])
    only(verdict, "services: decode0 on node3 died (exit 137)")


def test_a_logged_transfer_error_invalidates_and_is_quoted() -> None:
    verdict, _ = asked(transfer_errors=["prefill0: batch transfer failed", "again"])
    only(verdict, "kv transfer: 2 errors logged: prefill0: batch transfer failed")


def test_a_decode_that_finished_fewer_than_were_sent() -> None:
    verdict, _ = asked(after=after(finished=49))
    only(verdict, "decode requests: 47 finished, 48 sent")


def test_a_decode_that_finished_more_served_someone_else_too() -> None:
    verdict, _ = asked(after=after(finished=51))
    only(verdict, "decode requests: 49 finished, 48 sent")


def test_a_prefill_may_finish_more_for_a_routers_retry_and_never_less() -> None:
    more = after() | {"prefill0": prefilled(finished=51, prompt_tokens=20 + 49 * 7000)}
    less = after() | {"prefill0": prefilled(finished=49)}
    assert asked(after=more)[0].valid
    only(asked(after=less)[0], "prefill requests: 47 finished, 48 sent")


def test_requests_are_summed_over_the_seats_of_a_role() -> None:
    roles = ROLES | {"prefill1": "prefill"}
    first = before() | {"prefill1": Counters(finished=0, prompt_tokens=0, cached_tokens=0)}
    last = after() | {
        "prefill0": prefilled(finished=32, prompt_tokens=20 + 30 * 7000),
        "prefill1": prefilled(finished=18, prompt_tokens=18 * 7000),
    }
    verdict, gates = asked(roles=roles, before=first, after=last)
    assert verdict.valid
    assert gates["prefill requests"].why == "48 finished, 48 sent (prefill0 30, prefill1 18)"


def test_a_prefill_that_did_nothing_shows_that_decode_served_alone() -> None:
    verdict, _ = asked(after=after() | {"prefill0": before()["prefill0"]})
    assert verdict.reasons == (
        "workers: prefill0 finished no request",
        "prefill requests: 0 finished, 48 sent",
        "prompt tokens: 0 counted by the servers, 336000 by the client with warm-ups",
    )


@pytest.mark.parametrize(
    ("side", "why"),
    [("before", "showed no finished requests before"), ("after", "showed no finished requests after")],
)
def test_a_seat_that_was_not_read_is_no_evidence(side: str, why: str) -> None:
    readings = {"before": before(), "after": after()}
    del readings[side]["decode0"]
    verdict, gates = asked(**readings)
    assert not verdict.valid
    assert gates["decode requests"].why == f"no evidence: decode0 {why}"
    assert gates["acceptance"].ok is gates["generated tokens"].ok is False


def test_a_deployment_without_decode_seats_is_no_evidence() -> None:
    _, gates = asked(roles={"prefill0": "prefill"})
    assert gates["decode requests"].why == "no evidence: no decode seat"


def test_a_counter_that_went_back_is_a_restart() -> None:
    _, gates = asked(after=after(finished=1))
    assert gates["decode requests"].why == "decode0 went back from 2 to 1 finished requests: it restarted"
    assert gates["decode requests"].ok is False


@pytest.mark.parametrize(("tokens", "ok"), [(48000, True), (48000 - 48, True), (48000 - 49, False)])
def test_decode_generated_what_the_client_counted_but_for_each_first_token(tokens: int, ok: bool) -> None:
    _, gates = asked(after=after(generated_tokens=64 + tokens))
    assert gates["generated tokens"].ok is ok
    assert gates["generated tokens"].why == f"{tokens} generated, client counted 48000 with warm-ups"


def test_generated_tokens_without_the_counter() -> None:
    verdict, _ = asked(after=after(generated_tokens=None))
    only(verdict, "generated tokens: no evidence: decode0 showed no generated tokens after")


def test_an_acceptance_of_one_is_plain_decoding() -> None:
    verdict, _ = asked(after=after(accepted=40))
    only(verdict, "acceptance: length 1: 0 accepted in 18400 steps, depth 3")


def test_an_acceptance_above_the_depth_is_not_that_deployment() -> None:
    verdict, _ = asked(after=after(accepted=40 + 3 * 18400 + 1))
    assert verdict.reasons[0].startswith("acceptance: length 4")


def test_no_drafting_step_is_no_speculation() -> None:
    verdict, _ = asked(after=after(accepted=40, steps=20))
    only(verdict, "acceptance: 0 decode steps drafted: speculation did not run")


def test_acceptance_without_counters_is_no_evidence() -> None:
    verdict, _ = asked(after=after(accepted=None))
    only(verdict, "acceptance: no evidence: decode0 showed no accepted drafts after")


def test_acceptance_after_a_restart_is_no_evidence() -> None:
    verdict, _ = asked(after=after(steps=3))
    only(verdict, "acceptance: decode0 went back from 20 to 3 decode steps: it restarted")


def test_without_speculation_nothing_may_have_been_drafted() -> None:
    verdict, gates = asked(arm=disagg_arm(**STP))
    assert gates["acceptance"].ok is None
    only(verdict, "no drafting: 55200 tokens drafted (prefill0 0, decode0 55200)")


def test_without_speculation_counters_at_rest_pass() -> None:
    verdict, gates = asked(arm=disagg_arm(**STP), after=after(drafted=60, accepted=40, steps=20))
    assert verdict.valid
    assert gates["no drafting"].why == "0 tokens drafted (prefill0 0, decode0 0)"


def test_an_engine_without_draft_counters_does_not_draft() -> None:
    bare = {seat: Counters(finished=2, prompt_tokens=0, generated_tokens=64, cached_tokens=0) for seat in ROLES}
    last = {"finished": 50, "prompt_tokens": 336000, "generated_tokens": 48064, "cached_tokens": 0}
    then = {seat: Counters(**last) for seat in ROLES}
    verdict, gates = asked(arm=disagg_arm(**STP), before=bare, after=then)
    assert verdict.valid
    assert gates["no drafting"].why == "no draft counter"


def test_an_aggregated_arm_asks_its_servers() -> None:
    first, last = {"server0": before()["decode0"]}, {"server0": after()["decode0"]}
    verdict, gates = asked(arm=single_arm(), before=first, after=last, roles={"server0": "server"})
    assert verdict.valid
    assert gates["prefill requests"].ok is gates["kv transfer"].ok is None
    assert gates["server requests"].why == "48 finished, 48 sent"
    assert gates["acceptance"].ok is True


def test_an_aggregated_server_generates_the_first_token_itself() -> None:
    first, last = {"server0": before()["decode0"]}, {"server0": after(generated_tokens=64 + 47999)["decode0"]}
    verdict, _ = asked(arm=single_arm(), before=first, after=last, roles={"server0": "server"})
    only(verdict, "generated tokens: 47999 generated, client counted 48000 with warm-ups")


def test_all_reasons_are_told_at_once() -> None:
    verdict, _ = asked(deaths=["router died"], transfer_errors=["lost"], after=after(finished=2))
    told = [reason.split(":")[0] for reason in verdict.reasons]
    assert told == ["services", "kv transfer", "workers", "decode requests"]


def test_the_acceptance_length_for_the_record() -> None:
    assert acceptance_length(before(), after(), ROLES) == pytest.approx(2.6)
    assert acceptance_length(before(), after(steps=None), ROLES) is None
    assert acceptance_length(before(), after(accepted=None), ROLES) is None
    assert acceptance_length(before(), after(accepted=40, steps=20), ROLES) is None


def test_the_acceptance_length_is_summed_over_decode_seats_not_averaged() -> None:
    roles = {"decode0": "decode", "decode1": "decode"}
    first = {seat: Counters(accepted=0, steps=0) for seat in roles}
    last = {"decode0": Counters(accepted=200, steps=100), "decode1": Counters(accepted=300, steps=300)}
    assert acceptance_length(first, last, roles) == 2.25


def test_a_depth_of_its_own_for_each_arm() -> None:
    workers = tuple(Workers(role=role, count=1, tp=8) for role in ("prefill", "decode"))
    _, gates = asked(arm=disagg_arm(depth=1, workers=workers))
    assert gates["acceptance"].why == "length 2.6: 29440 accepted in 18400 steps, depth 1"
    assert gates["acceptance"].ok is False


def test_every_draft_accepted_is_the_most_there_can_be() -> None:
    verdict, gates = asked(after=after(accepted=40 + 3 * 18400))
    assert verdict.valid
    assert gates["acceptance"].why.startswith("length 4:")


def test_a_long_error_is_cut_to_one_line() -> None:
    _, gates = asked(transfer_errors=["a\n  b " + "x" * 157])
    assert gates["kv transfer"].why == "1 error logged: a b " + "x" * 155 + "…"
    _, gates = asked(transfer_errors=["x" * 160])
    assert gates["kv transfer"].why == "1 error logged: " + "x" * 160


def test_a_client_is_judged_by_the_lengths_that_it_draws() -> None:
    """One that draws ± around a mean may miss the public bounds by a token."""
    lens = (1000,) * 39 + (1025,)
    measurement = a_measurement(output_lens=lens, total_output_tokens=sum(lens))
    assert not asked(measurement=measurement)[0].valid
    verdict, gates = asked(measurement=measurement, drawn=DRAWN.model_copy(update={"output": (819, 1025)}))
    assert verdict.valid
    assert gates["output tokens"].why.endswith("each within 819..1025")


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        ({"mean_tpot_ms": float("nan")}, "not finite: mean_tpot_ms"),
        (
            {"itls": [[0.1, float("inf")], [float("inf")]], "p99_ttft_ms": float("-inf")},
            "not finite: itls, p99_ttft_ms",
        ),
    ],
)
def test_a_number_that_is_none(raw: dict[str, Any], why: str) -> None:
    verdict, _ = asked(measurement=a_measurement(raw=raw))
    only(verdict, f"numbers: {why}")


def test_a_counter_that_is_no_number() -> None:
    _, gates = asked(after=after(accepted=float("nan")))
    assert gates["numbers"].why == "not finite: decode0 after accepted"
    assert gates["acceptance"].ok is False


def test_finite_numbers_with_tokens_and_time() -> None:
    _, gates = asked(measurement=a_measurement(raw={"request_rate": "inf", "mean_ttft_ms": 1.0, "ok": True, "x": None}))
    assert gates["numbers"].ok is True
    assert gates["numbers"].why == "tokens: 280000 in, 40000 out, in 100 s"


@pytest.mark.parametrize("changes", [{"total_input_tokens": 0}, {"total_output_tokens": 0}, {"duration_s": 0.0}])
def test_nothing_is_no_measurement(changes: dict[str, Any]) -> None:
    _, gates = asked(measurement=a_measurement(**changes))
    assert gates["numbers"].ok is False


@pytest.mark.parametrize(("wall", "ok"), [(130.0, True), (99.0, True), (98.9, False)])
def test_a_client_cannot_have_measured_longer_than_its_point_took(wall: float, ok: bool) -> None:
    """A second of a hundred may be missing: the clocks are two."""
    _, gates = asked(wall_s=wall)
    assert gates["window"].ok is ok
    assert gates["window"].why == f"100 s measured, {wall:g} s by our clock"


def test_a_short_load_may_miss_our_clock_by_half_a_second() -> None:
    assert asked(measurement=a_measurement(duration_s=0.5), wall_s=0.0)[1]["window"].ok is True
    assert asked(measurement=a_measurement(duration_s=0.6), wall_s=0.0)[1]["window"].ok is False
    assert asked(measurement=a_measurement(duration_s=float("nan")))[1]["window"].ok is False


@pytest.mark.parametrize(("end", "ok"), [(1101.0, True), (1101.1, False), (1098.9, False)])
def test_the_clients_own_start_and_end_agree_with_its_duration(end: float, ok: bool) -> None:
    raw = {"benchmark_start_time_unix": 1000.0, "benchmark_end_time_unix": end}
    _, gates = asked(measurement=a_measurement(raw=raw))
    assert gates["window"].ok is ok
    assert ok or gates["window"].why.endswith(f"; from its start to its end {end - 1000:g} s")


@pytest.mark.parametrize(("rate", "ok"), [(400.0, True), (404.0, True), (404.1, False), (395.0, False)])
def test_the_clients_rate_agrees_with_its_tokens_and_time(rate: float, ok: bool) -> None:
    _, gates = asked(measurement=a_measurement(raw={"output_throughput": rate}))
    assert gates["window"].ok is ok
    assert ok or f"its {rate:g} tok/s make {rate * 100:g}, it counted 40000" in gates["window"].why


def test_a_deployment_that_is_no_longer_the_planned_one() -> None:
    verdict, _ = asked(unlike=["decode0 is of another image", "router runs another command line"])
    only(verdict, "deployment: decode0 is of another image; router runs another command line")


def test_a_deployment_that_nobody_looked_at_is_no_evidence() -> None:
    verdict, _ = asked(unlike=None)
    only(verdict, "deployment: no evidence: its containers were not looked at when the load had ended")


def test_a_deployment_as_planned() -> None:
    assert asked()[1]["deployment"].why == "each container runs the planned image and argv"


def test_a_worker_that_stood_idle_is_named_though_its_role_finished_everything() -> None:
    roles = ROLES | {"decode1": "decode"}
    idle = before()["decode0"]
    verdict, _ = asked(roles=roles, before=before() | {"decode1": idle}, after=after() | {"decode1": idle})
    only(verdict, "workers: decode1 finished no request")


def test_workers_that_all_worked() -> None:
    assert asked()[1]["workers"].why == "2 workers, each finished requests (prefill0 48, decode0 48)"


@pytest.mark.parametrize(
    ("chat", "tokens", "ok"),
    [
        (False, 336000 - 48 * 81, True),
        (False, 336000 - 48 * 81 - 1, False),
        (False, 336000 + 48 * 81, True),
        (False, 336000 + 48 * 81 + 1, False),
        (True, 336000 + 48 * (81 + 64), True),
        (True, 336000 + 48 * (81 + 64) + 1, False),
        (True, 5 * 336000, False),
    ],
)
def test_servers_and_client_cut_text_into_the_same_tokens(chat: bool, tokens: int, ok: bool) -> None:
    last = after() | {"prefill0": prefilled(prompt_tokens=20 + tokens)}
    _, gates = asked(point=a_point(chat=chat), after=last)
    assert gates["prompt tokens"].ok is ok
    assert gates["prompt tokens"].why == f"{tokens} counted by the servers, 336000 by the client with warm-ups"


def test_prompt_tokens_of_a_retry_are_a_whole_prompt_more_and_no_two() -> None:
    def with_retry(tokens: int) -> bool | None:
        last = after() | {"prefill0": prefilled(finished=51, prompt_tokens=20 + 336000 + tokens)}
        return asked(after=last)[1]["prompt tokens"].ok

    assert with_retry(48 * 145 + 8192 + 145) is True
    assert with_retry(48 * 145 + 8192 + 146) is False


def test_prompt_tokens_without_the_counter() -> None:
    verdict, _ = asked(after=after() | {"prefill0": prefilled(prompt_tokens=None)})
    only(verdict, "prompt tokens: no evidence: prefill0 showed no prompt tokens after")


def test_a_prefix_cache_that_was_off_spares_nothing() -> None:
    assert asked()[1]["prefix cache"].why == "off, 0 prompt tokens spared"
    verdict, _ = asked(after=after() | {"prefill0": prefilled(cached_tokens=6912)})
    only(verdict, "prefix cache: off, 6912 prompt tokens spared")


def test_a_prefix_cache_that_is_on_as_planned_is_told_and_not_judged() -> None:
    _, gates = asked(after=after() | {"prefill0": prefilled(cached_tokens=6912)}, prefix_cache=True)
    assert gates["prefix cache"].ok is None
    assert gates["prefix cache"].why == "on, as planned: 6912 prompt tokens spared"


def test_a_prefix_cache_that_nobody_counts_is_no_evidence() -> None:
    verdict, _ = asked(after=after() | {"prefill0": prefilled(cached_tokens=None)})
    only(verdict, "prefix cache: no evidence: prefill0 showed no cached tokens after")
