"""What the benchmarks measure with a clock, held without one where that can be."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]
HEAVY = ("fabric", "paramiko", "pydantic", "rich", "yaml", "tenacity", "IPython", "fleet.verbs", "fleet.model.load")


def test_tasks_py_loads_without_heavy_imports() -> None:
    code = f"import sys, tasks; print([name for name in {HEAVY!r} if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], cwd=HERE, capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout == "[]\n"
