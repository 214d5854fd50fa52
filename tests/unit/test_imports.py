"""Imports go down only, and the world is touched in two rooms only: read from the source, nothing is imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# From the top floor to the bottom: a module imports from its own floor and from those below. A room's most specific
# name counts. docs/architecture.md draws the same floors.
FLOORS: tuple[tuple[str, ...], ...] = (
    (
        "tasks",
        "fleet.front",
        "fleet.guard",
        "fleet.argv",
        "fleet.advice",
        "fleet.streams",
        "fleet.listing",
        "fleet.completion",
        "fleet.verbs",
        "fleet.resumes",
        "fleet.compares",
        "fleet.shell",
        "fleet.enrol",
        "fleet.reports",
        "fleet.trust",
    ),
    ("fleet.ui", "fleet.stages"),
    ("fleet.session",),
    ("fleet.hosts", "fleet.provision", "fleet.lab", "fleet.progress", "fleet.results.store", "fleet.results.report"),
    (
        "fleet.plan",
        "fleet.runbook",
        "fleet.difference",
        "fleet.steps",
        "fleet.declared",
        "fleet.manual",
        "fleet.proof",
        "fleet.docker",
        "fleet.layers",
        "fleet.probes",
        "fleet.hardware",
        "fleet.profile",
        "fleet.timeline",
        "fleet.patience",
        "fleet.checkpoint",
        "fleet.parcel",
        "fleet.results",
    ),
    ("fleet.engines", "fleet.routers", "fleet.loads", "fleet.http", "fleet.results.record", "fleet.results.metrics"),
    ("fleet.model", "fleet.settings", "fleet.sources"),
    ("fleet.errors", "fleet.words", "fleet.secret", "fleet.awake"),
)
PURE = (
    "fleet.model",
    "fleet.engines",
    "fleet.routers",
    "fleet.loads",
    "fleet.docker",
    "fleet.layers",
    "fleet.probes",
    "fleet.hardware",
    "fleet.profile",
    "fleet.timeline",
    "fleet.patience",
    "fleet.checkpoint",
    "fleet.parcel",
    "fleet.http",
    "fleet.plan",
    "fleet.runbook",
    "fleet.difference",
    "fleet.steps",
    "fleet.declared",
    "fleet.manual",
    "fleet.proof",
    "fleet.secret",
    "fleet.results.record",
    "fleet.results.metrics",
    "fleet.results.judge",
    "fleet.results.aggregate",
    "fleet.results.report",
    "fleet.results.stats",
    "fleet.results.crossover",
    "fleet.results.topology",
    "fleet.results.sample",
    "fleet.results.noise",
    "fleet.results.compare",
    "fleet.results.telling",
    "fleet.results.ledger",
    "fleet.results.export",
    "fleet.results.sheet",
    "fleet.results.chart",
    "fleet.results.plot",
    "fleet.results.page",
)
REMOTE = {"fabric", "paramiko", "subprocess"}
WORLD = {
    *REMOTE,
    "asyncio",
    "http.server",
    "os",
    "shutil",
    "signal",
    "socket",
    "tempfile",
    "threading",
    "time",
    "urllib",
}
# Programs of their own: they run in containers or beside the lab's nodes, and are started, not imported.
PROGRAMS = ("fleet.lab.doubles", "fleet.lab.delay", "fleet.lab.__main__")
# Completion prints for a shell; the list of verbs and a last word of the streams come before rich is there.
PRINTS = ("fleet.ui", "fleet.completion", "fleet.listing", "fleet.streams")
PRINTERS = {"print", "sys.stdout.write", "sys.stderr.write", "sys.stdout.buffer.write"}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def within(module: str, *rooms: str) -> bool:
    return any(module == room or module.startswith(f"{room}.") for room in rooms)


FILES = {module_name(path): path for path in (ROOT / "tasks.py", *sorted((ROOT / "fleet").rglob("*.py")))}
MODULES = [name for name in FILES if name != "fleet" and not within(name, *PROGRAMS)]


def tree(module: str) -> ast.Module:
    return ast.parse(FILES[module].read_text(encoding="utf-8"))


def imports(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and full name of all that is imported for running, lazily too; imports for typing alone are left out."""
    if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
        return
    if isinstance(node, ast.Import):
        yield from ((node.lineno, alias.name) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"line {node.lineno}: write the whole name"
        for alias in node.names:
            whole = f"{node.module}.{alias.name}"
            yield node.lineno, whole if whole in FILES else str(node.module)
    for child in ast.iter_child_nodes(node):
        yield from imports(child)


def floor(module: str) -> int:
    found = [(len(room), number) for number, rooms in enumerate(FLOORS) for room in rooms if within(module, room)]
    assert found, f"{module} is on no floor: give it one here and in docs/architecture.md"
    return max(found)[1]


def outside(module: str) -> list[tuple[int, str]]:
    """The packages from elsewhere that a module imports."""
    return [(line, name) for line, name in imports(tree(module)) if not within(name, "fleet")]


def test_every_module_has_a_floor() -> None:
    assert [floor(module) for module in MODULES]


@pytest.mark.parametrize("module", MODULES)
def test_imports_go_down_only(module: str) -> None:
    upward = [
        f"{FILES[module].relative_to(ROOT)}:{line} imports {name}, which is above it"
        for line, name in imports(tree(module))
        if within(name, "fleet") and name != "fleet" and floor(name) < floor(module)
    ]
    assert not upward, "\n".join(upward)


def test_only_hosts_and_lab_reach_machines() -> None:
    found = [
        f"{FILES[module].relative_to(ROOT)}:{line} imports {name}"
        for module in MODULES
        if not within(module, "fleet.hosts", "fleet.lab")
        for line, name in outside(module)
        if within(name, *REMOTE)
    ]
    assert not found, "\n".join(found)


def test_pure_rooms_touch_nothing() -> None:
    found = [
        f"{FILES[module].relative_to(ROOT)}:{line} imports {name}"
        for module in MODULES
        if within(module, *PURE)
        for line, name in outside(module)
        if within(name, *WORLD)
    ]
    assert not found, "\n".join(found)


def test_only_ui_prints() -> None:
    found = []
    for module in MODULES:
        if module in PRINTS:
            continue
        where = FILES[module].relative_to(ROOT)
        found += [f"{where}:{line} imports rich" for line, name in outside(module) if within(name, "rich")]
        calls = [node for node in ast.walk(tree(module)) if isinstance(node, ast.Call)]
        found += [f"{where}:{call.lineno} prints" for call in calls if ast.unparse(call.func) in PRINTERS]
    assert not found, "\n".join(found)


def test_the_rules_see_what_they_forbid() -> None:
    """The reader itself: lazy imports count, names for typing do not, a submodule is told from a name."""
    source = (
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    import paramiko\n"
        "def late():\n    import subprocess\n    from fleet import verbs\n"
        "from fleet.errors import FleetError\n"
    )
    assert list(imports(ast.parse(source))) == [
        (1, "typing"),
        (5, "subprocess"),
        (6, "fleet.verbs"),
        (7, "fleet.errors"),
    ]
    assert floor("fleet.results.store") < floor("fleet.results.judge") < floor("fleet.results.record")
