from __future__ import annotations

import json
import re
from typing import Any

import pytest

from fleet.engines import atom, engine_for
from fleet.errors import NotReady, PlanError
from fleet.model.arm import Workers
from fleet.model.check import Response
from fleet.model.service import Service
from tests import build, interop

CAPTURE = "[1,2,4," + ",".join(str(size) for size in range(8, 257, 8)) + "]"


def seat_service(name: str, arm=None, options=build.OPTIONS, hosts=()) -> Service:
    placed = build.placement(arm, *hosts)
    seat = next(seat for seat in placed.seats if seat.name == name)
    return atom.service(seat, placed, options)


def kv(role: str, address: str) -> str:
    return f'{{"kv_role":"{role}","kv_connector":"mooncake","proxy_ip":"{address}","handshake_port":6301}}'


def test_prefill_of_a_dpa_arm_with_mtp():
    assert list(seat_service("prefill1").argv) == [
        *("python3", "-m", "atom.entrypoints.openai_server"),
        *("--model", "/models/DeepSeek-V4-Pro", "--trust-remote-code", "--host", "0.0.0.0", "--server-port", "8010"),
        *("-tp", "8", "--enable-dp-attention", "--enable-tbo", "--method", "mtp", "--num-speculative-tokens", "3"),
        *("--kv_cache_dtype", "fp8", "--block-size", "16", "--gpu-memory-utilization", "0.85"),
        *("--no-enable_prefix_caching", "--max-model-len", "9472", "--max-num-seqs", "256"),
        *("--kv-transfer-config", kv("kv_producer", "10.1.0.12")),
    ]


def test_decode_of_a_dpa_arm_with_mtp():
    assert list(seat_service("decode0").argv) == [
        *("python3", "-m", "atom.entrypoints.openai_server"),
        *("--model", "/models/DeepSeek-V4-Pro", "--trust-remote-code", "--host", "0.0.0.0", "--server-port", "8020"),
        *("-tp", "8", "--enable-dp-attention", "--enable-tbo", "--method", "mtp", "--num-speculative-tokens", "3"),
        *("--kv_cache_dtype", "fp8", "--block-size", "16", "--gpu-memory-utilization", "0.85"),
        *("--no-enable_prefix_caching", "--max-model-len", "9472", "--max-num-seqs", "2048"),
        *("--cudagraph-capture-sizes", CAPTURE, "--kv-transfer-config", kv("kv_consumer", "10.1.0.13")),
    ]


def test_an_stp_arm_without_dpa_has_neither_mtp_nor_dpa_flags():
    arm = build.arm(1, dpa=False, depth=0, conc=(4, 128))
    for name in ("prefill0", "decode0"):
        service = seat_service(name, arm)
        assert not {"--method", "--num-speculative-tokens", "--enable-dp-attention", "--enable-tbo"} & set(service.argv)
        assert "GPU_MAX_HW_QUEUES" not in service.env
    assert "128" in seat_service("decode0", arm).argv


def test_environment_of_both_roles():
    expected = {
        "AITER_BF16_FP8_MOE_BOUND": "0",
        "ATOM_CPU_AFFINITY": "1",
        "ATOM_MOE_GU_ITLV": "1",
        "GPU_MAX_HW_QUEUES": "5",
        "PYTHONUNBUFFERED": "1",
    }
    assert seat_service("prefill0").env == {**expected, "ATOM_HOST_IP": "10.1.0.11"}
    assert seat_service("decode0").env == {**expected, "ATOM_HOST_IP": "10.1.0.13"}


def test_gpus_are_masked_only_where_the_host_has_more():
    half = build.arm(1, dpa=False, conc=(4,))
    workers = tuple(w.model_copy(update={"tp": 4}) for w in half.workers)
    service = seat_service("prefill0", half.model_copy(update={"workers": workers}))
    assert service.env["HIP_VISIBLE_DEVICES"] == "0,1,2,3"
    assert "HIP_VISIBLE_DEVICES" not in seat_service("prefill0").env


def test_ports_are_http_engine_rendezvous_and_a_handshake_for_each_rank():
    ports = {port.name: (port.number, port.public) for port in seat_service("prefill0").ports}
    assert ports["http"] == (8010, True)
    assert ports["engine"] == (8006, False)
    assert ports["dp-master"] == (29500, False)
    assert [ports[f"handshake{rank}"][0] for rank in range(8)] == list(range(6301, 6309))
    assert len(ports) == 11


def test_expert_parallel_is_a_flag_without_size():
    arm = build.arm(1, dpa=False)
    arm = arm.model_copy(update={"workers": tuple(w.model_copy(update={"ep": 8}) for w in arm.workers)})
    service = seat_service("decode0", arm)
    assert "--enable-expert-parallel" in service.argv
    assert atom.informational(arm)["decode.ep size 8"] == "--enable-expert-parallel takes no size"


def test_one_server_without_disaggregation():
    workers = (Workers(role="server", count=1, tp=8),)
    arm = build.arm(depth=0, framework="atom", disagg=False, router=None, kv_transfer=None, workers=workers, conc=(64,))
    service = seat_service("server0", arm)
    assert service.http == 8000
    assert "--kv-transfer-config" not in service.argv
    assert service.argv[service.argv.index("--max-num-seqs") + 1] == "64"
    assert "ATOM_HOST_IP" not in service.env


@pytest.mark.parametrize("name", ["prefill0", "decode0"])
def test_every_flag_is_one_that_the_parser_registers(name: str):
    registered = interop.flags("atom-server.ffdf3bb")
    argv = list(seat_service(name).argv)[3:]
    values = iter(argv)
    for word in values:
        assert word in registered, f"{word} is no registered flag"
        if registered[word] and word != "--enable-tbo":
            next(values)


def test_every_flag_and_variable_has_an_origin():
    service = seat_service("decode0")
    flags = [word for word in service.argv[3:] if re.match(r"--?[a-z]", word)]
    assert {*flags, *service.env} <= set(service.origins)


def test_flags_of_the_model_file_come_last_and_may_not_repeat_fleets_own():
    more = build.OPTIONS.model_copy(update={"flags": ("--level", "3")})
    assert seat_service("decode0", options=more).argv[-2:] == ("--level", "3")
    clash = build.OPTIONS.model_copy(update={"flags": ("--max-model-len=1",)})
    assert atom.refusals(build.arm(), clash) == ("flags: --max-model-len=1 is fleet's own to set",)


@pytest.mark.parametrize(
    ("flag", "why"),
    [
        ("-tp", "is fleet's own to set"),
        ("--tensor-parallel-size=4", "is fleet's own to set"),
        ("--kv-cache-dtype", "is fleet's own to set"),
        ("--max-model", "is short for --max-model-len, which is fleet's own to set"),
        ("--num-spec=1", "is short for --num-speculative-tokens, which is fleet's own to set"),
        ("--spec-decode-acceptance-rate", "is fleet's own to set"),
        ("--load_dummy", "is fleet's own to set"),
    ],
)
def test_fleets_own_flags_are_known_in_every_spelling(flag: str, why: str) -> None:
    options = build.OPTIONS.model_copy(update={"flags": (flag, "1", "-", "--")})
    assert atom.refusals(build.arm(), options) == (f"flags: {flag} {why}",)


def test_fleets_own_variables_may_not_be_set() -> None:
    wrong = {"env": {"ATOM_HOST_IP": "10.0.0.1", "AITER_X": "1"}, "dpa_env": {"HIP_VISIBLE_DEVICES": "0"}}
    assert atom.refusals(build.arm(), build.OPTIONS.model_copy(update=wrong)) == (
        "env: ATOM_HOST_IP is fleet's own to set",
        "dpa-env: HIP_VISIBLE_DEVICES is fleet's own to set",
    )


@pytest.mark.parametrize(
    ("said", "keys"),
    [
        ({"tokens": 2}, "tokens"),
        ({"by_conc": {8: 1}}, "by-conc"),
        ({"tokens": 2, "by_conc": {8: 1}}, "tokens and by-conc"),
    ],
)
def test_a_depth_beside_that_of_the_config_is_refused(said: dict[str, Any], keys: str) -> None:
    options = build.OPTIONS.model_copy(update={"mtp": atom.Mtp(method="mtp", **said)})
    why = f"mtp: {keys}: the config says the depth: DECODE_MTP_SIZE; take {keys} out of the model file"
    assert atom.refusals(build.arm(), options) == (why,)
    alone = build.arm().model_copy(update={"multinode": False})
    assert atom.refusals(alone, options) == ()


def test_an_ep_that_no_flag_can_give_is_refused() -> None:
    def refused(ep: int) -> tuple[str, ...]:
        arm = build.arm()
        workers = tuple(w.model_copy(update={"ep": ep}) for w in arm.workers)
        return atom.refusals(arm.model_copy(update={"workers": workers}), build.OPTIONS)

    assert refused(1) == refused(8) == ()
    assert refused(7) == tuple(
        f"{role}: ep: 7: experts are spread over all 8 ranks of tp, or over none; type ep: 8 or ep: 1"
        for role in ("prefill", "decode")
    )


def test_refusals_are_told_together():
    arm = build.arm(kv_transfer="nixl")
    workers = tuple(w.model_copy(update={"pp": 2}) for w in arm.workers)
    arm = arm.model_copy(update={"workers": workers})
    options = build.OPTIONS.model_copy(update={"mtp": None})
    assert atom.refusals(arm, options) == (
        "prefill: dp-attn with pp: 2: ATOM refuses it",
        "decode: dp-attn with pp: 2: ATOM refuses it",
        "kv-p2p-transfer: nixl: ATOM has mooncake, moriio",
        "spec-decoding: mtp: the model file of DeepSeek-V4-Pro has no mtp method for ATOM",
    )
    assert atom.refusals(build.arm(), build.OPTIONS) == ()


def answer(table: object, status: int = 200) -> Response:
    return Response(status, json.dumps(table).encode())


def check(title: str, response: Response, arm=None, seat: str = "prefill0") -> str:
    placed = build.placement(arm)
    found = next(s for s in placed.seats if s.name == seat)
    return next(c for c in atom.readiness(found, placed) if c.title == title).judge(response)


def test_readiness_asks_health_model_and_role():
    placed = build.placement()
    paths = [question.path for question in atom.readiness(placed.seats[0], placed)]
    assert paths == ["/health", "/v1/models", "/kv_transfer_info"]


def test_the_served_model_is_the_planned_one():
    assert check("model", answer({"data": [{"id": "/models/DeepSeek-V4-Pro"}]})) == ""
    assert check("model", answer({"data": [{"id": "other"}]})) == "serves other instead of /models/DeepSeek-V4-Pro"
    assert check("model", answer([])) == "serves nothing instead of /models/DeepSeek-V4-Pro"
    assert check("model", answer({}, 503)) == "status 503"


def test_the_kv_role_and_sizes_are_the_planned_ones():
    info = {"tp_size": 8, "dp_size": 1, "kv_role": "kv_producer", "handshake_port": 6301}
    assert check("KV role", answer(info)) == ""
    assert check("KV role", answer({**info, "tp_size": 1, "dp_size": 8})) == ""
    plain = build.arm(1, dpa=False)
    assert check("KV role", answer({**info, "tp_size": 1, "dp_size": 8}), plain) == (
        "tp_size 1, dp_size 8 instead of a worker with tp 8"
    )
    assert check("KV role", answer(info), seat="decode0") == "kv_role is kv_producer instead of kv_consumer"
    assert check("KV role", answer({**info, "handshake_port": 7})) == "handshake_port is 7 instead of 6301"


METRICS = """\
# HELP atom:requests_finished_total requests
# TYPE atom:requests_finished_total counter
atom:requests_finished_total 40
atom:prompt_tokens_total 294050.0
atom:generation_tokens_total 36805
atom:mtp_draft_tokens_total 3000
atom:mtp_accepted_tokens_total 1500
atom:mtp_decode_steps_total{accepted_tokens="0"} 300
atom:mtp_decode_steps_total{accepted_tokens="3"} 700
atom:requests_running 3
atom:requests_waiting 2
atom:requests_parked_kv_load 4
atom:requests_partial_prefill 1
"""


def test_counters():
    counters = atom.counters(METRICS)
    assert counters.finished == 40
    assert (counters.prompt_tokens, counters.generated_tokens) == (294050, 36805)
    assert (counters.drafted, counters.accepted, counters.steps) == (3000, 1500, 1000)
    assert atom.counters("").finished is None


def test_requests_under_way_are_running_waiting_or_parked():
    assert atom.under_way(METRICS) == 9
    assert atom.under_way("atom:requests_running 0\natom:requests_waiting 0\n") == 0
    assert atom.under_way("atom:requests_finished_total 40\n") is None


def test_counter_names_are_atoms():
    names = interop.path("captured/atom-metrics-names.ffdf3bb.txt").read_text()
    for name in re.findall(r"atom:\w+", METRICS):
        assert name in names


def test_the_relay_played_by_hand():
    prefill = atom.prefill_request("/models/m", "Hello", 8)
    assert prefill["max_tokens"] == 1
    assert prefill["stream"] is False
    assert prefill["kv_transfer_params"] == {"do_remote_decode": True, "do_remote_prefill": False}
    reply = {"kv_transfer_params": {"remote_host": "10.1.0.11", "dp_rank": 3}}
    decode = atom.decode_request("/models/m", "Hello", 8, reply, {"tp_size": 1, "dp_size": 8})
    assert decode["max_tokens"] == 8
    assert decode["kv_transfer_params"] == {
        "remote_host": "10.1.0.11",
        "dp_rank": 3,
        "remote_tp_size": 1,
        "remote_dp_size": 8,
        "remote_dp_rank": 3,
    }
    with pytest.raises(NotReady, match="without kv_transfer_params"):
        atom.decode_request("/models/m", "Hello", 8, {"choices": []}, {})


@pytest.mark.parametrize(
    "line",
    [
        "AssertionError: Not enough memory for KV cache with block size(16)",
        "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 3.12 GiB",
        "ModelRunner 3 proc died unexpectedly (exitcode=-9), shutting down.",
        "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 8010): address already in use",
        "zmq.error.ZMQError: Address already in use (addr='tcp://*:6301')",
        "Mooncake TransferEngine.initialize() failed (ret=-1)",
        "openai_server.py: error: unrecognized arguments: --speculative-config",
    ],
)
def test_fatal_lines(line: str):
    assert any(re.search(pattern, line) for pattern in atom.FATAL)


def test_ordinary_lines_are_not_fatal():
    for line in ("INFO Server started successfully and ready to accept requests", 'GET /health HTTP/1.1" 200 OK'):
        assert not any(re.search(pattern, line) for pattern in (*atom.FATAL, *atom.TRANSFER_ERRORS))


def test_an_unknown_framework_is_told_with_the_known_ones():
    assert engine_for("atom-disagg") is engine_for("atom")
    with pytest.raises(PlanError, match="framework sglang cannot be planned; engines are there for: atom, atom-disagg"):
        engine_for("sglang")


def test_workers_that_hand_over_nothing_and_a_server_that_is_no_pair_are_refused() -> None:
    apart = build.arm().model_copy(update={"disagg": False, "kv_transfer": None})
    assert atom.refusals(apart, build.OPTIONS) == (
        "prefill and decode workers with disagg: false hand over no KV cache; type disagg: true",
    )
    server = Workers(role="server", count=1, tp=8)
    alone = build.arm(depth=0).model_copy(update={"disagg": False, "kv_transfer": None, "workers": (server,)})
    assert atom.refusals(alone, build.OPTIONS) == (
        "framework: atom-disagg serves prefill and decode workers; one server is framework: atom",
    )


def test_a_depth_of_0_is_carried_too() -> None:
    decode = build.arm(depth=0).of("decode").model_copy(update={"settings": {"DECODE_MTP_SIZE": "0"}})
    assert "decode.settings.DECODE_MTP_SIZE" in atom._consumes(build.arm(depth=0), decode)


def test_a_prefix_cache_is_there_unless_it_was_turned_off() -> None:
    assert atom.prefix_cache(("serve", "--no-enable_prefix_caching")) is False
    assert atom.prefix_cache(("serve",)) is True
    assert atom.prefix_cache(("serve", "--no-enable_prefix_caching", "--enable_prefix_caching")) is True
