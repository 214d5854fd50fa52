"""The lab and the desk are those of tests/lab."""

from __future__ import annotations

from tests.lab.conftest import able, desk, doubles, lab

__all__ = ["able", "desk", "doubles", "lab"]
