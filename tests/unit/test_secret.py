"""Secrets: named in files, gathered before anything starts, written for a shell, masked in all that comes back."""

from __future__ import annotations

import json
import pickle
import random
import subprocess
import traceback
from dataclasses import replace
from pathlib import Path

import pytest

from fleet import docker, plan
from fleet.errors import CommandFailed, FileFaults, PlanError, UsageError
from fleet.hosts.fake import Fake
from fleet.model import load
from fleet.model.inventory import Host
from fleet.plan import Plan
from fleet.secret import Secrets, parsed
from fleet.session import Machine
from fleet.settings import Settings
from fleet.stages import collect, launch, secret, teardown
from tests.world import KEY, ROOT, World

CANARY = "hf_CANARY-0123456789abcdef"
NASTY = b"".join(bytes([code]) for code in range(1, 256)) + b"'\"$(touch /tmp/x)`id`\\ \r\n;end"

INVENTORY = """
all:
  vars: {{gpus: 8, accelerator: rocm, runners: [mi355x], {more}}}
  hosts:
    a:
    b: {own}
"""


def inventory(tmp_path: Path, more: str = "secrets: [HF_TOKEN]", own: str = "") -> Path:
    path = tmp_path / "inventory.yaml"
    path.write_text(INVENTORY.format(more=more, own=own))
    return path


def planned(tmp_path: Path, more: str = "secrets: [HF_TOKEN]", own: str = "", recipe: str = "") -> Plan:
    found = load.recipe(KEY, ROOT / "recipes")
    if recipe:
        config = found.config.model_copy(update={"secrets": [recipe]})
        found = replace(found, config=config)
    return plan.build(
        found, load.inventory(inventory(tmp_path, more, own)), ROOT / "recipes", arm="1p1d-mtp3", conc=[4]
    )


# --- what is written in files ---------------------------------------------------------------------------------------


def test_secrets_are_a_list_of_names_or_a_mapping_and_merge_over_the_levels(tmp_path: Path) -> None:
    path = inventory(tmp_path, "secrets: [HF_TOKEN, WANDB]", '{secrets: {WANDB: "!cmd pass show wandb", MORE: env}}')
    first, second = load.inventory(path).hosts
    assert first.secrets == {"HF_TOKEN": "env", "WANDB": "env"}
    assert second.secrets == {"HF_TOKEN": "env", "WANDB": "!cmd pass show wandb", "MORE": "env"}
    again = tmp_path / "again.yaml"
    again.write_text(load.resolved_inventory(load.inventory(path)))
    assert load.inventory(again).hosts == (first, second)


@pytest.mark.parametrize(
    ("written", "told"),
    [
        (f"[HF_TOKEN={CANARY}]", "secrets: the name of a variable expected, as HF_TOKEN: letters, digits and _"),
        (f"{{HF_TOKEN: {CANARY}}}", 'HF_TOKEN  env, or "!cmd COMMAND" expected: where the value comes from, never'),
        ('{HF_TOKEN: "!cmd  "}', 'env, or "!cmd COMMAND" expected'),
        ('{HF_TOKEN: "!cmd sh -c \'x"}', 'env, or "!cmd COMMAND" expected'),
        ("{HF_TOKEN: !cmd pass show hf}", 'tags are not read; put all of it in quotes: "!cmd …"'),
        (f"HF_TOKEN={CANARY}", "secrets: …  a mapping expected"),
        ("{HF_TOKEN: 123456789}", "text expected, a number was written"),
        ("[HF_TOKEN], env: {HF_TOKEN: x}", "HF_TOKEN  is in env and in secrets; keep one"),
    ],
)
def test_a_fault_of_secrets_does_not_repeat_what_could_be_a_value(tmp_path: Path, written: str, told: str) -> None:
    with pytest.raises(FileFaults) as caught:
        load.inventory(inventory(tmp_path, f"secrets: {written}"))
    assert told in str(caught.value)
    assert CANARY not in str(caught.value)
    assert "123456789" not in str(caught.value)


def test_a_recipe_names_secrets_too(tmp_path: Path) -> None:
    text = (ROOT / "recipes" / f"{KEY}.yaml").read_text()
    (tmp_path / f"{KEY}.yaml").write_text(text.rstrip("\n") + "\n  secrets: [HF_TOKEN]\n")
    base = load.recipe(KEY, ROOT / "recipes").document.node(KEY)
    assert base
    for path in (ROOT / "recipes").glob("*.yaml"):
        if path.stem != KEY:
            (tmp_path / path.name).write_text(path.read_text())
    assert load.recipe(KEY, tmp_path).config.secrets == ["HF_TOKEN"]
    (tmp_path / f"{KEY}.yaml").write_text(text.rstrip("\n") + "\n  secrets: [HF-TOKEN]\n")
    with pytest.raises(FileFaults, match="the name of a variable expected"):
        load.recipe(KEY, tmp_path)


# --- the plan -------------------------------------------------------------------------------------------------------


def test_a_plan_has_names_a_mount_and_a_shell_that_reads_it(tmp_path: Path) -> None:
    made = planned(tmp_path, recipe="WANDB")
    for arm in made.arms:
        for service in (*arm.services, arm.points[0].client):
            assert service.secrets == ("HF_TOKEN", "WANDB")
            host = arm.placement.host(service.host)
            argv = docker.run_argv(service, host, made.labels(arm, "r1", "ops"))
            assert "type=bind,source=/tmp/fleet/r1/secrets,target=/run/fleet/secrets,readonly" in argv
            assert "dev.fleet.secrets=HF_TOKEN WANDB" in argv
            at = argv.index("--entrypoint")
            read = 'set -a; . /run/fleet/secrets; set +a; exec "$@"'
            assert argv[at:] == ["--entrypoint", "sh", service.image, "-c", read, "sh", *service.argv]
            assert not {"--env-file"} & set(argv)
    assert "secrets HF_TOKEN, WANDB: values are asked for when a sweep starts" in plan.text(made)


def test_a_service_without_secrets_is_started_as_ever(tmp_path: Path) -> None:
    made = planned(tmp_path, "secrets: {}")
    assert "secrets" not in plan.text(made)
    assert "/run/fleet" not in plan.text(made)


def test_the_hash_knows_the_names_and_not_where_values_come_from(tmp_path: Path) -> None:
    none, one = planned(tmp_path, "secrets: {}"), planned(tmp_path)
    other, elsewhere = planned(tmp_path, "secrets: [HF]"), planned(tmp_path, 'secrets: {HF_TOKEN: "!cmd echo x"}')
    assert len({none.hash, one.hash, other.hash}) == 3
    assert one.hash == elsewhere.hash


def test_a_secret_that_is_a_plain_variable_too_cannot_be_planned(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="PYTHONUNBUFFERED is a secret and a plain variable of prefill0"):
        planned(tmp_path, "secrets: [PYTHONUNBUFFERED]")


# --- values ---------------------------------------------------------------------------------------------------------


def test_values_come_from_the_environment_and_from_commands(tmp_path: Path) -> None:
    counted = tmp_path / "asked"
    command = f'sh -c \'echo x >>{counted}; printf "%s\\n" "two  words"\''
    made = planned(tmp_path, f"secrets: {{HF_TOKEN: env, OTHER: {json.dumps(f'!cmd {command}')}}}")
    found = secret.gathered(made, {b"HF_TOKEN": NASTY})
    assert found.of("a") == found.of("b") == {"HF_TOKEN": NASTY, "OTHER": b"two  words"}
    assert counted.read_text() == "x\n", "a command runs once for all hosts"


def test_a_command_is_no_shell_unless_one_is_written(tmp_path: Path) -> None:
    made = planned(tmp_path, 'secrets: {HF_TOKEN: "!cmd echo $(touch pwned) ; id"}')
    assert secret.gathered(made, {}).of("a") == {"HF_TOKEN": b"$(touch pwned) ; id"}


def test_all_that_is_missing_is_told_at_once(tmp_path: Path) -> None:
    commands = {
        "BAD": f"!cmd sh -c 'echo {CANARY}; echo no entry like {CANARY} >&2; exit 3'",
        "GONE": "!cmd no-such-program",
        "VOID": "!cmd true",
    }
    made = planned(tmp_path, f"secrets: {json.dumps({'HF_TOKEN': 'env', 'EMPTY': 'env'} | commands)}")
    with pytest.raises(UsageError) as caught:
        secret.gathered(made, {b"EMPTY": b""})
    error = caught.value
    assert error.exit_code == 2
    lines = error.what.splitlines()
    assert lines[0] == f"5 secrets of {KEY} cannot be had"
    assert "  HF_TOKEN: not set in your environment" in lines
    assert "  EMPTY: empty in your environment" in lines
    kept_back = "what it said is kept back, it may hold the value"
    assert f"  BAD: sh ended with code 3; {kept_back}" in lines
    assert f"  GONE: no-such-program ended with code 127 (no such command?); {kept_back}" in lines
    assert f"  VOID: true printed nothing; {kept_back}" in lines
    assert CANARY not in str(error)
    hints = error.hint.splitlines()
    assert hints[0] == "nothing was started"
    assert set(hints[1:3]) == {
        "type: read -rs HF_TOKEN && export HF_TOKEN   (nothing of it shows)",
        "type: read -rs EMPTY && export EMPTY   (nothing of it shows)",
    }
    (last,) = hints[3:]
    whose = f"the command of BAD, GONE, VOID as {made.inventory.path} has it"
    assert last == f"to see what it says: {whose}, with >/dev/null behind it"


@pytest.mark.parametrize("shell", ["dash", "bash", "sh"])
def test_a_shell_reads_every_byte_and_runs_nothing(tmp_path: Path, shell: str) -> None:
    file = tmp_path / "secrets"
    file.write_bytes(secret.written({"HF_TOKEN": NASTY, "B": b"x"}))
    script = docker.WITH_SECRETS.replace(docker.SECRETS, str(file))
    asked = [shell, "-c", script, "sh", "sh", "-c", 'cat /proc/self/environ; echo "$#:$1"', "sh", "a b"]
    done = subprocess.run(asked, capture_output=True, check=True, env={"PATH": "/usr/bin:/bin"}, timeout=20)
    assert b"HF_TOKEN=" + NASTY + b"\0" in done.stdout
    assert done.stdout.endswith(b"1:a b\n")
    assert done.stderr == b""
    assert parsed(file.read_bytes()) == {"HF_TOKEN": NASTY, "B": b"x"}


def test_values_have_no_form_that_could_be_printed() -> None:
    found = Secrets({"a": {"HF_TOKEN": CANARY.encode()}})
    assert repr(found) == str(found) == f"{found}" == "Secrets(HF_TOKEN)"
    with pytest.raises(TypeError):
        pickle.dumps(found)
    host = Host(name="a")
    assert CANARY not in repr(Machine(host, Fake("a", []), Settings(), {}, found))


def test_launch_brings_the_file_before_the_containers_and_teardown_takes_it(tmp_path: Path) -> None:
    world = World(planned(tmp_path))
    values = {name: {"HF_TOKEN": CANARY.encode()} for name in world.nodes}
    world.session = replace(world.session, secrets=Secrets(values))
    deployment = world.deployment(tmp_path)
    launch.launch(deployment)
    path = f"/tmp/fleet/{deployment.folder.name}/secrets"
    for node in world.nodes.values():
        assert node.fake.files == {path: f"HF_TOKEN={CANARY}\n".encode()}
        assert node.fake.modes == {path: 0o600}
        assert node.asked("docker run")
        assert CANARY not in "\n".join(node.lines)
    assert teardown.teardown(deployment) == []
    for node in world.nodes.values():
        assert node.asked(f"^rm -rf /tmp/fleet/{deployment.folder.name}$")


def test_without_secrets_no_file_is_written(tmp_path: Path) -> None:
    world = World(planned(tmp_path, "secrets: {}"))
    launch.launch(world.deployment(tmp_path))
    assert all(node.fake.files == {} for node in world.nodes.values())


def test_the_logs_of_somebody_elses_run_are_masked_by_what_lies_on_the_host() -> None:
    kept = secret.written({"HF_TOKEN": CANARY.encode()})
    fake = Fake("a", [("^cat /tmp/fleet/r1/secrets$", kept), ("docker logs", f"x {CANARY}\n")])
    machine = Machine(Host(name="a"), fake, Settings(), {"a": ()})
    box = docker.Container(id="i", name="n", image="m", state="running", status="Up", labels={"run": "r1"})
    assert collect.tail(machine, box, 10) == f"x {CANARY}\n"
    labelled = box.model_copy(update={"labels": {"run": "r1", "secrets": "HF_TOKEN"}})
    assert collect.tail(machine, labelled, 10) == "x ***HF_TOKEN***\n"


# --- masking --------------------------------------------------------------------------------------------------------


MULTI = "line-one-1\nline-two-2\n"


@pytest.mark.parametrize(
    ("value", "text", "masked"),
    [
        (CANARY, f"token={CANARY}.", "token=***T***."),
        ('say "no" é', json.dumps({"t": 'say "no" é'}), '{"t": "***T***"}'),
        ('say "no" é', json.dumps({"t": 'say "no" é'}, ensure_ascii=False), '{"t": "***T***"}'),
        ("it's\tone", repr({"t": "it's\tone"}), "{'t': \"***T***\"}"),
        (MULTI, f"12:00 {MULTI.splitlines()[0]}\n12:01 {MULTI.splitlines()[1]}\n", "12:00 ***T***\n12:01 ***T***\n"),
        ("short", "a short word", "a short word"),
        ("sixsix", "a sixsix word", "a ***T*** word"),
    ],
)
def test_a_value_is_masked_as_it_may_be_written(value: str, text: str, masked: str) -> None:
    assert Secrets({"a": {"T": value.encode()}}).text(text) == masked


def test_the_longer_of_two_values_counts() -> None:
    found = Secrets({"a": {"SHORT": b"secret", "LONG": b"secret-and-more"}})
    assert found.text("secret-and-more secret") == "***LONG*** ***SHORT***"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_a_stream_masks_over_the_borders_of_chunks(size: int) -> None:
    found = Secrets({"a": {"SHORT": b"secret", "LONG": b"secret-and-more", "END": b"etsec-x"}})
    data = b"a secret-and-more, secretsecret, secret-and-mor, esecretsec-x, secr"
    kept: list[bytes] = []
    stream = found.stream(kept.append)
    for start in range(0, len(data), size):
        stream(data[start : start + size])
    stream.end()
    assert b"".join(kept) == found.masked(data)
    assert b"".join(kept) == b"a ***LONG***, ***SHORT******SHORT***, ***SHORT***-and-mor, e***SHORT***sec-x, secr"


def test_a_stream_masks_what_the_whole_would() -> None:
    chance = random.Random(1)
    for _ in range(1000):
        values = {f"V{n}": bytes(chance.choices(b"abc", k=chance.randint(6, 12))) for n in range(chance.randint(1, 4))}
        found, kept = Secrets({"a": values}), list[bytes]()
        parts = [*values.values(), *(value[: chance.randint(1, 12)] for value in values.values()), b"a", b"b"]
        data, stream, at = b"".join(chance.choices(parts, k=9)), found.stream(kept.append), 0
        while at < len(data):
            size = chance.randint(1, 9)
            stream(data[at : at + size])
            at += size
        stream.end()
        assert b"".join(kept) == found.masked(data), (values, data)


def test_a_stream_holds_back_nothing_but_the_beginning_of_a_value() -> None:
    kept: list[bytes] = []
    stream = Secrets({"a": {"T": CANARY.encode()}}).stream(kept.append)
    stream(b"a line\n")
    assert kept == [b"a line\n"]
    stream(b"hf_CAN")
    assert kept == [b"a line\n"]
    stream(b"dy\n")
    assert b"".join(kept) == b"a line\nhf_CANdy\n"


def test_all_that_a_machine_says_is_masked_its_errors_too() -> None:
    fake = Fake("a", [("cat", f"{CANARY}\n"), ("fail", (1, "", f"bad token {CANARY}"))])
    machine = Machine(Host(name="a"), fake, Settings(), {"a": ()}, Secrets({"a": {"HF_TOKEN": CANARY.encode()}}))
    assert machine.run(["cat", "x"]).out == "***HF_TOKEN***\n"
    with pytest.raises(CommandFailed) as caught:
        machine.run(["fail"])
    assert "bad token ***HF_TOKEN***" in str(caught.value)
    assert CANARY not in "".join(traceback.format_exception(caught.value))
