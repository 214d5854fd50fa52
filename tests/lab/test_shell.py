"""The console on real nodes, where an operator sits: on a terminal."""

from __future__ import annotations

import re

import pytest

from fleet.results.store import RunFolder
from tests.judged import a_record
from tests.lab.desk import ROOT, Desk, until
from tests.terminal import Console

pytestmark = [pytest.mark.lab, pytest.mark.timeout(150)]
RUN = "20260101-000000-some-key-abcdef"


def asleep(desk: Desk) -> list[str]:
    """Where the long command runs."""
    return [node for node in desk.nodes if desk.lab.inside(node, ["pgrep", "-f", "^sleep 61.5"]).returncode == 0]


@pytest.mark.parametrize("flavour", ["ipython", "plain"])
def test_the_console_on_real_nodes(desk: Desk, flavour: str) -> None:
    folder = RunFolder(desk.results / RUN)
    folder.path.mkdir(parents=True)
    folder.append_record(a_record(double=True))
    argv, env = desk.argv("shell"), desk.environment()
    console = Console.open(argv, env, ROOT, desk.folder, ipython=flavour == "ipython")
    try:
        assert "fleet console: 3 hosts of inventories/lab.yaml" in console.greeting
        assert re.search(r"^(Out.*)?node2$", console.ask('hosts["node2"].run("hostname")'), re.M)
        assert "==> node[1-3]  (all 3)\nLinux\n" in console.ask('hosts.each("uname -s")')
        assert "nothing of ours runs on these hosts\n" in console.ask("deployment")
        assert f"run {RUN}\nDOUBLE: not a measurement\n" in console.ask("results.latest")
        assert "3 of 3 hosts healthy\n" in console.ask("health()")
        console.terminal.type('hosts.each("sleep 61.5")\r')
        until(lambda: asleep(desk) == desk.nodes, "all asleep")
        console.terminal.type("\x03")
        assert console.prompt().count("\ninterrupted\n") == 1
        until(lambda: not asleep(desk), "nobody asleep")
        assert "Traceback" not in console.terminal.shown
        console.terminal.type("\x04")
        assert console.end().strip() == ""
        assert console.terminal.code == 0
    finally:
        console.terminal.close()
