from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pytest

from fleet import declared, plan
from fleet.errors import FileFaults, PlanError, UsageError
from fleet.model import load, placement
from fleet.model.inventory import Inventory, Trial
from tests import build
from tests.unit.describing import edited

ROOT = Path(__file__).resolve().parents[2]
RECIPES = ROOT / "recipes"
KEY = "dsv4-fp4-mi355x-atom-disagg-mtp"
TRIAL = Trial()


def made(key: str = KEY, inventory: Inventory | None = None, **options) -> plan.Plan:
    return plan.build(load.recipe(key, RECIPES), inventory or build.inventory(), RECIPES, **options)


def written(folder: Path, change: tuple[str, str]) -> Path:
    """A recipes folder with one change to the MTP recipe."""
    for name in (f"{KEY}.yaml", f"{KEY.removesuffix('-mtp')}.yaml", "models/DeepSeek-V4-Pro.yaml"):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text((RECIPES / name).read_text())
    path = folder / f"{KEY}.yaml"
    assert change[0] in path.read_text()
    path.write_text(path.read_text().replace(*change))
    return folder


def test_arms_points_and_their_load():
    both = made().arms
    assert [arm.arm.name for arm in both] == ["2p1d-dpa-mtp3", "1p1d-mtp3"]
    first = [planned.point for planned in both[0].points]
    assert [(p.conc, p.prompts, p.warmups) for p in first] == [
        (256, 2560, 512),
        (512, 5120, 1024),
        (768, 7680, 1536),
        (1024, 10240, 2048),
        (2048, 20480, 4096),
    ]
    assert {(p.isl, p.osl, p.chat, p.seed, p.range_ratio, p.trial) for p in first} == {
        (8192, 1024, True, 0, 0.8, False)
    }


def test_a_small_disaggregated_point_has_at_least_16_prompts():
    arm = build.arm(1, conc=(1, 4))
    points, _ = plan._points(arm, (), None)
    assert [(p.conc, p.prompts, p.warmups) for p in points] == [(1, 16, 2), (4, 40, 8)]


def test_stp_points_send_raw_prompts():
    assert not made(KEY.removesuffix("-mtp")).arms[0].points[0].point.chat


def test_one_arm_and_some_concurrencies():
    limited = made(arm="1p1d-mtp3", conc=(16, 4))
    assert [p.point.conc for p in limited.arms[0].points] == [4, 16]
    assert limited.arms[0].servers == made().arms[1].servers


def test_an_arm_without_points_needs_no_hosts():
    two = build.inventory(build.host(1), build.host(2))
    assert [arm.arm.name for arm in made(inventory=two, conc=(64,)).arms] == ["1p1d-mtp3"]


def test_unknown_words_are_usage_errors():
    with pytest.raises(UsageError, match=r"no arm '2p1d-dpa-mtp'; did you mean 2p1d-dpa-mtp3\?") as caught:
        made(arm="2p1d-dpa-mtp")
    assert "arms: 2p1d-dpa-mtp3, 1p1d-mtp3" in caught.value.hint
    with pytest.raises(UsageError, match="no point with concurrency 5 in arm 1p1d-mtp3") as caught:
        made(arm="1p1d-mtp3", conc=(4, 5))
    assert caught.value.hint == "arm 1p1d-mtp3: 4 8 16 32 64 128"


def test_a_trial_changes_only_the_client():
    real, trial = made(), made(trial=TRIAL)
    for one, other in zip(real.arms, trial.arms, strict=True):
        assert one.servers == other.servers
        assert one.router == other.router
    point = trial.arms[1].points[0].point
    assert (point.conc, point.asked, point.isl, point.osl, point.prompts, point.warmups) == (4, 4, 256, 32, 16, 8)
    assert point.trial
    assert real.hash != trial.hash


def test_points_that_the_cap_makes_equal_run_once_and_the_others_are_named():
    first, second = made(trial=TRIAL).arms
    assert [(p.point.conc, p.point.asked, p.point.prompts) for p in first.points] == [(64, 256, 256)]
    assert first.dropped == tuple(f"conc {conc}: capped at 64, as 256 is" for conc in (512, 768, 1024, 2048))
    assert [p.point.conc for p in second.points] == [4, 8, 16, 32, 64]
    assert second.dropped == ("conc 128: capped at 64, as 64 is",)


def test_a_trial_that_does_not_fit_the_servers():
    with pytest.raises(PlanError, match=r"the trial's 9000 \+ 1000 tokens are more than max-model-len 9472"):
        made(trial=Trial(input=9000, output=1000))


def test_the_hash_is_of_what_decides():
    assert made().hash == made().hash
    assert len(made().hash) == 64
    assert made().hash6 == made().hash[:6]
    assert made(arm="1p1d-mtp3").hash != made().hash
    hosts = [build.host(number, scratch="/elsewhere") for number in (1, 2, 3)]
    assert made(inventory=build.inventory(*hosts)).hash != made().hash
    logins = [build.host(number, user="else", identity="~/.ssh/other") for number in (1, 2, 3)]
    assert made(inventory=build.inventory(*logins)).hash == made().hash


def test_steps_are_numbered_in_order_and_name_their_hosts():
    found = plan.steps(made(arm="2p1d-dpa-mtp3", conc=(256, 512)))
    assert [step.number for step in found] == list(range(1, len(found) + 1))
    assert [(step.host, step.title) for step in found] == [
        ("n1", "start prefill 0"),
        ("n2", "start prefill 1"),
        ("n3", "start decode 0"),
        ("n1", "start router, once all servers answer"),
        ("n1", "load conc 256, once the deployment has proven ready"),
        ("n1", "load conc 512"),
        ("n3", "stop"),
        ("n2", "stop"),
        ("n1", "stop"),
        ("n1", "remove, once logs and results are home"),
        ("n2", "remove, once logs and results are home"),
        ("n3", "remove, once logs and results are home"),
    ]
    head = f"fleet-{made(arm='2p1d-dpa-mtp3', conc=(256, 512)).hash6}"
    assert found[8].argv == ("docker", "stop", f"{head}-router", f"{head}-prefill0")
    assert found[9].argv == (
        *("docker", "rm", f"{head}-prefill0", f"{head}-router"),
        *(f"{head}-client-2p1d-dpa-mtp3-c256", f"{head}-client-2p1d-dpa-mtp3-c512"),
    )


def test_steps_of_a_run_carry_its_name_and_owner():
    argv = plan.steps(made(), run="r1", owner="ops@here")[0].argv
    assert "dev.fleet.run=r1" in argv
    assert "dev.fleet.owner=ops@here" in argv
    assert "type=bind,source=/var/tmp/fleet/r1,target=/fleet" in argv


def test_nothing_declared_is_dropped():
    for arm in made().arms:
        services = [*arm.services, *(planned.client for planned in arm.points)]
        carried = {name for service in services for name in service.consumes}
        carried |= {*placement.consumes(arm.arm), *declared.INFORMATIONAL, "router.version"}
        assert set(declared.declared(arm.arm)) - carried == set()


def test_a_setting_that_nothing_reads_fails_the_plan_by_name(tmp_path: Path):
    folder = written(tmp_path, ('- "DECODE_NODES=1"', '- "DECODE_NODES=1"\n          - "CLIENT_IMAGE=x:1"'))
    with pytest.raises(PlanError) as caught:
        plan.build(load.recipe(KEY, folder), build.inventory(), folder)
    assert len(caught.value.reasons) == 2
    assert caught.value.reasons[0].endswith(
        "arm 2p1d-dpa-mtp3: decode.settings.CLIENT_IMAGE: x:1 would be dropped: no service, and nothing else, reads it"
    )


def test_each_kind_of_declared_value_is_missed_when_nothing_carries_it():
    arm = build.arm(entry={"new-key": 1, "prefill": {"hardware": "mi355x", "num-worker": 2}})
    missed = {line.partition(":")[0] for line in declared.dropped(arm, (), (), {})}
    assert missed == {declared.shown(name) for name in set(declared.declared(arm)) - set(declared.INFORMATIONAL)}
    assert {
        "new-key",
        "prefill.hardware",
        "router.version",
        "decode.settings.DECODE_MTP_SIZE",
        "prefill.dp-attn",
    } <= missed


def test_contradictions_are_told_with_their_lines(tmp_path: Path):
    folder = written(tmp_path, ("DECODE_MTP_SIZE=3", "DECODE_MTP_SIZE=0"))
    with pytest.raises(FileFaults, match="MTP needs a depth of at least 1"):
        plan.build(load.recipe(KEY, folder), build.inventory(), folder)


def test_faults_of_the_recipe_and_of_its_model_file_are_told_at_once(tmp_path: Path):
    folder = written(tmp_path, ("DECODE_NODES=1", "DECODE_NODE=1"))
    file = folder / "models" / "DeepSeek-V4-Pro.yaml"
    file.write_text(edited(file.read_text(), ("block-size", "blok-size"), ("mode: 3", "mode: 4")))
    with pytest.raises(FileFaults) as caught:
        plan.build(load.recipe(KEY, folder), build.inventory(), folder)
    both = [caught.value, *caught.value.beside]
    assert sorted((Path(one.path).name, [fault.text for fault in one.faults]) for one in both) == [
        ("DeepSeek-V4-Pro.yaml", [
            "blok-size  unknown key in atom-disagg; did you mean block-size?", "mode: 4  must be at most 3",
        ]),
        (f"{KEY}.yaml", 2 * ["DECODE_NODE=1  no setting that fleet reads; did you mean DECODE_NODES?"]),
    ]  # fmt: skip
    assert str(caught.value).count("nothing was started") == 1


def test_what_the_engine_refuses_is_a_reason(tmp_path: Path):
    folder = written(tmp_path, ("  image:", "  kv-p2p-transfer: nixl\n  image:"))
    with pytest.raises(PlanError, match="arm 1p1d-mtp3: kv-p2p-transfer: nixl: ATOM has mooncake, moriio"):
        plan.build(load.recipe(KEY, folder), build.inventory(), folder)


def test_what_was_not_started_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PlanError("no such thing")

    monkeypatch.setattr(plan, "_arm_plan", refused)
    with pytest.raises(PlanError) as told:
        made()
    assert str(told.value).count("no such thing") == 2
    assert str(told.value).count("nothing was started") == 1


def test_reasons_of_all_arms_come_together():
    with pytest.raises(PlanError) as caught:
        made(inventory=build.inventory(build.host(1)))
    first, second = caught.value.reasons
    assert "arm 2p1d-dpa-mtp3: 3 hosts needed (2 prefill + 1 decode), 1 is there for runner mi355x: n1" in first
    assert "arm 1p1d-mtp3: 2 hosts needed" in second
    assert first.startswith(str(RECIPES / f"{KEY}.yaml"))


def test_an_environment_that_is_set_twice_is_not_chosen_for_anyone():
    hosts = [build.host(number, env={"GPU_MAX_HW_QUEUES": "2"}) for number in (1, 2, 3)]
    with pytest.raises(PlanError, match="GPU_MAX_HW_QUEUES is '5' for prefill0 and '2' in n1's env"):
        made(inventory=build.inventory(*hosts))
    same = [build.host(number, env={"GPU_MAX_HW_QUEUES": "5"}) for number in (1, 2, 3)]
    assert made(inventory=build.inventory(*same)).points == 11


def test_the_runbook_head():
    lines = plan.text(made()).splitlines()
    assert lines[0].startswith(f"{KEY}   plan {made().hash6}   2 arms, 11 points   about ")
    assert lines[1] == (
        "image rocm/atom-dev:nightly_202607201550   model deepseek-ai/DeepSeek-V4-Pro"
        " (860 GB must be on each serving host)"
    )
    start = lines.index("arm 2p1d-dpa-mtp3   8192/1024   conc 256 512 768 1024 2048   24 GPUs   chat-framed prompts")
    assert lines[start + 1 : start + 4] == [
        "  n1  prefill 0  :8010   + router :30000, client",
        "  n2  prefill 1  :8010",
        "  n3  decode 0   :8020",
    ]
    assert "  the router keeps its health checks (public: off; the circuit breaker is off in both)" in lines
    assert "  kv-transfer proxy_ip (no engine reads it)" in lines


def test_a_trial_says_so_at_the_top():
    whys = {"static": "asked for by --trial; the servers are the real ones"}
    whys["lab"] = "every sweep on provision: lab is a trial, its nodes have no GPUs"
    for provision, why in whys.items():
        told = plan.text(made(inventory=build.inventory(provision=provision), trial=TRIAL)).splitlines()
        assert told[1] == f"TRIAL: a small load, not a measurement: {why}"
    assert not any("TRIAL" in line for line in plan.text(made()).splitlines())
    assert "  not run: conc 128: capped at 64, as 64 is" in plan.text(made(trial=TRIAL)).splitlines()


def test_commands_of_the_runbook_are_the_steps_own():
    """Read back as a shell would, each printed command is its step's argv."""
    whole = made(arm="1p1d-mtp3", conc=(4,))
    body = plan.text(whole).replace(" \\\n", " ")
    printed = [shlex.split(line) for line in body.splitlines() if line.strip().startswith("docker ")]
    assert printed == [list(step.argv) for step in plan.steps(whole)]
    assert all(len(line) <= 140 for line in plan.text(whole).splitlines() if "[1,2,4" not in line)


def test_json():
    data = json.loads(plan.to_json(made()))
    assert data["key"] == KEY
    assert data["hash6"] == made().hash6
    assert len(data["steps"]) == len(plan.steps(made()))
    assert plan.Plan.model_validate_json(made().model_dump_json()) == made()


def test_a_draft_depth_that_tapers_splits_a_single_node_arm(tmp_path: Path) -> None:
    """From a model file's by-conc to servers that draft as deep as their arm's name says."""
    recipes = tmp_path / "recipes"
    shutil.copytree(ROOT / "recipes", recipes)
    file = recipes / "models" / "DeepSeek-V4-Pro.yaml"
    text = file.read_text()
    assert "mtp: {tokens: 2}" in text
    file.write_text(text.replace("mtp: {tokens: 2}", 'mtp: {tokens: 2, by-conc: {"64": 1}}'))
    inventory = load.inventory(ROOT / "inventories" / "example-mi355x.yaml")
    found = plan.build(load.recipe("dsv4-fp4-mi355x-vllm-mtp", recipes, rules=True), inventory, recipes)
    deep, shallow, *_ = found.arms
    assert [arm.arm.name for arm in found.arms] == ["tp8-mtp2-1k1k", "tp8-mtp1-1k1k", "tp8-mtp2-8k1k", "tp8-mtp1-8k1k"]
    assert [point.point.conc for point in deep.points] == [4, 8, 16, 32]
    assert [point.point.conc for point in shallow.points] == [64, 128, 256, 512]
    assert deep.servers[0].argv[-1] == '{"method":"mtp","num_speculative_tokens":2}'
    assert shallow.servers[0].argv[-1] == '{"method":"mtp","num_speculative_tokens":1}'
