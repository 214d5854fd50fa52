from __future__ import annotations

import json
import re

import pytest

from fleet.engines import atom
from fleet.errors import PlanError
from fleet.model.check import Response
from fleet.routers import atomesh, router_for
from tests import build


def service():
    placed = build.placement()
    servers = [atom.service(seat, placed, build.OPTIONS) for seat in placed.seats[:3]]
    return atomesh.service(placed, servers)


def test_the_router_of_two_prefills_and_a_decode():
    assert list(service().argv) == [
        *("/usr/local/bin/atomesh", "launch", "--host", "0.0.0.0", "--port", "30000", "--pd-disaggregation"),
        *("--prefill", "http://10.1.0.11:8010", "--prefill", "http://10.1.0.12:8010"),
        *("--decode", "http://10.1.0.13:8020", "--policy", "random", "--backend", "atom", "--log-level", "info"),
        *("--disable-circuit-breaker", "--prometheus-port", "29100"),
    ]


def test_it_keeps_its_health_checks_and_says_so():
    assert "--disable-health-check" not in service().argv
    assert "keeps its health checks" in atomesh.deviations(build.arm())[0]


def test_it_sits_with_prefill_0_and_needs_no_gpu():
    made = service()
    assert made.host == "n1"
    assert not made.gpu
    assert [port.number for port in made.ports] == [30000, 29100]


def test_every_flag_has_an_origin():
    made = service()
    assert {word for word in made.argv if word.startswith("--")} == set(made.origins)


def ready(table: object, status: int = 200) -> str:
    placed = build.placement()
    return atomesh.readiness(placed)[0].judge(Response(status, json.dumps(table).encode()))


def test_ready_means_as_many_healthy_workers_as_planned():
    assert ready({"status": "ready", "healthy_workers": 3, "total_workers": 3}) == ""
    assert ready({"status": "ready", "healthy_workers": 2, "total_workers": 3}) == (
        "sees 2 healthy of 3 workers, 3 are planned (status 200)"
    )
    assert ready({}, 503) == "sees 0 healthy of 0 workers, 3 are planned (status 503)"
    assert ready({"healthy_workers": 4, "total_workers": 4}) != ""


def test_workers_are_listed():
    body = json.dumps({"workers": [{"url": "http://10.1.0.11:8010"}, {"url": "http://10.1.0.13:8020"}]}).encode()
    assert atomesh.workers(Response(200, body)) == ["http://10.1.0.11:8010", "http://10.1.0.13:8020"]


@pytest.mark.parametrize(
    "line",
    [
        "ERROR ATOM prefill http://10.1.0.11:8010 request_id=xfer-1 response missing kv_transfer_params",
        "ERROR ATOM prefill http://10.1.0.11:8010 request_id=xfer-1 status=500 body=oops",
        "decode_server_error http://10.1.0.13:8020",
    ],
)
def test_transfer_errors(line: str):
    assert any(re.search(pattern, line) for pattern in atomesh.TRANSFER_ERRORS)


def test_an_unknown_router_is_told_with_the_known_ones():
    assert router_for("atomesh").NAME == "atomesh"
    with pytest.raises(PlanError, match="router nginx is not known; known are: atomesh"):
        router_for("nginx")
