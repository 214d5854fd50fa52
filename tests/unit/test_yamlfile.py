"""Strict YAML: what is refused, with which line and words, and that nothing else than faults ever comes out."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet import sources
from fleet.errors import FileFaults
from fleet.model import load, yamlfile

INTEROP = Path(os.environ.get("FLEET_INTEROP", Path(__file__).parents[3] / "shared" / "interop"))


def faults(text: str | bytes) -> list[tuple[int, str]]:
    raw = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    try:
        document = yamlfile.parse_text(raw, "x.yaml")
    except FileFaults as error:
        return [(fault.line, fault.text) for fault in error.faults]
    return sorted((fault.line, fault.text) for fault in document.faults)


DIFFER = "a number for some readers, text for others"

ONE_FAULT = [
    ("a: no", 1, 'a: no  false for some readers, text for others; type false, or "no" for text'),
    ("a: Yes", 1, 'a: Yes  true for some readers, text for others; type true, or "Yes" for text'),
    ("a: ON", 1, 'a: ON  true for some readers, text for others; type true, or "ON" for text'),
    ("a: off", 1, 'a: off  false for some readers, text for others; type false, or "off" for text'),
    ("a: y", 1, 'a: y  true for some readers, text for others; type true, or "y" for text'),
    ("a: [1, N]", 1, 'N  false for some readers, text for others; type false, or "N" for text'),
    ("a: 1e3", 1, f'a: 1e3  {DIFFER}; type 1000, or "1e3" for text'),
    ("a: 1.5e-2", 1, f'a: 1.5e-2  {DIFFER}; type 0.015, or "1.5e-2" for text'),
    ("a: 012", 1, 'a: 012  an octal number for some readers; type 12, or "012" for text'),
    ("a: 0o14", 1, 'a: 0o14  a number in another base for some readers; type 12, or "0o14" for text'),
    ("a: 0x1F", 1, 'a: 0x1F  a number in another base for some readers; type 31, or "0x1F" for text'),
    ("a: 0b11", 1, 'a: 0b11  a number in another base for some readers; type 3, or "0b11" for text'),
    ("a: 9:30", 1, 'a: 9:30  a number to the base 60 for some readers; type "9:30" for text'),
    ("a: 1_000", 1, f'a: 1_000  {DIFFER}; type 1000, or "1_000" for text'),
    ("a: +5", 1, f'a: +5  {DIFFER}; type 5, or "+5" for text'),
    ("a: .5", 1, f'a: .5  {DIFFER}; type 0.5, or ".5" for text'),
    ("a: 2024-01-01", 1, 'a: 2024-01-01  a date for some readers; type "2024-01-01" for text'),
    ("a: .nan", 1, 'a: .nan  not a finite number for some readers; type ".nan" for text'),
    ("a: " + "9" * 30, 1, 'a: ' + "9" * 30 + '  too many digits for a number; type "99999999..." with quotes for text'),
    ("a: 1\nb: 2\na: 3", 3, "a  written twice in one mapping, first on line 1"),
    ("a: {b: 1, b: 2}", 1, "b  written twice in one mapping, first on line 1"),
    ("a:\n\tb: 1", 2, "a tab indents this line; type spaces"),
    ("a: &x 1", 1, "&x  anchors are not read; write the value out where it is used"),
    ("a: !!str 1", 1, "!!str  tags are not read; take it out"),
    ("a: {<<: 1}", 1, "<<  merge keys are not read; write the values out"),
    ("%YAML 1.1\n---\na: 1", 1, "directives (%YAML, %TAG) are not read; take them out"),
    ("a: 1\n---\nb: 2", 2, "a second document starts; one file holds one"),
    ("8: x", 1, '8  a key is text; type "8"'),
    ("true: x", 1, 'true  a key is text; type "true"'),
    ("on: x", 1, 'on  true for some readers, text for others; a key is text, type "on"'),
    ("? [a, b]\n: x", 1, "a key is text, a list was written"),
    ("a: “mtp”", 1, 'a: “mtp”  U+201C LEFT DOUBLE QUOTATION MARK at column 4; type "'),
    ("a:\n  b: mtр", 2, "b: mtр  U+0440 CYRILLIC SMALL LETTER ER at column 8; type p"),
    ("conс-list: 1", 1, "conс-list  U+0441 CYRILLIC SMALL LETTER ES at column 4; type c"),
    ("a: x\u00a0y", 1, "a: x y  U+00A0 NO-BREAK SPACE at column 5; type a space"),
    ("a: x\u200by", 1, "a: x\u200by  U+200B ZERO WIDTH SPACE at column 5; take it out"),
    ("a: ８", 1, "a: ８  U+FF18 FULLWIDTH DIGIT EIGHT at column 4; type 8"),
    ('a: "x\\u200b"', 1, 'a: "x\\u200b"  U+200B ZERO WIDTH SPACE is hidden in an escape; take it out'),
    ("a: 1 # \u202e", 1, "U+202E RIGHT-TO-LEFT OVERRIDE at column 8; take it out"),
    ("a: 1\0", 1, "U+0000 unnamed character at column 5; take it out"),
    ("\ufeffa: 1", 1, "the file starts with a byte order mark (U+FEFF); save it as UTF-8 without one"),
    ("a: 1\r\nb: 2\r\n", 1, "carriage return (U+000D) at the end of a line; save the file with plain line feeds"),
    (b"a: 1\nb: \xff\n", 2, "byte 0xff is not UTF-8; save the file as UTF-8"),
    ("", 0, "the file is empty"),
    (" \n\n", 0, "the file is empty"),
    ("# a comment\n", 0, "a mapping expected at the top, nothing but comments was written"),
    ("- a\n", 1, "a mapping expected at the top, a list was written"),
    ("a: [1\n", 2,
     "not YAML: while parsing a flow sequence (begun on line 1), expected ',' or ']', but got '<stream end>'"),
    ("a: b: c\n", 1, "not YAML: mapping values are not allowed here"),
    ("a: [" * 70, 1, "nested more than 64 deep"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "message"), ONE_FAULT)
def test_one_fault(text: str, line: int, message: str) -> None:
    assert faults(text) == [(line, message)]


def test_an_alias_is_told_once_and_its_anchor_too() -> None:
    assert [line for line, _ in faults("a: &x 1\nb: *x\n")] == [1, 2]


def test_all_faults_are_told_at_once() -> None:
    text = "a: no\nb: 012\na: mtр\nc:\n\td: 1\n"
    assert [line for line, _ in faults(text)] == [1, 2, 3, 3, 5]


def test_what_all_readers_agree_on_stays() -> None:
    text = (
        "a: 8\nb: -1\nc: 0.80\nd: true\ne: ~\nf:\ng: '012'\nh: \"no\"\ni: v0.22.0\nj: 1.2.3\nk: 087b82d9c1f6\nl: fp4\n"
        "m: rocm/atom-dev:nightly_202606101403\nnn: # café “x”\no: 8000:80\np: 10.77.0.1\nq: http://x:1/\n"
    )
    assert yamlfile.parse_text(text.encode(), "x").data == {
        "a": 8, "b": -1, "c": 0.8, "d": True, "e": None, "f": None, "g": "012", "h": "no", "i": "v0.22.0", "j": "1.2.3",
        "k": "087b82d9c1f6", "l": "fp4", "m": "rocm/atom-dev:nightly_202606101403", "nn": None, "o": "8000:80",
        "p": "10.77.0.1", "q": "http://x:1/",
    }  # fmt: skip
    assert faults(text) == []


def test_free_text_may_hold_any_letter_and_no_hidden_one() -> None:
    assert faults("- x\n") != []
    assert faults("a:\n  description:\n  - “größer” → schneller\n") == []
    assert faults("a:\n  description: 'x\u200by'\n") == [
        (2, "description: 'x\u200by'  U+200B ZERO WIDTH SPACE at column 18; take it out")
    ]


def test_lines_and_values_as_written() -> None:
    document = yamlfile.parse_text(b"a:\n  b:\n  - c: 1\n    d: 'x'\n  - {c: 2}\n", "x.yaml")
    assert [document.line("a"), document.line("a", "b"), document.line("a", "b", 0)] == [1, 2, 3]
    assert [document.line("a", "b", 0, "d"), document.line("a", "b", 1, "c")] == [4, 5]
    assert document.line("a", "b", 7, "nothing") == 2
    assert document.written("a", "b", 0, "d") == "'x'"
    assert document.written("a", "b", 1) == "{c: 2}"


def test_a_missing_file_names_the_near_ones(tmp_path: Path) -> None:
    (tmp_path / "lab.yaml").write_text("a: 1\n")
    with pytest.raises(FileFaults, match=r"no such file; did you mean lab\.yaml\?"):
        yamlfile.read(tmp_path / "lap.yaml")
    with pytest.raises(FileFaults, match="no such file"):
        yamlfile.read(tmp_path / "nowhere" / "lab.yaml")
    with pytest.raises(FileFaults, match="cannot be read: Is a directory"):
        yamlfile.read(tmp_path)


ENDLESS = "not a regular file; save what comes from it as a file, and name that"


def test_what_may_never_end_is_not_read(tmp_path: Path) -> None:
    pipe, link, socket_file = tmp_path / "pipe", tmp_path / "link.yaml", tmp_path / "s"
    os.mkfifo(pipe)
    link.symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(socket_file))
        kinds = {Path("/dev/zero"): "a device", link: "a device", pipe: "a pipe", socket_file: "a socket"}
        for path, kind in kinds.items():
            with pytest.raises(FileFaults) as error:
                load.inventory(path)
            assert error.value.faults == ((0, f"{kind}, {ENDLESS}"),)
    with pytest.raises(FileFaults, match="a device, not a regular file"):
        sources.document(link)
    with pytest.raises(FileFaults, match="cannot be read: Is a directory"):
        yamlfile.content(tmp_path)


def test_a_file_has_a_largest_size(tmp_path: Path) -> None:
    path = tmp_path / "big.yaml"
    path.touch()
    os.truncate(path, 16 * 1024 * 1024)
    assert len(yamlfile.content(path)) == 16 * 1024 * 1024
    os.truncate(path, 16 * 1024 * 1024 + 1)
    with pytest.raises(FileFaults) as error:
        yamlfile.content(path)
    assert error.value.faults == ((0, "more than 16 MiB: is it the right file?"),)


def test_numbers_in_groups_are_for_public_runner_files(tmp_path: Path) -> None:
    path = tmp_path / "runners.yaml"
    path.write_text("a: 2_063_837\n")
    assert yamlfile.read(path, grouped_numbers=True).data == {"a": 2063837}
    with pytest.raises(FileFaults):
        yamlfile.read(path)


@pytest.mark.skipif(not INTEROP.is_dir(), reason=f"no interop data at {INTEROP}")
@pytest.mark.parametrize("name", ["amd-master-subset.yaml", "runners.yaml"])
def test_public_files_read_as_a_plain_reader_reads_them(name: str) -> None:
    path = INTEROP / name
    assert yamlfile.read(path, grouped_numbers=name == "runners.yaml").data == yaml.safe_load(path.read_text())


PIECES = st.sampled_from(
    ["a", "b", ": ", "- ", "\n", "\n  ", "[", "]", "{", "}", ", ", '"', "'", "&x ", "*x", "!!str ",
     "? ", "|\n", ">", "---\n",
     "...\n", "#", "%YAML 1.1\n", "no", "012", "1e3", "\t", "\\U00110000", '"\\x', "<<",
     "~", "\u2028", "é", "\0", "@", "`"]
)  # fmt: skip


def document_or_faults(raw: bytes) -> None:
    """FileFaults is the one error that may come out, and it has something to tell."""
    try:
        document = yamlfile.parse_text(raw, "x.yaml")
    except FileFaults as caught:
        told = len(caught.faults)
    else:
        told = 1 if isinstance(document.data, dict) else 0
    assert told


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(max_size=60), st.lists(PIECES, max_size=25).map("".join)))
def test_any_text_is_a_document_or_faults(text: str) -> None:
    document_or_faults(text.encode("utf-8", "surrogatepass"))


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_a_document_or_faults(raw: bytes) -> None:
    document_or_faults(raw)
