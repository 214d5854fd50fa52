"""stdout and stderr at their edges: full, closed, ASCII only. As processes, and the streams by themselves."""

from __future__ import annotations

import ast
import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from fleet import ui
from fleet.streams import PLAIN, OutputLost, Stderr, Stdout, _plain
from tests.unit.describing import ROOT, VLLM

EXAMPLE = "inventories/example-mi355x.yaml"
PLAN = ["plan", "--config", VLLM, "--inventory", EXAMPLE]
LOST = "stdout cannot be written: No space left on device\nfree some space there, or send the output elsewhere\n"


def shell(line: str, *words: str, folder: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    """`line` is bash's, in which "$@" is invoke with `words`."""
    argv = ["bash", "-c", line, "_", sys.executable, "-m", "invoke", *words]
    env = {**os.environ, **environment}
    return subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", [PLAN, ["--list"], ["--help", "plan"], ["completion", "--shell", "bash"]], ids=str)
def test_a_full_stdout_is_one_message(words: list[str], unbuffered: str) -> None:
    done = shell('"$@" >/dev/full', *words, PYTHONUNBUFFERED=unbuffered)
    assert (done.returncode, done.stderr) == (1, LOST)


def test_nobody_left_to_tell() -> None:
    assert shell('"$@" >/dev/full 2>/dev/full', *PLAN).returncode == 1
    assert shell('"$@" 2>&-', "plan", "--config", "none").returncode == 2
    closed = shell('"$@" >&-', *PLAN)
    assert (closed.returncode, closed.stdout, closed.stderr) == (0, "", "")


@pytest.mark.parametrize("words", [["--list"], ["--help", "sweep"]], ids=str)
def test_a_pipe_that_is_closed_early_is_no_fault(words: list[str]) -> None:
    done = shell('"$@" | true; exit ${PIPESTATUS[0]}', *words, PYTHONUNBUFFERED="1")
    assert done.returncode in (0, 141)
    assert done.stderr == ""


def test_an_ascii_stdout_gets_the_same_plan_in_ascii() -> None:
    whole, plain = (shell('"$@"', *PLAN, PYTHONIOENCODING=encoding) for encoding in ("utf-8", "ascii"))
    assert (plain.returncode, plain.stderr) == (0, "")
    assert "×" in whole.stdout
    assert plain.stdout == whole.stdout.replace("×", "x").replace("±", "+/-")
    assert plain.stdout.isascii()


def test_an_ascii_stderr_says_what_is_to_be_typed() -> None:
    done = shell('"$@"', "sweep", "–-config", "K", PYTHONIOENCODING="ascii")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "type: invoke sweep --config K"


def test_a_locale_without_unicode() -> None:
    done = shell('"$@"', *PLAN, LC_ALL="POSIX", PYTHONCOERCECLOCALE="0", PYTHONUTF8="0")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_working_directory_that_is_gone(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    done = shell('rmdir "$PWD"; "$1" -m invoke -r "$ROOT" "${@:4}"', *PLAN, folder=gone, ROOT=str(ROOT))
    assert done.returncode == 2
    assert done.stderr == "the folder that this shell stands in is gone\ntype: cd FOLDER, and the command again\n"


def test_json_is_never_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    for encoding, written in (("ascii", b"\\u00d7"), ("utf-8", "×".encode())):
        raw = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))
        ui.as_json({"gpus": "8 ×"})
        assert written in raw.getvalue()
        assert json.loads(raw.getvalue()) == {"gpus": "8 ×"}


class Failing(io.StringIO):
    """A stream of which every use fails."""

    def __init__(self, error: OSError) -> None:
        super().__init__()
        self.error = error

    def write(self, text: str) -> int:
        raise self.error

    def flush(self) -> None:
        raise self.error


def test_stdout_tells_its_own_failures_from_others() -> None:
    for act in (lambda stream: stream.write("x"), lambda stream: stream.flush()):
        with pytest.raises(OutputLost, match="No space"):
            act(Stdout(Failing(OSError(28, "No space left on device"))))
        with pytest.raises(BrokenPipeError):
            act(Stdout(Failing(BrokenPipeError(32, "Broken pipe"))))
        act(Stderr(Failing(OSError(28, "No space left on device"))))
    assert not Stdout(io.StringIO()).isatty()


def test_what_an_encoding_lacks() -> None:
    assert _plain(UnicodeEncodeError("ascii", "8 ×…ü!", 2, 5, "")) == ("x...?", 5)


@pytest.mark.parametrize("path", [ROOT / "tasks.py", *(ROOT / "fleet").rglob("*.py")], ids=lambda path: path.name)
def test_every_character_of_ours_has_a_plain_one(path: Path) -> None:
    """Of those that messages and tables hold; the guard and the YAML reader name others that people type."""
    if path.name in ("advice.py", "yamlfile.py") or "doubles" in path.parts:
        return
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    docstrings = [node.value for node in nodes if isinstance(node, ast.Expr)]
    texts = [node.value for node in nodes if isinstance(node, ast.Constant) and node not in docstrings]
    assert {char for text in texts for char in str(text) if not char.isascii()} <= set(PLAIN)


def test_a_terminal_that_hung_up_is_written_to_no_more_and_a_file_still_is(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys; from fleet.front import ended_like_interrupted\n"
        "with ended_like_interrupted():\n"
        "    try: print('up', flush=True); signal.pause()\n"
        "    except KeyboardInterrupt: print('told', flush=True); os.write(int(sys.argv[1]), b'ended')\n"
    )
    done = tmp_path / "done"
    ours, its = pty.openpty()
    with done.open("wb") as file:
        number = file.fileno()
        argv = ["setsid", "--ctty", "--wait", sys.executable, "-c", program, str(number)]
        running = subprocess.Popen(argv, stdin=its, stdout=its, stderr=its, pass_fds=[number], cwd=ROOT)
    os.close(its)
    assert os.read(ours, 10).startswith(b"up")
    os.close(ours)
    running.wait(30)
    assert done.read_bytes() == b"ended"


def test_a_hang_up_that_no_terminal_sent_is_told_where_it_was_started() -> None:
    program = (
        "import os, signal; from fleet.front import ended_like_interrupted\n"
        "with ended_like_interrupted():\n"
        "    try: os.kill(os.getpid(), signal.SIGHUP)\n"
        "    except KeyboardInterrupt: print('told')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert (done.stdout, done.stderr) == ("told\n", "")
