"""The model's folder on every host of a deployment: asked at once, compared, refused where it is not one and whole."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fleet import checkpoint
from fleet.checkpoint import NAMED, Checkpoint, File, Print, fingerprint
from fleet.errors import FleetError, HostError, shown
from fleet.session import Machine, Session
from fleet.stages import hashes
from fleet.words import amount, counted

Found = Mapping[str, Checkpoint | None]
"""One model's folder by host; None: it is not there, or empty."""

Models = Mapping[str, Checkpoint | None]
"""One host's folders by model."""


@dataclass(frozen=True)
class Reason:
    """Why nothing may start, and the hosts that it is about."""

    text: str
    hosts: tuple[str, ...]


def folder(machine: Machine, model: str) -> str:
    return f"{machine.host.models}/{model}"


def look(
    machine: Machine, model: str, *, full: bool = False, tell: Callable[[str], object] = lambda text: None
) -> Checkpoint | None:
    """The folder as it is now; full: with the hash of every byte, `tell` hears how far that is. HostError where it
    cannot be read.
    """
    where = folder(machine, model)
    outcome = machine.run(checkpoint.survey_argv(where), timeout=_within(machine, full=full), check=False)
    try:
        found = checkpoint.parse_survey(outcome.code, outcome.stdout, outcome.err)
        return _hashed(machine, where, found, tell) if full and found else found
    except HostError as error:
        line = machine.transport.ssh_line(["ls", "-lL", where])
        raise HostError(f"model {shown(model)}: {error.what}", where=machine.name, hint=f"try:  {line}") from error


def _within(machine: Machine, *, full: bool) -> float:
    """Sampling reads a megabyte of each file, whatever its size; a full hash reads all."""
    timeouts = machine.settings.timeouts
    return timeouts.stage_within if full else 4 * timeouts.command


def _hashed(machine: Machine, where: str, found: Checkpoint, tell: Callable[[str], object]) -> Checkpoint:
    """Hashes that are known from before count while nothing of the file changed."""
    results = machine.settings.results
    known = hashes.known(results, machine.name, where)
    full = {path: known[file.stamp] for path, file in found.files.items() if file.stamp in known}
    unknown = {path: file for path, file in found.compared.items() if path not in full}
    if unknown:
        began, new = _hash(machine, where, unknown, tell)
        hashes.keep(results, machine.name, where, unknown, new, began)
        full |= new
        if changed := [path for path in unknown if path not in new]:
            raise HostError(f"{checkpoint.listed(changed, 'file')} changed while being read, or cannot be read")
    return replace(found, files={path: replace(one, full=full.get(path, "")) for path, one in found.files.items()})


def _hash(
    machine: Machine, where: str, files: Mapping[str, File], tell: Callable[[str], object]
) -> tuple[int, dict[str, str]]:
    """The host's clock at the beginning, and the hashes by path."""
    kept = bytearray()
    total = amount(sum(file.size for file in files.values()))

    def sink(chunk: bytes) -> None:
        kept.extend(chunk)
        tell(f"{amount(checkpoint.hashed_bytes(kept.decode()))} of {total} read")

    timeout = machine.settings.timeouts.stage_within
    began = machine.run(["date", "+%s"]).out.strip()
    machine.transport.stream(
        checkpoint.hash_argv(where), timeout=timeout, source=[checkpoint.names(files)], sink=sink, check=False
    )
    return int(began), checkpoint.parse_hashes(kept.decode("utf-8", "surrogateescape"), files)[0]


def everywhere(
    session: Session, wanted: Mapping[str, Sequence[str]], *, full: bool = False
) -> dict[str, dict[str, Checkpoint | None] | FleetError]:
    """By host and model, all hosts at once. wanted: models by host."""
    timeouts = session.settings.timeouts
    most = max(map(len, wanted.values()), default=1) * (timeouts.stage_within if full else 4 * timeouts.command)

    def act(machine: Machine) -> dict[str, Checkpoint | None]:
        def tell(text: str) -> None:
            session.progress.host("weights", machine.name, text)

        return {model: look(machine, model, full=full, tell=tell) for model in wanted[machine.name]}

    return session.each(wanted, act, timeout=most)


def by_model(
    found: Mapping[str, Models | FleetError],
) -> dict[str, dict[str, Checkpoint | None]]:
    """The same the other way round, of the hosts that answered."""
    turned: dict[str, dict[str, Checkpoint | None]] = {}
    for host, models in found.items():
        for model, one in models.items() if not isinstance(models, FleetError) else ():
            turned.setdefault(model, {})[host] = one
    return turned


# --- why not to start -----------------------------------------------------------------------------------------------


def reasons(model: str, found: Found, mend: Callable[[str, Sequence[str]], str]) -> list[Reason]:
    """All that is wrong with one model's folders. mend: the line that copies it from a host to others."""
    told = [*_absent(found), *_halves(found), *_apart(found)]
    named = [replace(one, text=f"model {shown(model)}: {one.text}") for one in told]
    return [*named[:-1], replace(named[-1], text=f"{named[-1].text}\n    {_next(found, mend)}")] if named else []


def _absent(found: Found) -> Iterator[Reason]:
    if absent := tuple(host for host, one in found.items() if one is None):
        yield Reason(f"missing or empty on {', '.join(absent)}", absent)


def _halves(found: Found) -> Iterator[Reason]:
    """What several hosts have in common is told once."""
    hosts: dict[str, tuple[str, ...]] = {}
    for host, one in found.items():
        for text in _few(one.halves if one else (), "like these"):
            hosts[text] = (*hosts.get(text, ()), host)
    for text, those in hosts.items():
        yield Reason(f"on {', '.join(those)} {text}", those)


def _apart(found: Found) -> Iterator[Reason]:
    differing = checkpoint.apart({host: one for host, one in found.items() if one})
    wrong = tuple(host for host in found if any(host in one.few for one in differing))
    for text in _few([str(one) for one in differing], "that differ"):
        yield Reason(text, wrong)


def _few(texts: Sequence[str], kind: str) -> list[str]:
    more = len(texts) - NAMED
    return [*texts[:NAMED], *([f"{counted(more, 'more file')} {kind}"] if more > 0 else [])]


def _next(found: Found, mend: Callable[[str, Sequence[str]], str]) -> str:
    whole = checkpoint.whole_one(found)
    if not whole:
        return "it is whole on none of them: download it again on one, or finish what is under way there"
    right = fingerprint(found[whole] or Checkpoint())
    others = [host for host, one in found.items() if one is None or one.halves or fingerprint(one) != right]
    if not checkpoint.covering(found):
        return f"if that of {whole} is the right one: {mend(whole, others)}"
    return f"copy it from {whole}: {mend(whole, others)}"


def refused(found: Mapping[str, Found], key: str, inventory: str) -> list[Reason]:
    """All that is wrong, over all models."""

    def mend(source: str, hosts: Sequence[str]) -> str:
        words = ["invoke", "stage.model", "--config", key, "--from", source, "--limit", ",".join(hosts)]
        return shlex.join([*words, *(["--inventory", inventory] if inventory else [])])

    return [one for model, hosts in found.items() for one in reasons(model, hosts, mend)]


# --- what a run remembers -------------------------------------------------------------------------------------------


def told(model: str, found: Checkpoint) -> str:
    one = fingerprint(found)
    how = "every byte" if one.full else "sampled"
    return f"{shown(model)}: {counted(one.files, 'file')}, {amount(one.size)}, the same ({how})"


def facts(found: Mapping[str, Found]) -> dict[str, Any]:
    """Of models that are the same everywhere, as facts.json keeps them."""
    told = {}
    for model, hosts in found.items():
        prints = {host: fingerprint(one) for host, one in hosts.items() if one}
        if prints:
            told[model] = {**next(iter(prints.values())).model_dump(), "hosts": list(prints)}
    return told


def changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What is not as it was, of two such facts, in words: between two processes of a run, or a run's start and end."""
    told = []
    for model in before.keys() & after.keys():
        then, now = Print.model_validate(_print(before[model])), Print.model_validate(_print(after[model]))
        if then.same(now):
            continue
        told.append(f"model {shown(model)} was {then} when the run began, and is {now} now")
    return sorted(told)


def _print(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: facts[name] for name in Print.model_fields if name in facts}
