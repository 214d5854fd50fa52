from __future__ import annotations

import pytest

from fleet.engines import atom, flags, vllm
from tests import interop

ENGINES = {"atom-server.ffdf3bb": (atom, ()), "vllm-serve-0.22.0": (vllm, ("--tokenizer",))}


@pytest.mark.parametrize("file", ENGINES)
def test_fleets_own_flags_under_all_their_names_and_no_other(file: str) -> None:
    engine, others = ENGINES[file]
    own = {*engine.ORIGINS, *engine.ALIASES}
    for names in interop.spellings(file):
        expected = any(name in own for name in names)
        for name in names:
            assert bool(flags.taken((name, "1"), own, others=others)) is expected, name
