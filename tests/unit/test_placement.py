from __future__ import annotations

import pytest

from fleet.errors import PlanError
from fleet.model.arm import Arm, Workers
from fleet.model.placement import consumes, place, remedy
from tests import build


def seats(arm: Arm, *hosts, **options) -> list[tuple[str, str]]:
    return [(seat.name, seat.host) for seat in place(arm, build.inventory(*hosts), **options).seats]


def one_role(**changes) -> Arm:
    workers = (Workers(role="server", count=1, tp=8, **changes),)
    return build.arm(workers=workers, disagg=False, router=None, kv_transfer=None)


def reasons(arm: Arm, *hosts, **options) -> tuple[str, ...]:
    with pytest.raises(PlanError) as caught:
        place(arm, build.inventory(*hosts), **options)
    return caught.value.reasons


def test_prefills_first_then_decode_router_and_client_with_prefill_0():
    assert seats(build.arm()) == [
        ("prefill0", "n1"),
        ("prefill1", "n2"),
        ("decode0", "n3"),
        ("router", "n1"),
        ("client", "n1"),
    ]


def test_hosts_of_other_runners_are_passed_over():
    hosts = (build.host(1, runners=("h200",)), build.host(2), build.host(3))
    placed = place(build.arm(1), build.inventory(*hosts))
    assert [(seat.name, seat.host) for seat in placed.seats[:2]] == [("prefill0", "n2"), ("decode0", "n3")]
    assert [host.name for host in placed.hosts] == ["n2", "n3"]


def test_only_hosts_with_a_seat_are_part_of_it():
    assert [host.name for host in build.placement(build.arm(1)).hosts] == ["n1", "n2"]


def test_an_aggregated_arm_has_no_router():
    assert seats(one_role()) == [("server0", "n1"), ("client", "n1")]


def test_a_worker_takes_as_many_gpus_as_it_needs():
    arm = one_role(pcp=1).model_copy(update={"workers": (Workers(role="server", count=1, tp=4),)})
    assert place(arm, build.inventory()).seats[0].gpus == (0, 1, 2, 3)


def test_a_worker_may_span_hosts():
    arm = one_role(pp=2)
    placed = place(arm, build.inventory())
    assert [(s.name, s.host, s.node, s.span, len(s.gpus)) for s in placed.of("server")] == [
        ("server0", "n1", 0, 2, 8),
        ("server0.1", "n2", 1, 2, 8),
    ]


def test_a_worker_that_spans_needs_an_engine_that_can():
    assert reasons(one_role(pp=2), spans=False) == (
        "server: a worker needs 16 (tp 8 × pp 2) GPUs, n1 has 8, and this engine's workers cannot span hosts",
    )


def test_gpus_that_do_not_fit():
    arm = build.arm(workers=(Workers(role="server", count=1, tp=12),), disagg=False, router=None)
    assert reasons(arm) == ("server: a worker needs 12 (tp 12) GPUs: they do not fit hosts of 8 GPUs (n1)",)


def test_unequal_hosts_do_not_make_one_worker():
    assert reasons(one_role(pp=2), build.host(1), build.host(2, gpus=4)) == (
        "server 0 spans hosts with unequal GPUs: n1 and n2",
    )


def test_too_few_hosts():
    assert reasons(build.arm(), build.host(1), build.host(2)) == (
        "3 hosts needed (2 prefill + 1 decode), 2 are there for runner mi355x: n1, n2",
    )


def test_no_host_answers_to_the_runner():
    assert reasons(build.arm(runner="gb200"), build.host(1)) == (
        "no host answers to runner gb200 (hosts of inventories/test.yaml answer to: mi355x)",
    )


def test_all_reasons_at_once():
    arm = build.arm()
    workers = (arm.of("prefill").model_copy(update={"tp": 0}), arm.of("decode").model_copy(update={"count": 0}))
    assert reasons(arm.model_copy(update={"workers": workers, "runner": "gb200"}), build.host(1)) == (
        "prefill: tp: 0: at least 1 is needed",
        "decode: num-worker: 0: at least 1 is needed",
        "no host answers to runner gb200 (hosts of inventories/test.yaml answer to: mi355x)",
    )


def test_nodes_that_do_not_fit_the_workers():
    arm = build.arm()
    workers = (arm.of("prefill").model_copy(update={"nodes": 1}), arm.of("decode"))
    assert reasons(arm.model_copy(update={"workers": workers})) == (
        "PREFILL_NODES=1 does not fit num-worker: 2 of 8 GPUs (1 host each)",
    )


def test_a_host_without_gpus_serves_nothing():
    assert reasons(build.arm(1), build.host(1, gpus=0), build.host(2), build.host(3)) == (
        "n1 has no GPUs in the inventory",
    )
    bare = [build.host(number, gpus=0) for number in (1, 2, 3, 4)]
    assert reasons(build.arm(), *bare) == ("n1, n2, n3, n4 have no GPUs in the inventory",)
    spare = build.inventory(build.host(1), build.host(2), build.host(3, gpus=0))
    assert [host.name for host in place(build.arm(1), spare).hosts] == ["n1", "n2"]


def test_what_to_write_against_a_reason():
    assert remedy("n1 has no GPUs in the inventory").startswith("gpus: 8, accelerator: rocm (or cuda) ")
    assert remedy(reasons(build.arm(runner="gb200"), build.host(1))[0]).startswith("runners: [gb200] ")
    assert remedy("3 hosts needed") == ""


def test_the_message_says_where_the_arm_is_written():
    arm = build.arm(runner="x", source="recipes/k.yaml", line=14)
    with pytest.raises(PlanError, match=r"^recipes/k.yaml:14: arm 2p1d-dpa-mtp3 cannot be placed"):
        place(arm, build.inventory())


def test_what_placement_carries():
    assert consumes(build.arm()) == (
        "runner",
        "prefill.count",
        "prefill.nodes",
        "prefill.settings.PREFILL_NODES",
        "decode.count",
        "decode.nodes",
        "decode.settings.DECODE_NODES",
    )
