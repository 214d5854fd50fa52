"""The guard, pure and as a process: one clear message, the right exit code, and no work for a plea for help."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from invoke.main import program

import tasks
from fleet import front
from fleet.advice import check, detour
from fleet.argv import NUMBERS, Flag, core_of, verbs_of
from fleet.lab.lab import MOST_NODES

ROOT = Path(__file__).parents[2]
VERBS = verbs_of(tasks.ns)
CORE = core_of(program)
KEY = "dsv4-fp4-mi355x-atom-disagg-mtp"
HUGE = "9" * 5000


def refused(line: str) -> str:
    refusal = check(["invoke", *line.split()], VERBS, CORE)
    assert refusal is not None, f"not refused: {line}"
    assert refusal.code == 2
    return str(refusal)


REFUSED = [
    # line, what, what to type next: that it accepts, too
    ("sweeep --config K", "no verb 'sweeep'; did you mean sweep?", "invoke sweep --config K"),
    ("config.expnd", "did you mean config.expand?", "invoke config.expand"),
    ("frobnicate", "no verb 'frobnicate'; there are:", "invoke --list"),
    ("lab", "lab is a group of verbs: lab.down, lab.install, lab.status, lab.up", "invoke lab.down --help"),
    ("--help swep", "did you mean sweep?", "invoke --help sweep"),
    ("health pss", "no verb 'pss'; did you mean ps?", "invoke health ps"),
    ("sweep --confg K --json", "sweep has no flag --confg; did you mean --config?", "invoke sweep --config K --json"),
    ("sweep --confg=K", "did you mean --config?", "invoke sweep --config K"),
    ("sweep -c K", "sweep has no flag -c; did you mean --config?", "invoke sweep --config K"),
    ("sweep --zzz", "sweep has no flag --zzz", "invoke sweep --help"),
    ("ps --config K", "ps has no flag --config", "invoke ps --help"),
    ("--zzz", "invoke has no flag --zzz", "invoke --help"),
    ("--lst", "invoke has no flag --lst; did you mean --list?", "invoke --list"),
    ("sweep --echo", "--echo is a flag of invoke itself, not of sweep", "invoke --echo sweep"),
    ("ps --hide both --json", "--hide is a flag of invoke itself, not of ps", "invoke --hide both ps --json"),
    ("sweep --config", "sweep: --config needs a value", "invoke sweep --config KEY"),
    ("sweep --config --json", "--config needs a value, and --json follows", "invoke sweep --config KEY --json"),
    ("logs --tail", "logs: --tail needs a value", "invoke logs --tail 100"),
    ("logs --tail many", "--tail takes a whole number from 0 to 1000000000, 'many' was", "invoke logs --tail 100"),
    ("logs --tail -5", "--tail takes a whole number from 0 to 1000000000, '-5' was given", "invoke logs --tail 100"),
    ("logs --tail=-5", "'-5' was given", "invoke logs --tail 100"),
    ("logs --tail １２", "--tail takes a whole number from 0 to 1000000000, '１２' was given", "invoke logs --tail 12"),
    ("logs --tail 1_0", "'1_0' was given", "invoke logs --tail 100"),
    (f"logs --tail {HUGE}", f"'{'9' * 200}… (5000 characters)' was given", "invoke logs --tail 100"),
    ("lab.up --nodes 0", "lab.up: --nodes takes a whole number from 1 to 99, '0' was given", "invoke lab.up --nodes 3"),
    ("lab.up --nodes 100", "'100' was given", "invoke lab.up --nodes 3"),
    ("plan --conc 4,x", "plan: --conc takes a whole number from 1 to 1000000, 'x' was", "invoke plan --conc 4,8"),
    ("plan --conc 4 --conc 0", "'0' was given", "invoke plan --conc 4 --conc 4,8"),
    ("plan --conc １２８", "'１２８' was given", "invoke plan --conc 128"),
    (f"plan --conc {HUGE} --json", "9… (5000 characters)' was given", "invoke plan --conc 4,8 --json"),
    ("-D deep --list", "invoke: -D takes a whole number from 0 to 99, 'deep' was given", "invoke -D 1 --list"),
    ("sweep --json=yes --config K", "--json takes no value, 'yes' was given", "invoke sweep --json --config K"),
    ("sweep --config A --config B", "sweep: --config is given twice", "invoke sweep --config A"),
    ("--config K sweep --json", "--config before the verb", "invoke sweep --config K --json"),
    ("--config=K sweep", "--config before the verb", "invoke sweep --config K"),
    ("--config my.yaml sweep", "-f FILE.yaml", "invoke sweep --config my.yaml"),
    ("--config K", "--config before the verb", "invoke sweep --config K"),
    ("-f settings.txt sweep", "-f FILE.yaml", "invoke sweep --config settings.txt"),
    ("--inventory a.yaml sweep --json", "--inventory belongs to sweep", "invoke sweep --inventory a.yaml --json"),
    ("--trial sweep --config K", "--trial belongs to sweep", "invoke sweep --trial --config K"),
    ("sweep K", "sweep: 'K' stands alone", "invoke sweep --config K"),
    (
        "inventory.add mi355x-04",
        "'mi355x-04' stands alone, and verbs take no plain words; is it a host?",
        "invoke inventory.add --host mi355x-04",
    ),
    ("inventory.add --host a b", "'b' stands alone; --host takes one value", "invoke inventory.add --host a,b"),
    (
        "inventory.add --host a --dry",
        "inventory.add has no flag --dry; did you mean --dry-run?",
        "invoke inventory.add --host a --dry-run",
    ),
    ("logs node1", "'node1' stands alone, and verbs take no plain words; is it a host?", "invoke logs --host node1"),
    ("sweep --json K", "'K' stands alone", "invoke sweep --json --config K"),
    ("sweep --config K --json yes", "sweep: --json takes no value", "invoke sweep --config K --json"),
    ("sweep --config K extra", "'extra' belongs to no flag", "invoke sweep --help"),
    ("sweep --config K --conc 4 8", "'8' stands alone; --conc takes one value", "invoke sweep --config K --conc 4,8"),
    ("sweep --config K -- --json", "nothing after -- reaches a verb: --json", "invoke sweep --config K --json"),
    ("sweep --config --", "sweep: --config needs a value", "invoke sweep --config KEY"),
    ("sweep --config K -- more", "nothing after -- reaches a verb: more", "invoke sweep --config K"),
    ("--dry sweep --config K", "the dry run is a verb: plan", "invoke plan --config K"),
    ("sweep --config K --dry", "the dry run is a verb: plan", "invoke plan --config K"),
    ("-eR sweep", "the dry run is a verb: plan", "invoke plan --config KEY"),
    ("--list stages", "no group of verbs 'stages'; there are: config, inventory, lab, stage", "invoke --list stage"),
    ("--list zzz", "no group of verbs 'zzz'", "invoke --list"),
    (
        "sweep --config K --no-fail-fast",
        "no flag --no-fail-fast; without --fail-fast it is off",
        "invoke sweep --config K",
    ),
    ("sweep --no-fail-fst", "sweep has no flag --no-fail-fst; without --fail-fast it is off", "invoke sweep"),
    ("sweep --no-config", "sweep has no flag --no-config; did you mean --config?", "invoke sweep --config KEY"),
    ("help paln", "no verb 'paln'; did you mean plan?", "invoke --help plan"),
    ("help stage imag", "did you mean stage.image?", "invoke --help stage.image"),
    ("help frobnicate", "no verb 'frobnicate'", "invoke --list"),
    ("help --list", "help takes the name of a verb", "invoke --list"),
    ("–-config K sweep", "–-config starts with EN DASH (U+2013)", "invoke sweep --config K"),
    ("sweep –-config K", "–-config starts with EN DASH (U+2013)", "invoke sweep --config K"),
    ("sweep —config K", "—config starts with EM DASH (U+2014)", "invoke sweep --config K"),
    ("sweep -–config K", "-–config starts with EN DASH (U+2013)", "invoke sweep --config K"),
    ("sweep −−conifg K", "−−conifg starts with MINUS SIGN (U+2212)", "invoke sweep --config K"),
    ("sweep – K", "starts with EN DASH", "invoke sweep --config K"),
    ("stage image", "a verb of a group is one word: stage.image", "invoke stage.image"),
    ("lab up --nodes 2", "a verb of a group is one word: lab.up", "invoke lab.up --nodes 2"),
    ("lab staus", "a verb of a group is one word: lab.status", "invoke lab.status"),
    ("health lab up", "a verb of a group is one word: lab.up", "invoke health lab.up"),
    ("sweep --tail 5", "sweep has no flag --tail; it belongs to logs", "invoke sweep --help"),
    ("--tail 5", "--tail is a flag of logs, and no verb is given", "invoke logs --tail 5"),
    ("--json", "--json is a flag of plan, sweep, ", "invoke --list"),
    ("plan -", "plan: - stands alone; nothing is read from stdin", "invoke plan"),
    ("plan --inv a.yaml", "plan has no flag --inv; did you mean --inventory?", "invoke plan --inventory a.yaml"),
    ("sweep --colour x", "sweep has no flag --colour", "invoke sweep --help"),
    ("--verbose plan", "invoke has no flag --verbose", "invoke --help"),
    ("exec uptime", "is it meant for --cmd?", "invoke exec --cmd uptime"),
    ("exec df / --json", "is it meant for --cmd?", "invoke exec --cmd 'df /' --json"),
    ("exec --json -- df -x", "nothing after -- reaches a verb: df -x", "invoke exec --json --cmd 'df -x'"),
    ("cp tune.sh /tmp/", "is it meant for --source?", "invoke cp --source tune.sh --target /tmp/"),
    ("down latest", "is it meant for --run?", "invoke down --run latest"),
    ("logs decode0", "is it meant for --role?", "invoke logs --role decode0"),
    ("lab.up 4", "is it meant for --nodes?", "invoke lab.up --nodes 4"),
    ("completion zsh", "is it meant for --shell?", "invoke completion --shell zsh"),
    ("sweep K 4,8", "is it the config key?", "invoke sweep --config K --conc 4,8"),
    ("sweeep K --confg L", "no verb 'sweeep'; did you mean sweep?", "invoke sweep --help"),
    ("swep --json K --trail", "no verb 'swep'", "invoke sweep --json --config K --trial"),
    ("plan --conc= --json", "--conc was given an empty value", "invoke plan --conc 4,8 --json"),
    ("-f nofile.txt", "-f FILE.yaml", "invoke sweep --config nofile.txt"),
]


@pytest.mark.parametrize(("line", "what", "next_line"), REFUSED, ids=[case[0][:60] for case in REFUSED])
def test_refuses_with_what_is_wrong_and_what_to_type(line: str, what: str, next_line: str) -> None:
    said = refused(line)
    assert what in said
    assert advised(said) == next_line
    assert check(shlex.split(next_line), VERBS, CORE) is None


def advised(said: str) -> str:
    """The command that the last line of a message says to type."""
    return said.splitlines()[-1].partition(": ")[2].partition("   ")[0]


def test_an_empty_word_is_a_variable_that_is_not_set() -> None:
    for argv, line in ((["plan", "", "--json"], "invoke plan --json"), ([""], "invoke")):
        said = str(check(["invoke", *argv], VERBS, CORE))
        assert "an empty word; is a shell variable not set?" in said
        assert advised(said) == line


def test_a_flag_and_its_value_in_one_pair_of_quotes() -> None:
    said = str(check(["invoke", "plan", "--config K", "--json"], VERBS, CORE))
    assert said == "plan: '--config K' is one word; its quotes are too many\ntype: invoke plan --config K --json"


def test_what_does_not_print_is_escaped() -> None:
    said = str(check(["invoke", "plan", "--zz\nzz\x1b[2J"], VERBS, CORE))
    assert said == "plan has no flag --zz\\nzz\\x1b[2J\nsee its flags: invoke plan --help"


def test_a_line_that_is_too_long_to_type_is_not_advised() -> None:
    argv = ["invoke", "sweeep", "--config", HUGE, "--arm", HUGE, "--limit", HUGE, "--inventory", HUGE, "--limit", HUGE]
    assert str(check(argv, VERBS, CORE)) == "no verb 'sweeep'; did you mean sweep?\nsee: invoke --list"


PARTS = [
    *VERBS,
    *sorted({flag for verb in VERBS.values() for flag in verb.flags}),
    *("lab", "help", "swep", "K", "latest", "node1", "4", "4,8", "-5", "１２", "many", "", "-", "--", "–-config", "—"),
    *("x.yaml", "a b", "--config K", "-x", "-f", "-h", "-D", "--list", "--help", "--dry", "--echo", "--no-json"),
    *("--confg", "--con=K", "--zzz=1", "--config=", "--conc=0", "--json=yes", "--tail=-5"),
    *(HUGE, "x" * 5000, "y " * 2500),
]


@given(st.lists(st.sampled_from(PARTS), min_size=1, max_size=7))
@settings(max_examples=600, deadline=None, derandomize=True)
def test_whatever_is_typed_what_the_guard_says_to_type_is_accepted(words: list[str]) -> None:
    refusal = check(["invoke", *words], VERBS, CORE)
    if refusal is None:
        return
    said = str(refusal)
    assert advised(said).startswith("invoke")
    assert check(shlex.split(advised(said)), VERBS, CORE) is None, said
    assert max(map(len, said.splitlines())) < 1300


ACCEPTED = [
    f"sweep --config {KEY}",
    f"sweep --config={KEY} --conc 4 --conc 8,16 --fail-fast",
    f"plan --config {KEY} --arm x --trial",
    "health ps",
    "health --json ps --json",
    "health --limit a --limit b,c",
    "logs --tail 0",
    "logs --tail=5 --role decode0",
    "plan --conc 4,8 --conc 1000000",
    "lab.up --nodes 99",
    "config.expand --config K --from master.yaml --evals none",
    "stage --config K",
    "stage.image --config K",
    "-f settings.yaml sweep --config K",
    "-fsettings.yaml ps",
    "-e -d ps",
    "-ed ps",
    "ps --debug",
    "-r . -c tasks ps",
    "-D 1 --list",
    "-D1 -l",
    "--list",
    "-l stage",
    "--list --list-format json",
    "--help",
    "--help sweep",
    "-h sweep",
    "--version",
    "--print-completion-script bash",
    "--complete -- invoke sweep --con",
    "--complete -- invoke swe",
    "lab.up --nodes 4",
    "sweep --config sweep",
]


@pytest.mark.parametrize("line", ACCEPTED)
def test_leaves_sound_lines_to_invoke(line: str) -> None:
    argv = ["invoke", *line.split()]
    assert check(argv, VERBS, CORE) is None
    assert detour(argv, VERBS, CORE) is None


DETOURS = [
    ("", ["--list"]),
    ("help", ["--list"]),
    ("help sweep", ["--help", "sweep"]),
    ("help stage image", ["--help", "stage.image"]),
    ("help lab.up", ["--help", "lab.up"]),
    ("sweep --help", ["--help", "sweep"]),
    ("sweep -h", ["--help", "sweep"]),
    ("sweep --config --help", ["--help", "sweep"]),
    ("sweep --help --config X", ["--help", "sweep"]),
    ("sweep --config X --help", ["--help", "sweep"]),
    ("sweep --config plan --help", ["--help", "sweep"]),
    ("sweep --nonsense --help", ["--help", "sweep"]),
    ("health ps --help", ["--help", "ps"]),
    ("stage --help", ["--help", "stage"]),
]


@pytest.mark.parametrize(("line", "instead"), DETOURS, ids=[case[0] or "nothing" for case in DETOURS])
def test_pleas_for_help_do_no_work(line: str, instead: list[str]) -> None:
    assert detour(["invoke", *line.split()], VERBS, CORE) == instead


def test_verbs_come_from_the_collection() -> None:
    assert VERBS["sweep"].flags["--limit"] == Flag("--limit", many=True)
    assert VERBS["sweep"].flags["--conc"] == Flag("--conc", many=True, number=NUMBERS["--conc"])
    assert VERBS["logs"].flags["--tail"] == Flag("--tail", number=NUMBERS["--tail"])
    assert NUMBERS["--nodes"].most == MOST_NODES
    assert VERBS["stage"].flags == VERBS["stage.image"].flags
    assert CORE.flags["-f"] == CORE.flags["--config"] == Flag("--config")


def test_no_verb_takes_a_positional_or_a_short_flag() -> None:
    for primary in tasks.ns.task_names:
        assert list(tasks.ns[primary].positional) == [], primary
        assert all(name.startswith("--") for name in VERBS[primary].flags), primary


def test_looking_at_the_collection_leaves_its_help_texts() -> None:
    verbs_of(tasks.ns)
    assert tasks.ns["sweep"].help["config"]


# As a process: the real program, in the project's folder.


def invoke(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "invoke", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize(
    "line",
    ["sweeep", "sweep --confg K", "sweep --config", "--config K sweep", "sweep K", "sweep --config K -- x", "-R ps"],
)
def test_process_ends_with_2_and_one_message(line: str) -> None:
    done = invoke(*line.split())
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 2
    assert done.stderr.strip() == refused(line)


@pytest.mark.parametrize("line", ["sweep --help", "sweep --config --help", "sweep --help --config X", "help sweep"])
def test_process_prints_invokes_help_of_the_verb(line: str) -> None:
    done = invoke(*line.split())
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.splitlines()[0].startswith("Usage: ")
    assert " sweep " in done.stdout.splitlines()[0]
    assert "config key: the name of a file in recipes/" in done.stdout


@pytest.mark.parametrize("line", ["", "help", "--list", "-l"])
def test_process_lists_every_verb(line: str) -> None:
    done = invoke(*line.split())
    assert done.returncode == 0, done.stderr
    assert set(tasks.ns.task_names) <= set(re.findall(r"^  (\S+)", done.stdout, re.M))


def test_process_completes() -> None:
    flags = invoke("--complete", "--", "invoke", "sweep", "--con")
    assert flags.returncode == 0
    assert {"--config", "--conc"} <= set(flags.stdout.split())
    script = invoke("--print-completion-script", "bash")
    assert script.returncode == 0
    assert "complete -F" in script.stdout


def test_listing_imports_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['invoke', '--list']\n"
        "from invoke.main import program\n"
        "try: program.run()\n"
        "except SystemExit as end: assert not end.code\n"
        "heavy = {'pydantic', 'fabric', 'paramiko', 'rich', 'tenacity', 'IPython', 'fleet.verbs'} & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "sweep" in done.stdout


def test_a_closed_pipe_is_no_fault() -> None:
    listing = subprocess.Popen(
        [sys.executable, "-m", "invoke", "--list"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert listing.stdout is not None
    assert listing.stderr is not None
    listing.stdout.close()
    assert listing.stderr.read() == b""
    listing.stderr.close()
    listing.wait(60)


WAITING_TASKS = """
import time
from invoke import Collection
from fleet.errors import ServiceDied
from fleet.front import verb
from fleet import front
from fleet.guard import guard

@verb({})
def wait(c):
    print("waiting", flush=True)
    time.sleep(60)

@verb({})
def died(c):
    raise ServiceDied("decode 0 died", where="node2", hint="see: invoke logs")

@verb({})
def broken(c):
    raise ZeroDivisionError("division by zero")

@verb({})
def partly(c):
    return 1

@verb({})
def needy(c):
    import no_such_package

ns = Collection(wait, died, broken, partly, needy)
guard(ns)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "tasks.py").write_text(WAITING_TASKS)
    return tmp_path


def start(project: Path, verb: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "invoke", verb],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("words", ["plan --config K --limit=", "plan --config= --json", "down --run ,"])
def test_an_empty_value_is_no_value(words: str) -> None:
    """As of a shell variable that is not set: it must not mean everything."""
    found = invoke(*words.split())
    assert (found.returncode, found.stdout) == (2, "")
    assert "was given an empty value; is a shell variable not set?\ntype: invoke " in found.stderr


@pytest.mark.parametrize("written", ["run: 5", "tasks: 5", "fleet: {1: 2}", "1: 2"])
def test_what_invoke_makes_of_its_settings_is_one_message(project: Path, written: str) -> None:
    tasks = (ROOT / "tasks.py").read_text()
    (project / "tasks.py").write_text(tasks)
    (project / "invoke.yaml").write_text(written + "\n")
    _, stderr = (waiting := start(project, "plan")).communicate(timeout=60)
    assert waiting.returncode == 2
    assert "Traceback" not in stderr


def test_a_settings_file_that_is_not_there_and_a_variable_of_no_setting_are_told() -> None:
    found = invoke("-f", "nofile.yaml", "plan", "--config", KEY, INVOKE_FLEET_INVENTROY="x")
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr.splitlines() == [
        "nofile.yaml: 1 fault",
        "      no such file; -f and INVOKE_RUNTIME_CONFIG name a file of settings; did you mean invoke.yaml?",
        "environment: 1 fault",
        "      INVOKE_FLEET_INVENTROY  no such setting; did you mean INVOKE_FLEET_INVENTORY?",
        "nothing was started",
    ]
    assert invoke("--list", INVOKE_RUNTIME_CONFIG="nofile.yaml").returncode == 0


def test_the_file_of_f_is_read_and_its_faults_have_lines(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("fleet:\n  inventory: of-the-file.yaml\n  timeouts: {connect: 10}\n")
    variables = {"INVOKE_FLEET_TIMEOUTS_CONNECT": "5s", "INVOKE_FLEET_INVENTORY": "of-the-variable.yaml"}
    found = invoke("-f", str(path), "plan", "--config", KEY, **variables)
    assert "inventory: of-the-file.yaml: no such file" in found.stderr
    assert found.returncode == 2
    path.write_text("fleet:\n  recipes: 5\n")
    found = invoke("plan", "--config", KEY, INVOKE_RUNTIME_CONFIG=str(path), **variables)
    assert found.stderr == f"{path}: 1 fault\n  :2  recipes: 5  a path expected\nnothing was started\n"
    found = invoke("plan", "--config", KEY, **variables)
    assert "inventory: of-the-variable.yaml: no such file" in found.stderr


def test_a_core_flag_that_invoke_cannot_read_is_one_message() -> None:
    found = invoke("-F", "xml", "--list")
    assert found.returncode == 2
    assert found.stderr.startswith("Invoke cannot work with its settings or its own flags: AttributeError: ")
    assert "Traceback" not in found.stderr


@pytest.mark.parametrize("one", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupts_end_with_130(project: Path, one: signal.Signals) -> None:
    waiting = start(project, "wait")
    assert waiting.stdout is not None
    assert waiting.stdout.readline() == "waiting\n"
    began = time.monotonic()
    waiting.send_signal(one)
    _, stderr = waiting.communicate(timeout=30)
    assert (waiting.returncode, stderr) == (130, "interrupted\n")
    assert time.monotonic() - began < 30


@pytest.mark.parametrize(
    ("verb", "code", "said"),
    [
        ("died", 4, "node2: decode 0 died\nsee: invoke logs\n"),
        ("partly", 1, ""),
        ("needy", 2, "the Python package no_such_package is not installed here\ntype: make install\n"),
    ],
)
def test_errors_become_a_message_and_a_code(project: Path, verb: str, code: int, said: str) -> None:
    process = start(project, verb)
    _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (code, said)


def test_a_fault_of_ours_is_two_lines_unless_debugging(project: Path) -> None:
    quiet = start(project, "broken", FLEET_DEBUG="")
    _, stderr = quiet.communicate(timeout=60)
    assert quiet.returncode == 1
    first, *rest = stderr.splitlines()
    assert first == "a fault in fleet itself: ZeroDivisionError: division by zero"
    assert len(rest) == 1
    loud = start(project, "broken", FLEET_DEBUG="1")
    _, stderr = loud.communicate(timeout=60)
    assert loud.returncode == 1
    assert "Traceback (most recent call last)" in stderr
    assert stderr.count("a fault in fleet itself") == 1


def test_a_terminal_that_closes_hangs_up_twice_and_that_is_one_interrupt() -> None:
    heard = []
    with front.ended_like_interrupted():
        for _ in range(2):
            try:
                signal.raise_signal(signal.SIGHUP)
            except KeyboardInterrupt:
                heard.append("interrupted")
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
    assert heard == ["interrupted"]
