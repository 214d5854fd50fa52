"""What both engines ask of a model file: what is fleet's own to set, and what would change nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from fleet.model.arm import Arm, Workers
from fleet.model.tuning import Draft


def taken(flags: Iterable[str], own: Collection[str], *, others: Collection[str] = ()) -> list[str]:
    """Why some of `flags` may not be passed: they set, under whatever spelling, what fleet sets itself.

    own: fleet's flags with their aliases. others: flags of the engine that merely begin one of fleet's.
    argparse takes any unambiguous beginning of a long flag, vLLM `_` for `-` and a dotted part of a JSON flag too.
    """
    ours = sorted({_plain(name) for name in own if name.startswith("-")})
    found = []
    for flag in flags:
        name = _plain(flag.split("=")[0].split(".")[0])
        if not name.strip("-") or not name.startswith("-") or name in others:
            continue
        if name in ours:
            found.append(f"flags: {flag} is fleet's own to set")
        elif meant := [one for one in ours if one.startswith(name)]:
            found.append(f"flags: {flag} is short for {meant[0]}, which is fleet's own to set")
    return found


def variables(own: Collection[str], **sections: Mapping[str, str]) -> list[str]:
    """Why some variables may not be set: fleet sets them itself. sections: by field, whose key in the file is told."""
    return [
        f"{field.replace('_', '-')}: {name} is fleet's own to set"
        for field, env in sections.items()
        for name in env
        if name in own
    ]


def draft(arm: Arm, mtp: Draft | None) -> list[str]:
    """Why a model file may not say the depth of an arm of several nodes: its config does, and nothing else is read."""
    keys = [key for key, said in (("tokens", mtp.tokens), ("by-conc", mtp.by_conc)) if said] if mtp else []
    if not arm.multinode or not keys:
        return []
    written = " and ".join(keys)
    return [f"mtp: {written}: the config says the depth: DECODE_MTP_SIZE; take {written} out of the model file"]


def expert_parallel(workers: Workers) -> list[str]:
    """Why an `ep` cannot be had: `--enable-expert-parallel` takes no size, the experts go over all ranks of `tp`."""
    if workers.ep in (1, workers.tp):
        return []
    return [
        f"{workers.role}: ep: {workers.ep}: experts are spread over all {workers.tp} ranks of tp, or over none; "
        f"type ep: {workers.tp} or ep: 1"
    ]


def _plain(name: str) -> str:
    return name.replace("_", "-")
