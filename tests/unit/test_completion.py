"""The Tab key: what is offered where, and that real shells hand it on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tasks
from fleet.argv import Flag, Verb, verbs_of
from fleet.completion import candidates, names_here
from fleet.hosts import route
from fleet.results import lastfailed

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
NAMES = {
    "--config": ["dsv4-a", "dsv4-a-mtp", "qwen"],
    "--limit": ["n1", "n2", "decode", "@last-failed"],
    "--run": ["latest", "2026-x"],
}
CORE = Verb("", {"--list": Flag("--list", takes_value=False), "--complete": Flag("--complete", takes_value=False)})


def offered(line: str) -> list[str]:
    """`line` as words; its last, perhaps empty, word is being typed."""
    return candidates(line.split(" "), verbs_of(tasks.ns), CORE, lambda flag: NAMES.get(flag, []))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("invoke sw", ["sweep"]),
        ("invoke lab.", ["lab.install", "lab.up", "lab.down", "lab.status"]),
        ("invoke --l", ["--list"]),
        ("invoke sweep --con", ["--config", "--conc"]),
        ("invoke sweep --config ", ["dsv4-a", "dsv4-a-mtp", "qwen"]),
        ("invoke sweep --config dsv4-a", ["dsv4-a", "dsv4-a-mtp"]),
        ("invoke sweep --config = dsv4-a-", ["dsv4-a-mtp"]),
        ("invoke sweep --config =", ["dsv4-a", "dsv4-a-mtp", "qwen"]),
        ("invoke sweep --config=q", ["--config=qwen"]),
        ("invoke sweep --config=", ["--config=dsv4-a", "--config=dsv4-a-mtp", "--config=qwen"]),
        ("invoke sweep --config qwen --conf", []),
        ("invoke sweep --config qwen --tri", ["--trial"]),
        ("invoke ps --limit n", ["n1", "n2"]),
        ("invoke ps --limit n1,", ["n1,n2", "n1,decode", "n1,@last-failed"]),
        ("invoke ps --limit n1 --lim", ["--limit"]),
        ("invoke logs --run l", ["latest"]),
        ("invoke plan --inventory ", []),
        ("invoke ps --limit @la", ["@last-failed"]),
        ("invoke ps --limit n1,@", ["n1,@last-failed"]),
        ("invoke ps --limit=@l", ["--limit=@last-failed"]),
        ("invoke ps --limit @ la", ["@last-failed"]),
        ("invoke ps --limit @", ["@last-failed"]),
        ("invoke ps --limit n1, @ la", ["@last-failed"]),
        ("invoke ps --limit =@ la", ["@last-failed"]),
        ("invoke ps --limit decode : n", ["n1", "n2"]),
        ("invoke ps --limit decode :", ["n1", "n2", "@last-failed"]),
        ("invoke ps --limit decode:n", ["decode:n1", "decode:n2"]),
        ("invoke ps --limit 'decode:!n", ["decode:!n1", "decode:!n2"]),
        ("invoke ps --limit 'n1,&d", ["n1,&decode"]),
    ],
)
def test_offers(line: str, expected: list[str]) -> None:
    assert sorted(offered(line)) == sorted(expected)


def test_after_a_finished_value_come_flags_and_verbs_and_no_keys() -> None:
    found = offered("invoke sweep --config qwen ")
    assert {"--trial", "health"} <= set(found)
    assert not {"--config", "qwen", "dsv4-a", "--list"} & set(found)


def test_names_for_hosts_to_add(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Aliases of the user's ssh_config, whatever the inventory has; its groups and labels behind the other flags."""
    (tmp_path / "more").write_text("Host gate\n")
    (tmp_path / "config").write_text(f"Host n1 n2 *.lab !x\n  User me\nhost=n3\nInclude {tmp_path}/more\n")
    monkeypatch.setattr(route, "USER_CONFIG", str(tmp_path / "config"))
    names = names_here(
        ["invoke", "inventory.add", "--inventory", f"{ROOT}/inventories/example-mi355x.yaml", "--host", ""]
    )
    assert list(names("--host")) == ["n1", "n2", "n3", "gate"]
    assert list(names("--group")) == ["rack1", "rack2"]
    assert list(names("--runner")) == ["mi355x", "mi355x-disagg"]
    names = names_here(["invoke", "logs", "--inventory", f"{ROOT}/inventories/example-mi355x.yaml", "--host", ""])
    assert list(names("--host")) == [f"mi355x-0{number}" for number in range(1, 5)]


def shell(argv: list[str], text: str, **more: str) -> list[str]:
    env = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", **more}
    ran = subprocess.run([*argv, text], cwd=ROOT, env=env, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.split()


def bash(line: list[str], **more: str) -> list[str]:
    words = " ".join(f"'{word}'" for word in line)
    text = (
        "source <(invoke completion --shell bash); complete -p invoke inv >/dev/null || exit 1\n"
        f"COMP_WORDS=({words}); COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))\n"
        '_fleet_complete invoke "${COMP_WORDS[COMP_CWORD]}" ""; printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    return shell(["bash", "--norc", "-c"], text, **more)


def test_bash_completes_keys_hosts_groups_and_runs(tmp_path: Path) -> None:
    (tmp_path / "20260101-000000-some-key-abcdef").mkdir()
    keys = sorted(path.stem for path in (ROOT / "recipes").glob("*.yaml"))
    assert sorted(bash(["invoke", "sweep", "--config", ""])) == keys
    hosts = bash(["invoke", "ps", "--inventory", "inventories/example-mi355x.yaml", "--limit", ""])
    assert "mi355x-01" in hosts
    runs = bash(["invoke", "logs", "--run", "2026"], INVOKE_FLEET_RESULTS=str(tmp_path))
    assert bash(["invoke", "plan", "--diff", "2026"], INVOKE_FLEET_RESULTS=str(tmp_path)) == runs
    assert bash(["invoke", "sweep", "--resume", "2026"], INVOKE_FLEET_RESULTS=str(tmp_path)) == runs
    assert runs == ["20260101-000000-some-key-abcdef"]
    assert sorted(bash(["invoke", "sweep", "--rerun", ""])) == ["all", "failed", "incomplete"]


def test_bash_completes_last_failed_where_a_host_has_failed(tmp_path: Path) -> None:
    line = ["invoke", "ps", "--inventory", "inventories/example-mi355x.yaml", "--limit", "@"]
    assert bash(line, INVOKE_FLEET_RESULTS=str(tmp_path)) == []
    lastfailed.write(tmp_path, "health", ["mi355x-01"])
    assert bash(line, INVOKE_FLEET_RESULTS=str(tmp_path)) == ["@last-failed"]
    lastfailed.write(tmp_path, "health", [])
    assert bash(line, INVOKE_FLEET_RESULTS=str(tmp_path)) == []


def test_bash_is_told_nothing_of_a_broken_inventory(tmp_path: Path) -> None:
    broken = tmp_path / "inventory.yaml"
    broken.write_text("hosts: [")
    assert bash(["invoke", "ps", "--inventory", str(broken), "--limit", ""]) == []


def test_bash_itself_calls_it_at_the_tab_key(tmp_path: Path) -> None:
    """An interactive bash, a pseudo-terminal and some Tabs: readline splits the words, not this test."""
    import pty
    import select
    import termios

    lastfailed.write(tmp_path, "health", ["mi355x-01"])
    child, terminal = pty.fork()
    if not child:
        os.chdir(ROOT)
        os.environ.update(PATH=f"{BIN}:{os.environ['PATH']}", PS1="> ", TERM="dumb", INVOKE_FLEET_RESULTS=str(tmp_path))
        termios.tcsetwinsize(0, (25, 250))
        os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
    seen = b""
    try:
        os.write(terminal, b"source <(invoke completion --shell bash); echo rea''dy\n")
        for awaited, then in (
            (b"ready", b"invoke sweep --config=dsv4-fp4-mi355x-v\t"),
            (b"=dsv4-fp4-mi355x-vllm", b" --inventory inventories/example-mi355x.yaml --limit @la\t"),
            (b"--limit @last-failed ", b"--li\t"),
            (b"--limit @last-failed --limit ", b"rack1:mi355x-0\t1,@l\t"),
            (b"rack1:mi355x-01,@last-failed", b""),
        ):
            while awaited not in seen:
                assert select.select([terminal], [], [], 30)[0], seen
                seen += os.read(terminal, 4096).replace(b"\x07", b"")
            os.write(terminal, then)
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(terminal)


def test_zsh_completes_keys() -> None:
    if not shutil.which("zsh"):
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no zsh here")
    text = (
        "compdef() { }; compadd() { print -l $found }\n"
        "source <(invoke completion --shell zsh)\n"
        "words=(invoke sweep --config ''); CURRENT=4; _fleet_complete\n"
    )
    keys = sorted(path.stem for path in (ROOT / "recipes").glob("*.yaml"))
    assert sorted(shell(["zsh", "-fc"], text)) == keys


@pytest.mark.parametrize("flag", [[], ["--shell", "fish"]])
def test_other_shells_are_refused(flag: list[str]) -> None:
    argv = [BIN / "invoke", "completion", *flag]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "bash" in done.stderr
    assert "Traceback" not in done.stderr
