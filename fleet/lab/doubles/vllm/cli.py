"""The `vllm` command: `vllm serve …` and `vllm bench serve …`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from vllm import bench, serve

ALL_HELP = "--help=all"
"""Asks the real one for all flags; its `--help` alone lists groups of them."""

USAGE = "usage: vllm serve MODEL … | vllm bench serve …"


def main(argv: Sequence[str]) -> int:
    if argv[:1] == ["--version"]:
        print(serve.VERSION)
        return 0
    argv = ["--help" if word == ALL_HELP else word for word in argv]
    if argv[:1] == ["serve"]:
        return serve.main(argv[1:])
    if argv[:2] == ["bench", "serve"]:
        return bench.main(argv[2:])
    print(f"{USAGE}\nvllm: error: unknown command: {' '.join(argv[:2])}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)
