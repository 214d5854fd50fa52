"""The hosts that the latest `health` or preflight found fault with: what `--limit @last-failed` stands for."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from fleet.errors import UsageError

NAME = ".last-failed"


def write(root: Path, asked_by: str, hosts: Sequence[str]) -> None:
    """Replace results/.last-failed. A folder that cannot be written is no reason to fail: then nothing is kept."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        descriptor, aside = tempfile.mkstemp(prefix=f"{NAME}-", dir=root)
        with os.fdopen(descriptor, "w") as file:
            json.dump({"asked_by": asked_by, "hosts": list(hosts)}, file)
        os.replace(aside, root / NAME)
    except OSError:
        return


def read(root: Path) -> list[str]:
    """Raises UsageError if nothing was asked yet, or all was well."""
    try:
        kept = json.loads((root / NAME).read_text())
        asked_by, hosts = str(kept["asked_by"]), [str(name) for name in kept["hosts"]]
    except (OSError, ValueError, KeyError, TypeError):
        raise UsageError(
            "--limit @last-failed: no health or preflight is on record here", where=str(root / NAME),
            hint="ask first: invoke health",
        ) from None  # fmt: skip
    if not hosts:
        raise UsageError(
            f"--limit @last-failed: no host failed in the latest {asked_by}", hint="ask anew: invoke health"
        )
    return hosts
