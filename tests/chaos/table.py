"""python -m tests.chaos.table FOLDER [PAGE]: what the cells of a run wrote into FOLDER, as a table; also into PAGE."""

from __future__ import annotations

import json
import os
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

MARK = "<!-- what `make chaos` writes stands below -->\n"
ENDS = {0: "0", -9: "killed"}

Row = Mapping[str, Any]


def family(fault: str) -> str:
    """One fault, however it is brought about: `disk full, client's` is a full disk."""
    return fault.partition(":")[0].partition(", client")[0].removesuffix(" on a terminal").removesuffix(" early")


def seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def rows(found: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    yield ("fault", "stage", "exit", "points", "named, s", "ended, s")
    for row in found:
        points = " ".join(row["points"]) or "-"
        code = ENDS.get(row["code"], str(row["code"]))
        yield (row["fault"], row["stage"], code, points, seconds(row["named"]), seconds(row["ended"]))


def summary(found: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    """Median and worst by fault, of the cells where the fault is named."""
    yield ("fault", "cells", "named: median, s", "worst, s", "ended: median, s", "worst, s")
    for fault in dict.fromkeys(family(row["fault"]) for row in found):
        own = [row for row in found if family(row["fault"]) == fault]
        yield (fault, str(len(own)), *middle_and_worst(own, "named"), *middle_and_worst(own, "ended"))
    yield ("all", str(len(found)), *middle_and_worst(found, "named"), *middle_and_worst(found, "ended"))


def middle_and_worst(found: Sequence[Row], what: str) -> tuple[str, str]:
    values = [row[what] for row in found if row[what] is not None]
    return (seconds(statistics.median(values)), seconds(max(values))) if values else ("-", "-")


def markdown(lines: Iterator[tuple[str, ...]]) -> str:
    head, *body = lines
    whole = [head, tuple("---" for _ in head), *body]
    return "".join(f"| {' | '.join(line)} |\n".replace("| --- ", "|---").replace(" --- |", "---|") for line in whole)


def plain(lines: Iterator[tuple[str, ...]]) -> str:
    table = list(lines)
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    return "".join("  ".join(map(str.ljust, line, widths)).rstrip() + "\n" for line in table)


def main(folder: str, page: str = "") -> int:
    found = [json.loads(path.read_text()) for path in sorted(Path(folder).glob("*.json"))]
    if not found:
        print("no cell has ended well")
        return 1
    print(plain(rows(found)))
    print(plain(summary(found)))
    if page:
        head = Path(page).read_text().partition(MARK)[0] + MARK
        machine = f"{os.cpu_count()} cores, {len(found)} cells, all of them passed."
        Path(page).write_text(f"{head}\n{machine}\n\n{markdown(summary(found))}\n{markdown(rows(found))}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
