"""The console where an operator sits: on a terminal, with IPython and with Python's own prompt."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.terminal import Console
from tests.world import KEY, ROOT, RUN

FIRST, SECOND = "mi355x-01", "mi355x-02"
INVENTORY = "inventories/example-mi355x.yaml"
OLD = "20260101-000000-some-key-abcdef"


@pytest.fixture(params=["ipython", "plain"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Console]]:
    """A console on scripted hosts, at its first prompt. In the plain one IPython cannot be imported."""
    (tmp_path / OLD).mkdir()
    ipython, consoles = request.param == "ipython", []

    def begun(*flags: str) -> Console:
        argv = [sys.executable, "-m", "tests.scripted_shell", str(tmp_path), *flags]
        env = {**os.environ, "INVOKE_FLEET_RESULTS": str(tmp_path)}
        consoles.append(Console.open(argv, env, ROOT, tmp_path, ipython=ipython))
        return consoles[-1]

    yield begun
    for console in consoles:
        console.terminal.close()


def test_answers_errors_and_interruptions(opened: Callable[..., Console]) -> None:
    console = opened()
    assert f"fleet console: 4 hosts of {INVENTORY}" in console.greeting
    assert re.search(r"\sexec_\s+cp\s", console.greeting)

    assert re.search(r"^(Out.*)?6\.8\.0$", console.ask('hosts["mi355x-01"].run("uname -r")'), re.M)
    assert "==> mi355x-[01-04]  (all 4)\n6.8.0\n" in console.ask('hosts.each("uname -r")')
    assert re.search(rf"^{SECOND}  decode0   Up 2 minutes  1p1d-mtp3$", console.ask("deployment"), re.M)
    assert re.search(r"^(Out.*)?a line of fleet-\w+-decode0$", console.ask("deployment.decode[0].logs()"), re.M)
    assert f"run {RUN}\nno point has run\n" in console.ask("results.latest")
    assert "\n  tail       so many last lines of each service" in console.ask("logs")
    assert f"path        {INVENTORY}\n" in console.ask("inventory")
    assert "==> mi355x-[01-02]  (all 2)\n6.8.0\n" in console.ask('exec_("uname -r", limit=hosts["rack1"])')

    for line, message in (
        ('hosts["mi355x-09"]', f"mi355x-09: no such host or group in {INVENTORY}; did you mean {FIRST}?"),
        (f'plan("{KEY[:-1]}")', f"no config key '{KEY[:-1]}' in recipes; did you mean {KEY}?"),
        ("deploiment", "NameError: name 'deploiment' is not defined; did you mean deployment?"),
        ("inventory.host", "AttributeError: 'Inventory' object has no attribute 'host'; did you mean hosts?"),
    ):
        assert f"\n{message}\n" in console.ask(line)

    for call, hosts in (('hosts.each("sleep 60")', 4), ('hosts[0].run("sleep 60")', 1), ('exec_("sleep 60")', 4)):
        console.terminal.type(f"{call}\r")
        console.terminal.until(rf"(asleep\s+){{{hosts}}}")
        console.terminal.type("\x03")
        assert console.prompt().count("\ninterrupted\n") == 1
    assert "Traceback" not in console.terminal.shown

    console.terminal.type("\x04")
    console.terminal.until(rf"^still running: run {RUN}\n  {FIRST}  prefill0 router\n  {SECOND}  decode0\n")
    assert console.terminal.end() == f"  take it down: invoke down --run {RUN} --inventory {INVENTORY}\n"
    assert console.terminal.code == 0


def test_tab_offers_names(opened: Callable[..., Console]) -> None:
    console = opened()
    hosts = ("mi355x-01", "mi355x-02", "mi355x-03", "mi355x-04")
    keys = ("dsv4-fp4-mi355x-vllm", "dsv4-fp4-mi355x-vllm-mtp")
    console.tab('hosts["', *hosts, "rack1", "rack2")
    console.tab('results["', "latest", OLD, RUN)
    console.tab('plan("', *keys)
    console.tab('plan(config="dsv4-fp4-mi355x-v', *keys)
    console.tab('plan("x", ', "arm=", "conc=", "trial=")
    console.tab('logs(run="', "latest", OLD, RUN)
    console.tab('ps(limit=["', *hosts, "rack1")
    console.tab("deployment.", "prefill", "decode", "router", "seats")
    console.tab("deployment.decode[0].", "logs", "state", "host", "role")
    console.tab('hosts["mi355x-01"].', "run", "ssh")
    console.tab("hea", "health")
    console.ask("seat = deployment.router")
    console.tab("seat.", "logs", "state")
    console.terminal.type("raise SystemExit(3)\r")
    console.terminal.until(f"^still running: run {RUN}")
    console.terminal.end()
    assert console.terminal.code == 3


def test_sigterm_is_the_end(opened: Callable[..., Console]) -> None:
    console = opened()
    console.terminal.idle()
    os.kill(console.terminal.pid, signal.SIGTERM)
    assert console.end().split() == ["interrupted"]
    assert console.terminal.code == 130


def test_sigterm_ends_a_call_and_the_console(opened: Callable[..., Console]) -> None:
    console = opened()
    console.terminal.type('hosts.each("sleep 60")\r')
    console.terminal.until(r"(asleep\s+){4}")
    os.kill(console.terminal.pid, signal.SIGTERM)
    assert console.terminal.end().split()[-2:] == ["interrupted"] * 2
    assert console.terminal.code == 130
