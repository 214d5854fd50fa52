"""A canary as a secret, searched for on every node and in all that the operator keeps and sees."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.lab.desk import STP, Desk, until

pytestmark = [pytest.mark.lab, pytest.mark.timeout(240)]

CANARY = "hf_CANARY'0123$(touch /tmp/executed)\"; 789 é"
LINES = "-----FIRST-line-CANARY\nsecond-line-CANARY '`id`'\n"
MARKS = ("CANARY", "touch /tmp/executed")

# What is on a node outside of the containers' own processes. /proc/PID/cmdline of all processes; what docker knows and
# logs is asked of docker itself.
SEEN = """
for one in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <"$one" 2>/dev/null; echo; done
grep -rlaE 'C[A]NARY' /srv/fleet /tmp /var/tmp /home /root /etc /run /var/log 2>/dev/null | sed 's/^/FILE /'
true
"""


def look(desk: Desk, node: str) -> str:
    """All that can be seen on a node without being in a container."""
    names = desk.containers(node)
    said = [desk.lab.inside(node, ["sh", "-c", SEEN]).out]
    if names:
        said.append(desk.lab.docker(node, ["inspect", *names]).out)
    return "\n".join(said)


@contextmanager
def watched(desk: Desk) -> Iterator[list[str]]:
    """The argv of every process of every node, again and again while the block runs."""
    stop, found = threading.Event(), list[str]()

    def turn(node: str) -> None:
        while not stop.is_set():
            argv = "for one in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <\"$one\" 2>/dev/null; echo; done"
            found.extend(desk.lab.inside(node, ["sh", "-c", argv]).out.splitlines())

    threads = [threading.Thread(target=turn, args=(node,)) for node in desk.nodes[:2]]
    for thread in threads:
        thread.start()
    try:
        yield found
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def kept(folder: Path) -> dict[str, str]:
    return {str(one): one.read_text(errors="replace") for one in folder.rglob("*") if one.is_file()}


def clean(text: str) -> bool:
    return not any(mark in text for mark in MARKS)


def words(desk: Desk, *more: str, fail: str = "print-environment") -> list[str]:
    (desk.folder / "key").write_text(LINES)
    secrets = {"HF_TOKEN": "env", "KEY": f"!cmd cat {desk.folder / 'key'}"}
    path = desk.inventory(everyone={"secrets": secrets, "env": {"FLEET_DOUBLE_FAIL": fail}})
    return desk.small(STP, *more, inventory=path)


def test_a_canary_is_in_the_engine_and_nowhere_else(desk: Desk) -> None:
    asked = words(desk)
    with watched(desk) as argvs, desk.started(*asked, HF_TOKEN=CANARY, FLEET_DEBUG="1") as running:
        running.until("ready in")
        (decode,) = desk.containers("node2", "name=decode0")
        inspected = desk.lab.docker("node2", ["inspect", "--format", "{{.State.Pid}}", decode]).out.strip()
        environ = f"for one in $(pgrep -P {inspected}); do cat /proc/$one/environ; done"
        inside = desk.lab.inside("node2", ["sh", "-c", environ]).out
        assert f"HF_TOKEN={CANARY}\0" in inside, "the one place where it has to be"
        assert f"KEY={LINES.rstrip()}\0" in inside
        during = {node: look(desk, node) for node in desk.nodes}
        (file,) = desk.lab.inside("node2", ["sh", "-c", "stat -c '%a %U' /srv/fleet/*/secrets"]).out.splitlines()
        assert file.split()[0] == "600"
        raw = desk.lab.docker("node2", ["logs", decode])
        assert "CANARY" in raw.out, "the double prints its environment"
        logs = desk.invoke("logs", "--inventory", asked[asked.index("--inventory") + 1], "--tail", "0")
        said = running.end()
    assert said.code == 0, said.all
    for node, text in during.items():
        files = [line for line in text.splitlines() if line.startswith("FILE ")]
        assert all(re.fullmatch(r"FILE /srv/fleet/[^/]+/secrets", line) for line in files), files
        assert bool(files) == (node != "node3"), node
        assert clean(text), node
    assert [line for line in argvs if not clean(line)] == []
    assert len(argvs) > 100
    assert clean(said.all)
    assert "***HF_TOKEN***" in logs.out
    assert clean(logs.all)
    desk.nothing_left()
    after = {node: look(desk, node) for node in desk.nodes}
    assert [line for text in after.values() for line in text.splitlines() if line.startswith("FILE ")] == []
    assert all(map(clean, after.values()))
    home = kept(desk.results)
    assert [name for name, text in home.items() if not clean(text)] == []
    (log,) = (desk.run().path / "logs").glob("*/decode0.log")
    text = log.read_text()
    assert "HF_TOKEN=***HF_TOKEN***\n" in text
    assert "KEY=***KEY***\n" in text
    assert '"HF_TOKEN"' in (desk.run().plan_json).read_text(), "names are told"
    assert desk.lab.inside("node2", ["test", "-e", "/tmp/executed"]).returncode != 0


def test_a_death_tells_nothing_of_it(desk: Desk) -> None:
    said = desk.invoke(*words(desk, fail="print-environment,exit-after=3:7"), HF_TOKEN=CANARY, FLEET_DEBUG="1")
    assert said.code == 4, said.all
    assert clean(said.all)
    assert [name for name, text in kept(desk.results).items() if not clean(text)] == []
    desk.nothing_left()


def test_a_killed_controller_leaves_it_to_down(desk: Desk) -> None:
    asked = words(desk)
    inventory = asked[asked.index("--inventory") + 1]
    with desk.started(*asked, HF_TOKEN=CANARY) as running:
        running.until("ready in")
        running.process.kill()
    assert any(desk.scratch().values())
    said = desk.invoke("down", "--inventory", inventory)
    assert said.code == 0, said.all
    assert clean(said.all)
    assert [name for name, text in kept(desk.results).items() if not clean(text)] == []
    text = next((desk.run().path / "logs").glob("*/decode0.log")).read_text()
    assert "***HF_TOKEN***" in text
    until(lambda: not desk.scratch(), "the scratch folders to be empty", 5)
    desk.nothing_left()


def test_what_is_missing_is_told_before_anything_starts(desk: Desk) -> None:
    said = desk.invoke(*words(desk))
    assert said.code == 2, said.all
    assert "HF_TOKEN: not set in your environment" in said.err
    assert "nothing was started" in said.err
    assert not desk.results.exists() or [one for one in desk.results.iterdir() if one.is_dir()] == []
