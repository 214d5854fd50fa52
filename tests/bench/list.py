"""`invoke --list` here against a bare tasks.py of one trivial task: what fleet adds to the first thing that one types.

    python tests/bench/list.py [--rounds N]

Both run by turns, so that whatever else the machine does touches both alike. Exits with 1 above LIMIT. docs/bench.md
has figures.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIMIT = 1.3
"""How many times the bare tasks.py's time ours may take."""

HERE = Path(__file__).resolve().parents[2]
BARE = '''from invoke import task


@task
def hello(c):
    """Say hello."""
'''


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rounds", type=int, default=15, help="runs of each (default: 15)")
    rounds = options.parse_args().rounds
    with tempfile.TemporaryDirectory(prefix="fleet-bench-") as bare:
        (Path(bare) / "tasks.py").write_text(BARE)
        seconds(HERE), seconds(Path(bare))  # writes the bytecode
        pairs = [(seconds(Path(bare)), seconds(HERE)) for _ in range(rounds)]
    theirs, ours = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(f"invoke --list, medians of {rounds} runs by turns")
    print(f"  a bare tasks.py  {1000 * theirs:6.0f} ms")
    print(f"  fleet            {1000 * ours:6.0f} ms")
    print(f"  ratio            {ours / theirs:6.2f}      (limit {LIMIT})")
    return 0 if ours <= LIMIT * theirs else 1


def seconds(folder: Path) -> float:
    argv = [sys.executable, "-m", "invoke", "--list"]
    # Without bytecode the one with more code of its own would be compiled anew each time, the installed packages never.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    began = time.perf_counter()
    subprocess.run(argv, cwd=folder, env=env, stdout=subprocess.DEVNULL, check=True, timeout=60)
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
