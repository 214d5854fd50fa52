"""Whether a point may be believed: a list of gates, each a question answered with figures. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fleet.model.arm import Arm, Point, Role
from fleet.model.evidence import Counters, Drawn, Measurement
from fleet.results.record import GateResult, Verdict
from fleet.words import counted

# The client draws a length, makes text of random tokens and counts it again: the count may miss by a few tokens.
RECOUNT_SHARE = 0.01
RECOUNT_LEAST = 4
# A chat frame (role tags, begin-of-text, thinking tag) is taken off the drawn length by some clients and not by others.
FRAME_TOKENS = 64
# How far times of one load may be apart, as the public benchmark has it.
WINDOW_SECONDS = 0.5
WINDOW_SHARE = 0.01


@dataclass(frozen=True)
class Case:
    """Everything a gate may look at. `roles` names the seats that serve HTTP and so must show their counters.

    wall_s: seconds that the point took by our own clock, its client's start and end included. prefix_cache: whether the
    servers were told to use one. unlike: what of the running deployment is not as planned; None if nobody looked.
    """

    point: Point
    arm: Arm
    measurement: Measurement | None
    before: Mapping[str, Counters]
    after: Mapping[str, Counters]
    roles: Mapping[str, Role]
    deaths: Sequence[str]
    transfer_errors: Sequence[str]
    drawn: Drawn
    wall_s: float
    prefix_cache: bool
    unlike: Sequence[str] | None

    @property
    def requests(self) -> int:
        """What the servers were sent: the client's warm-ups are requests too."""
        return self.point.prompts + self.point.warmups

    @property
    def generating(self) -> tuple[Role, ...]:
        return _generating(self.roles)

    @property
    def reading(self) -> tuple[Role, ...]:
        """The roles that compute prompts."""
        return ("prefill",) if self.arm.disagg else ("server",)

    @property
    def slack(self) -> int:
        """Tokens by which the length of one prompt may be counted otherwise."""
        return max(RECOUNT_LEAST, int(self.drawn.input[1] * RECOUNT_SHARE)) + FRAME_TOKENS * self.point.chat


Gate = Callable[[Case], GateResult]


def judge(
    point: Point,
    arm: Arm,
    measurement: Measurement | None,
    before: Mapping[str, Counters],
    after: Mapping[str, Counters],
    roles: Mapping[str, Role],
    deaths: Sequence[str],
    transfer_errors: Sequence[str],
    drawn: Drawn,
    *,
    wall_s: float,
    prefix_cache: bool,
    unlike: Sequence[str] | None,
) -> tuple[Verdict, tuple[GateResult, ...]]:
    """Ask every gate; a point is valid if none says no.

    measurement: None when the client left no result. before, after: counters by seat name, read while no request is
    under way and after the servers refreshed them (ATOM: every 5 s). roles: the seats that serve HTTP. deaths,
    transfer_errors: lines as they are to be shown. A counter that a gate needs and that is missing, None or went
    backwards makes the point invalid. drawn: the lengths that the client draws. wall_s, prefix_cache, unlike: as `Case`
    has them.
    """
    case = Case(
        point, arm, measurement, before, after, roles, deaths, transfer_errors, drawn, wall_s, prefix_cache, unlike
    )
    results = tuple(gate(case) for gate in GATES)
    reasons = tuple(f"{result.name}: {result.why}" for result in results if result.ok is False)
    return Verdict(valid=not reasons, reasons=reasons), results


def acceptance_length(
    before: Mapping[str, Counters], after: Mapping[str, Counters], roles: Mapping[str, Role]
) -> float | None:
    """Tokens per drafting step, 1 + accepted / steps, over all decode (or server) seats; None without evidence."""
    accepted, bad = _moves(before, after, roles, _generating(roles), "accepted")
    steps, bad_too = _moves(before, after, roles, _generating(roles), "steps")
    total = sum(steps.values())
    return 1 + sum(accepted.values()) / total if not (bad or bad_too) and total > 0 else None


def requests(case: Case) -> GateResult:
    """All requests completed, as many as the plan asked for, and at least one."""
    found, asked = case.measurement, case.point.prompts
    if found is None:
        return _no("requests", f"the client left no result; {asked} were asked")
    why = f"{found.completed} of {found.requested} completed, {asked} asked"
    if found.errors:
        text, count = max(found.errors.items(), key=lambda item: item[1])
        why += f"; {count} × {_short(text)}"
    return _answer("requests", 0 < found.completed == found.requested == asked, why)


def output_lengths(case: Case) -> GateResult:
    """Each answer as long as asked. The client does not save what it drew, so: each within the range, and the sum."""
    name, found = "output tokens", case.measurement
    if found is None or not found.output_lens:
        return _no(name, "no per-request lengths")
    least, most = max(1, case.drawn.output[0]), case.drawn.output[1]
    outside = [length for length in found.output_lens if not least <= length <= most]
    if outside:
        return _no(name, f"{len(outside)} of {len(found.output_lens)} outside {least}..{most}{_extremes(outside)}")
    total, count = sum(found.output_lens), len(found.output_lens)
    if (count, total) != (found.requested, found.total_output_tokens):
        lengths, asked = counted(count, "length"), counted(found.requested, "request")
        return _no(name, f"{lengths}, {total} in all; {asked}, {found.total_output_tokens} in all")
    return _yes(name, f"{total} in {counted(count, 'answer')}, each within {least}..{most}")


def input_lengths(case: Case) -> GateResult:
    """Each prompt as long as asked, give or take what counting text again and a chat frame may change."""
    name, found = "input tokens", case.measurement
    if found is None or not found.input_lens:
        return _no(name, "no per-request lengths")
    least, most = max(1, case.drawn.input[0] - case.slack), case.drawn.input[1] + case.slack
    outside = [length for length in found.input_lens if not least <= length <= most]
    if outside:
        return _no(name, f"{len(outside)} of {len(found.input_lens)} outside {least}..{most}{_extremes(outside)}")
    return _yes(name, f"{counted(len(found.input_lens), 'prompt')}, each within {least}..{most}")


def numbers(case: Case) -> GateResult:
    """No NaN and no infinity in the client's result or the counters, and tokens and time above zero."""
    name, found = "numbers", case.measurement
    if found is None:
        return _no(name, "the client left no result")
    sides = {"before": case.before, "after": case.after}
    told = {f"{seat} {side}": one.model_dump() for side, seats in sides.items() for seat, one in seats.items()}
    wrong = [where for where, number in _numbers({**found.raw, **told}) if not math.isfinite(number)]
    if wrong:
        return _no(name, f"not finite: {_short(', '.join(dict.fromkeys(wrong)))}")
    tokens = f"tokens: {found.total_input_tokens} in, {found.total_output_tokens} out, in {found.duration_s:g} s"
    return _answer(name, min(found.total_input_tokens, found.total_output_tokens, found.duration_s) > 0, tokens)


def window(case: Case) -> GateResult:
    """The time that the client measured lies within the point's, and its own figures agree with it."""
    name, found = "window", case.measurement
    if found is None:
        return _no(name, "the client left no result")
    seconds = found.duration_s
    why = f"{seconds:.6g} s measured, {case.wall_s:.6g} s by our clock"
    if not 0 < seconds <= case.wall_s + _apart(seconds):
        return _no(name, why)
    begun, ended = (_number(found.raw.get(f"benchmark_{side}_time_unix")) for side in ("start", "end"))
    if begun is not None and ended is not None and not abs(ended - begun - seconds) <= _apart(seconds):
        return _no(name, f"{why}; from its start to its end {ended - begun:.6g} s")
    rate, tokens = _number(found.raw.get("output_throughput")), found.total_output_tokens
    if rate is not None and not abs(rate * seconds - tokens) <= max(1.0, tokens * WINDOW_SHARE):
        return _no(name, f"{why}; its {rate:.6g} tok/s make {rate * seconds:.6g}, it counted {tokens}")
    return _yes(name, why)


def deployment(case: Case) -> GateResult:
    """Every serving container runs at the end what was planned: its image, its command line, its mounts."""
    name = "deployment"
    if case.unlike is None:
        return _no(name, "no evidence: its containers were not looked at when the load had ended")
    return _answer(name, not case.unlike, "; ".join(case.unlike) or "each container runs the planned image and argv")


def services_alive(case: Case) -> GateResult:
    """No service died between the point's start and its end."""
    return _answer("services", not case.deaths, "; ".join(case.deaths) or "none died")


def no_transfer_errors(case: Case) -> GateResult:
    """No KV transfer error in any log. There is no counter of KV bytes to ask instead."""
    name, errors = "kv transfer", case.transfer_errors
    if errors:
        return _no(name, f"{counted(len(errors), 'error')} logged: {_short(errors[0])}")
    return _yes(name, "no error logged") if case.arm.disagg else _skip(name, "not disaggregated")


def prefill_finished(case: Case) -> GateResult:
    """Prefill workers finished at least every request; a router's retry is one prefill more, so more is allowed."""
    name = "prefill requests"
    if not case.arm.disagg:
        return _skip(name, "not disaggregated")
    moved, bad = _case_moves(case, ("prefill",), "finished")
    why = bad or f"{_sum(moved)} finished, {case.requests} sent{_shares(moved)}"
    return _answer(name, not bad and sum(moved.values()) >= case.requests, why)


def workers(case: Case) -> GateResult:
    """Every planned worker finished requests: a role's sum alone would hide one that stood idle."""
    name = "workers"
    moved, bad = _case_moves(case, ("prefill", "decode", "server"), "finished")
    idle = [seat for seat, value in moved.items() if not value]
    if bad or idle:
        return _no(name, bad or f"{', '.join(idle)} finished no request")
    return _yes(name, f"{counted(len(moved), 'worker')}, each finished requests{_shares(moved)}")


def decode_finished(case: Case) -> GateResult:
    """Decode (or aggregated) workers finished exactly the requests sent: less is loss, more is someone else's load."""
    name = "decode requests" if case.arm.disagg else "server requests"
    moved, bad = _case_moves(case, case.generating, "finished")
    why = bad or f"{_sum(moved)} finished, {case.requests} sent{_shares(moved)}"
    return _answer(name, not bad and sum(moved.values()) == case.requests, why)


def prompt_tokens(case: Case) -> GateResult:
    """The servers counted the prompts as the client did, warm-ups included: they cut text into the same tokens.

    Each prompt may miss by what counting again and a chat frame change. A router's retry is one whole prompt more.
    """
    name, found = "prompt tokens", case.measurement
    if found is None or not found.input_lens:
        return _no(name, "no per-request lengths")
    moved, bad = _case_moves(case, case.reading, "prompt_tokens")
    finished, bad_too = _case_moves(case, case.reading, "finished")
    if bad or bad_too:
        return _no(name, bad or bad_too)
    client = found.total_input_tokens + case.point.warmups * found.input_lens[0]
    slack = case.requests * case.slack
    retries = max(0.0, sum(finished.values()) - case.requests) * (case.drawn.input[1] + case.slack)
    why = f"{_sum(moved)} counted by the servers, {client} by the client with warm-ups{_shares(moved)}"
    return _answer(name, client - slack <= sum(moved.values()) <= client + slack + retries, why)


def prefix_cache(case: Case) -> GateResult:
    """Where the prefix cache is off no prompt token came from one: repeated warm-ups would make figures too good."""
    name = "prefix cache"
    moved, bad = _case_moves(case, case.reading, "cached_tokens")
    if case.prefix_cache:
        return _skip(name, f"on, as planned: {bad or _sum(moved) + ' prompt tokens spared'}")
    spared = counted(sum(moved.values()), "prompt token")
    return _answer(name, not bad and not sum(moved.values()), bad or f"off, {spared} spared{_shares(moved)}")


def generated(case: Case) -> GateResult:
    """The workers generated what the client counted, warm-ups included.

    A decode worker may leave the first token of each answer to the prefill worker, so one a request may be missing.
    Warm-ups repeat the first prompt with its own length.
    """
    name, found = "generated tokens", case.measurement
    if found is None or not found.output_lens:
        return _no(name, "no per-request lengths")
    moved, bad = _case_moves(case, case.generating, "generated_tokens")
    if bad:
        return _no(name, bad)
    client = found.total_output_tokens + case.point.warmups * found.output_lens[0]
    least = client - (case.requests if case.arm.disagg else 0)
    why = f"{_sum(moved)} generated, client counted {client} with warm-ups{_shares(moved)}"
    return _answer(name, sum(moved.values()) >= least, why)


def acceptance(case: Case) -> GateResult:
    """With speculation the draft was used: more than one token a step, and no more than depth + 1."""
    name = "acceptance"
    if case.arm.spec == "none":
        return _skip(name, "no speculation planned")
    accepted, bad = _case_moves(case, case.generating, "accepted")
    steps, bad_too = _case_moves(case, case.generating, "steps")
    if bad or bad_too:
        return _no(name, bad or bad_too)
    if not sum(steps.values()):
        return _no(name, "0 decode steps drafted: speculation did not run")
    length = 1 + sum(accepted.values()) / sum(steps.values())
    drafting = counted(sum(steps.values()), "step")
    why = f"length {length:.4g}: {_sum(accepted)} accepted in {drafting}, depth {case.arm.depth}"
    return _answer(name, 1 < length <= 1 + case.arm.depth, why)


def no_drafting(case: Case) -> GateResult:
    """Without speculation no worker drafted. An engine that has no such counter does not draft."""
    name = "no drafting"
    if case.arm.spec != "none":
        return _skip(name, f"{case.arm.spec}, depth {case.arm.depth} planned")
    having = {seat: role for seat, role in case.roles.items() if _has_drafts(case, seat)}
    if not having:
        return _yes(name, "no draft counter")
    moved, bad = _moves(case.before, case.after, having, ("prefill", "decode", "server"), "drafted")
    drafted = counted(sum(moved.values()), "token")
    return _answer(name, not bad and not sum(moved.values()), bad or f"{drafted} drafted{_shares(moved)}")


GATES: tuple[Gate, ...] = (
    requests,
    output_lengths,
    input_lengths,
    numbers,
    window,
    services_alive,
    deployment,
    no_transfer_errors,
    workers,
    prefill_finished,
    decode_finished,
    prompt_tokens,
    generated,
    prefix_cache,
    acceptance,
    no_drafting,
)


def _generating(roles: Mapping[str, Role]) -> tuple[Role, ...]:
    """The roles whose tokens reach the client: decode on a disaggregated deployment, else the servers."""
    return ("decode",) if {"prefill", "decode"} & set(roles.values()) else ("server",)


def _apart(seconds: float) -> float:
    return max(WINDOW_SECONDS, seconds * WINDOW_SHARE)


def _numbers(value: object, where: str = "") -> Iterator[tuple[str, float]]:
    """Every number in a JSON value, with the name of the field that it is in."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _numbers(inner, f"{where} {name}".strip())
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _numbers(inner, where)
    elif (number := _number(value)) is not None:
        yield where, number


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _has_drafts(case: Case, seat: str) -> bool:
    sides = (case.before.get(seat), case.after.get(seat))
    return any(counters is not None and counters.drafted is not None for counters in sides)


def _case_moves(case: Case, roles: Sequence[Role], counter: str) -> tuple[dict[str, float], str]:
    return _moves(case.before, case.after, case.roles, roles, counter)


def _moves(
    before: Mapping[str, Counters],
    after: Mapping[str, Counters],
    seats: Mapping[str, Role],
    roles: Sequence[Role],
    counter: str,
) -> tuple[dict[str, float], str]:
    """How far a counter moved on each seat of these roles, and what is wrong with the evidence ("" if nothing)."""
    moved: dict[str, float] = {}
    wrong: list[str] = []
    names = [name for name, role in seats.items() if role in roles]
    for name in names:
        first, last = _value(before, name, counter), _value(after, name, counter)
        if first is None or last is None:
            side = "before and after" if first is last else "before" if first is None else "after"
            wrong.append(f"no evidence: {name} showed no {_words(counter)} {side}")
        elif last < first:
            wrong.append(f"{name} went back from {first:g} to {last:g} {_words(counter)}: it restarted")
        else:
            moved[name] = last - first
    if not names:
        wrong.append(f"no evidence: no {' or '.join(roles)} seat")
    return moved, "; ".join(wrong)


def _value(side: Mapping[str, Counters], seat: str, counter: str) -> float | None:
    counters = side.get(seat)
    value = None if counters is None else getattr(counters, counter)
    return None if value is None else float(value)


def _words(counter: str) -> str:
    known = {"finished": "finished requests", "accepted": "accepted drafts", "steps": "decode steps"}
    return (known | {"drafted": "drafted tokens"}).get(counter, counter.replace("_", " "))


def _sum(moved: Mapping[str, float]) -> str:
    return f"{sum(moved.values()):.15g}"


def _shares(moved: Mapping[str, float]) -> str:
    return " (" + ", ".join(f"{seat} {value:.15g}" for seat, value in moved.items()) + ")" if len(moved) > 1 else ""


def _extremes(lengths: Sequence[int]) -> str:
    low, high = min(lengths), max(lengths)
    return f" ({low})" if low == high else f" ({low} to {high})"


def _short(text: str, limit: int = 160) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def _answer(name: str, ok: bool, why: str) -> GateResult:
    return GateResult(name=name, ok=ok, why=why)


def _yes(name: str, why: str) -> GateResult:
    return _answer(name, True, why)


def _no(name: str, why: str) -> GateResult:
    return _answer(name, False, why)


def _skip(name: str, why: str) -> GateResult:
    return GateResult(name=name, ok=None, why=why)
