import io
import re
import tarfile

import pytest

from fleet.errors import CommandFailed, Unreachable
from fleet.hosts.archive import fetch_tree
from fleet.hosts.base import Outcome, Transport
from fleet.hosts.fake import Fake, Reply, Unscripted, in_turn


def test_it_is_a_transport() -> None:
    host: Transport = Fake("n1")
    assert host.name == "n1"


@pytest.mark.parametrize(
    "matcher",
    [["docker", "ps"], ("docker",), r"ps -a$", re.compile("^docker"), lambda argv: argv[-1] == "-a"],
)
def test_matchers(matcher: object) -> None:
    host = Fake("n1", [(["other"], 9), (matcher, "yes")])  # type: ignore[list-item]
    assert host.run(["docker", "ps", "-a"]).out == "yes"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("out", (0, b"out", b"")),
        (b"\xff", (0, b"\xff", b"")),
        (3, (3, b"", b"")),
        ((1, "out"), (1, b"out", b"")),
        ((1, "out", "err"), (1, b"out", b"err")),
        (Reply(stderr="err"), (0, b"", b"err")),
        (Outcome("elsewhere", ("x",), 7, b"a", b"b", 1.5), (7, b"a", b"b")),
        (lambda argv, stdin: (0, stdin + argv[0].encode()), (0, b"inask", b"")),
    ],
)
def test_answers(answer: object, expected: tuple[int, bytes, bytes]) -> None:
    outcome = Fake("n1", [(["ask"], answer)]).run(["ask"], stdin=b"in", check=False)  # type: ignore[list-item]
    assert (outcome.code, outcome.stdout, outcome.stderr) == expected
    assert (outcome.host, outcome.argv) == ("n1", ("ask",))


def test_an_exception_is_raised() -> None:
    with pytest.raises(Unreachable, match="gone"):
        Fake("n1", [([], Unreachable("gone"))]).run(["true"])


def test_answers_in_turn() -> None:
    host = Fake("n1", [(["ps"], in_turn("first", 4, Unreachable("gone"), "last"))])
    assert host.run(["ps"]).out == "first"
    assert host.run(["ps"], check=False).code == 4
    with pytest.raises(Unreachable):
        host.run(["ps"])
    assert [host.run(["ps"]).out, host.run(["ps"]).out] == ["last", "last"]


def test_a_bad_code_is_an_error_unless_unchecked() -> None:
    host = Fake("n1", [(["false"], (2, "", "one\ntwo"))])
    with pytest.raises(CommandFailed, match=r"(?s)`false` ended with code 2\n  one\n  two"):
        host.run(["false"])
    assert host.run(["false"], check=False).code == 2


def test_an_unknown_command_is_named_with_what_is_known() -> None:
    with pytest.raises(Unscripted, match=r"(?s)n1: .*docker rm 'a b'.*\['docker', 'ps'\]"):
        Fake("n1", [(["docker", "ps"], "")]).run(["docker", "rm", "a b"])


def test_calls_are_kept_in_order() -> None:
    host = Fake("n1", [([], "")])
    host.run(["a", "b c"], stdin=b"in")
    host.stream(["d"], timeout=1, source=[b"1", b"2"])
    assert [(call.argv, call.stdin) for call in host.calls] == [(["a", "b c"], b"in"), (["d"], b"12")]
    assert host.calls[0].line == "a 'b c'"


def test_stream_gives_stdout_to_the_sink() -> None:
    got: list[bytes] = []
    outcome = Fake("n1", [([], Reply(0, b"x" * 100_000))]).stream(["cat"], timeout=1, sink=got.append)
    assert len(got) > 1
    assert (b"".join(got), outcome.stdout) == (b"x" * 100_000, b"")


def test_files_go_in_and_come_out(tmp_path: object) -> None:
    host = Fake("n1", files={"/run/logs/deep/b": b"two"})
    host.put(b"one", "/run/logs/a", mode=0o600)
    assert (host.files["/run/logs/a"], host.modes) == (b"one", {"/run/logs/a": 0o600})
    written = fetch_tree(host, "/run/logs", tmp_path)  # type: ignore[arg-type]
    assert {path.name: path.read_bytes() for path in written} == {"a": b"one", "b": b"two"}
    sink = io.BytesIO()
    host.get("/run/logs/a", sink)
    with tarfile.open(fileobj=io.BytesIO(sink.getvalue())) as archive:
        assert archive.getnames() == ["a"]
    with pytest.raises(CommandFailed, match="No such file"):
        host.get("/run/other", io.BytesIO())
