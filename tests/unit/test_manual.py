"""Help texts as flags, and the flags of a plan that a help does not list."""

from __future__ import annotations

import argparse
import sys

import pytest

from fleet import manual
from fleet.model import load
from fleet.model.part import Help
from fleet.plan import Plan, build, steps
from tests import interop
from tests.world import ROOT, a_plan

sys.path.insert(0, str(ROOT / "fleet" / "lab" / "doubles"))
from atom.benchmarks.bench_flags import BENCH_FLAGS
from atom.entrypoints.server_flags import SERVER_FLAGS
from atomesh import FLAGS as ROUTER_FLAGS
from double.flags import Flag, make_parser
from vllm.bench_flags import BENCH_FLAGS as VLLM_BENCH_FLAGS
from vllm.serve_flags import SERVE_FLAGS

ARGPARSE = """\
usage: openai_server.py [-h] [--model MODEL] [-tp N]
                        [--enable-tbo [{prefill,all}]] --needed NEEDED
       --also-needed X

ATOM's server. A line of prose may name a flag:
--not-a-flag-of-prose is one by its place only

options:
  -h, --help            show this help message and exit
  --model MODEL         Model name.
  --tensor-parallel-size TENSOR_PARALLEL_SIZE, -tp TENSOR_PARALLEL_SIZE
                        Ranks; see
                        --pipeline-parallel-size, which is told here only
  --enable_prefix_caching, --no-enable_prefix_caching, --no-enable-prefix-caching
                        On by default.
  --kv_cache_dtype {bf16,fp8}, --kv-cache-dtype {bf16,fp8}
  --enable-tbo [{prefill,all}]
  --metadata [KEY=VALUE ...]
  --goodput SLO [SLO ...]
  --enforce-eager       Off, -1 means never.
"""

CLAP = """\
High-performance router

Usage: atomesh launch [OPTIONS]

Options:
      --host <HOST>
          Host address

          [default: 0.0.0.0]

  -p, --port <PORT>
          - listens here

      --pd-disaggregation
          Prefill and decode apart
      --policy <POLICY>  Load balancing [default: cache_aware] [possible values: random, round_robin]
      --log-dir[=<DIR>]
  -h, --help
          Print help (see a summary with '-h')
"""


def test_what_argparse_prints() -> None:
    assert manual.read(ARGPARSE) == {
        "--also-needed": True,
        "-h": False,
        "--help": False,
        "--model": True,
        "--tensor-parallel-size": True,
        "-tp": True,
        "--enable_prefix_caching": False,
        "--no-enable_prefix_caching": False,
        "--no-enable-prefix-caching": False,
        "--kv_cache_dtype": True,
        "--kv-cache-dtype": True,
        "--enable-tbo": True,
        "--metadata": True,
        "--goodput": True,
        "--enforce-eager": False,
    }


def test_what_clap_prints_with_colours_too() -> None:
    expected = {
        "--host": True,
        "-p": True,
        "--port": True,
        "--pd-disaggregation": False,
        "--policy": True,
        "--log-dir": True,
        "-h": False,
        "--help": False,
    }
    assert manual.read(CLAP) == expected
    coloured = CLAP.replace("--host", "\x1b[1m--host\x1b[0m").replace("-p,", "\x1b[1m-p\x1b[0m,")
    assert manual.read(coloured) == expected


@pytest.mark.parametrize(
    "text", ["", "Traceback (most recent call last):\n  File x\nImportError: no GPU\n", "----\n---\n"]
)
def test_a_text_that_lists_no_flags(text: str) -> None:
    assert manual.read(text) == {}


TABLES: dict[str, tuple[list[Flag], bool]] = {
    "atom-server": (SERVER_FLAGS, True),
    "atom-bench": (BENCH_FLAGS, False),
    "vllm-serve": (SERVE_FLAGS, True),
    "vllm-bench-serve": (VLLM_BENCH_FLAGS, True),
    "atomesh": (ROUTER_FLAGS, False),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_doubles_help_is_exactly_what_its_parser_takes(name: str) -> None:
    flags, both = TABLES[name]
    parser = make_parser("double", flags, both_spellings=both)
    registered = {spelling: action.nargs != 0 for action in parser._actions for spelling in action.option_strings}
    assert manual.read(parser.format_help()) == registered


REAL = ("atom-server.ffdf3bb", "atom-bench.ffdf3bb", "vllm-serve-0.22.0", "vllm-bench-serve-0.22.0")


@pytest.mark.parametrize("name", [*REAL, "sglang-server-0.5.12"])
def test_the_flags_of_real_programs_are_read_back_from_argparses_own_text(name: str) -> None:
    """The tables say which flags the real programs register; the text is what argparse makes of them."""
    parser = argparse.ArgumentParser(prog="real", add_help=False, conflict_handler="resolve")
    for names in interop.spellings(name):
        unique = list(dict.fromkeys(names))
        parser.add_argument(*unique, dest=unique[0].strip("-").replace("-", "_"), help="What it does, " * 9)
    known = manual.read(parser.format_help())
    assert {spelling for names in interop.spellings(name) for spelling in names} == set(known)
    assert len(known) > 40


LIKE_ARGPARSE, LIKE_CLAP = Help(("x",)), Help(("x",), unlisted=frozenset(("--prefill",)), beginnings=False)
LIKE_VLLM = Help(("x",), loose=True)
KNOWN = ["--max-num-seqs", "--max-model-len", "-tp", "--compilation-config", "--kv_cache_dtype"]


@pytest.mark.parametrize(
    ("flag", "asked", "known"),
    [
        ("--max-num-seqs", LIKE_ARGPARSE, True),
        ("--max-num", LIKE_ARGPARSE, True),
        ("--max-m", LIKE_ARGPARSE, True),
        ("--max", LIKE_ARGPARSE, False),
        ("--max-num", LIKE_CLAP, False),
        ("--prefill", LIKE_CLAP, True),
        ("--prefill", LIKE_ARGPARSE, False),
        ("-tp", LIKE_ARGPARSE, True),
        ("-t", LIKE_ARGPARSE, False),
        ("--kv-cache-dtype", LIKE_ARGPARSE, False),
        ("--max_num_seqs", LIKE_ARGPARSE, False),
        ("--max_num_seqs", LIKE_VLLM, True),
        ("--compilation-config.mode", LIKE_VLLM, True),
        ("--compilation-config.mode", LIKE_ARGPARSE, False),
        ("--max_nun_seqs", LIKE_VLLM, False),
    ],
)
def test_which_spellings_a_program_takes(flag: str, asked: Help, known: bool) -> None:
    assert manual.knows(KNOWN, flag, asked) is known


def test_values_are_no_flags() -> None:
    argv = ["--conc=4", "-1", "--json", '{"a": -1}', "--x", "-0.5", "-", "--", "[1,2]", "-tp", "8", "--x"]
    assert manual.flags_of(argv) == ["--conc", "--json", "--x", "-tp"]


def test_each_seat_with_the_steps_that_have_its_flags() -> None:
    plan = a_plan("1p1d-mtp3", (4, 8))
    found = manual.lines(plan)
    assert [(line.seat, line.host, [number for number, _ in line.lines]) for line in found] == [
        ("prefill 0", "mi355x-01", [1]),
        ("decode 0", "mi355x-02", [2]),
        ("router", "mi355x-01", [3]),
        ("client", "mi355x-01", [4, 5]),
    ]
    by_number = {step.number: step.argv for step in steps(plan)}
    for line in found:
        for number, service in line.lines:
            assert by_number[number][-len(service.argv) + 1 :] == service.argv[1:]
    assert [line.help.asked for line in found] == [
        *[("python3", "-m", "atom.entrypoints.openai_server", "--help")] * 2,
        ("/usr/local/bin/atomesh", "launch", "--help"),
        ("python3", "-m", "atom.benchmarks.benchmark_serving", "--help"),
    ]
    assert "-m" not in found[0].flags
    assert found[0].flags["-tp"] == 1


def a_vllm_plan() -> Plan:
    inventory = load.inventory(ROOT / "inventories" / "lab.yaml")
    recipe = load.recipe("dsv4-fp4-mi355x-vllm-mtp", ROOT / "recipes")
    return build(recipe, inventory, ROOT / "recipes", trial=inventory.trial_for(asked=False))


def test_vllm_is_asked_for_all_its_flags() -> None:
    assert list(dict.fromkeys(line.help.asked for line in manual.lines(a_vllm_plan()))) == [
        ("vllm", "serve", "--help=all"),
        ("vllm", "bench", "serve", "--help=all"),
    ]


@pytest.mark.parametrize("plan", [a_plan(None, (4, 256)), a_vllm_plan()], ids=["atom", "vllm"])
def test_the_doubles_know_every_flag_that_fleet_plans(plan: Plan) -> None:
    texts = {
        program: manual.read(make_parser("double", flags, both_spellings=both).format_help())
        for program, (flags, both) in {
            "atom.entrypoints.openai_server": TABLES["atom-server"],
            "atom.benchmarks.benchmark_serving": TABLES["atom-bench"],
            "launch": TABLES["atomesh"],
            "serve": TABLES["vllm-serve"],
            "bench": TABLES["vllm-bench-serve"],
        }.items()
    }
    for line in manual.lines(plan):
        program = next(word for word in line.help.argv if word in texts)
        assert len(line.flags) > 5
        assert line.unknown(texts[program]) == ()


def test_an_unknown_flag_is_told_with_its_first_step_and_the_nearest_known_one() -> None:
    client = manual.lines(a_plan("1p1d-mtp3", (4, 8)))[-1]
    known = dict.fromkeys(client.flags, True) | {"--num-warmup": True, "--zzz": True}
    del known["--num-warmups"], known["--seed"]
    assert client.unknown(known) == (
        manual.Unknown("--seed", 4, ""),
        manual.Unknown("--num-warmups", 4, "--num-warmup"),
    )


def test_a_double_that_lacks_a_flag_does_not_list_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEET_DOUBLE_LACKS", "--max-num-seqs,-tp")
    known = manual.read(make_parser("double", SERVER_FLAGS, both_spellings=True).format_help())
    assert not {"--max-num-seqs", "--max_num_seqs", "-tp", "--tensor-parallel-size"} & set(known)
    assert "--max-model-len" in known
