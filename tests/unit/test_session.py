"""Machines of a session: how Docker is used, questions over HTTP, and the same work on all of them."""

from __future__ import annotations

import pytest

from fleet import http
from fleet.errors import CommandTimeout, FleetError, HostError, ServiceDied, Unreachable
from fleet.model.check import Response
from fleet.session import Machine, together
from tests.world import World

NODE = "mi355x-01"


@pytest.fixture
def world() -> World:
    return World()


def test_docker_is_used_as_the_user_where_that_works_and_asked_only_once(world: World) -> None:
    machine = world.session.machine(NODE)
    machine.docker(["docker", "ps"])
    machine.docker(["docker", "ps"])
    assert [line for line in world.nodes[NODE].lines if "version" in line] == [
        "docker version --format '{{.Server.Version}}'"
    ]
    assert machine.docker_prefix() == ()


def test_docker_goes_through_sudo_where_the_user_may_not(world: World) -> None:
    world.nodes[NODE].first = [(["docker"], (1, "", "permission denied while trying to connect"))]
    assert world.session.machine(NODE).docker(["docker", "ps"]).ok
    assert world.nodes[NODE].lines[-1] == "sudo -n docker ps"
    assert world.session.machine(NODE).docker_prefix() == ("sudo", "-n")


def test_without_docker_the_cause_and_the_line_to_type_are_told(world: World) -> None:
    world.nodes[NODE].first = [("docker version", (1, "", "Cannot connect to the Docker daemon"))]
    with pytest.raises(HostError) as told:
        world.session.machine(NODE).docker(["docker", "ps"])
    assert str(told.value) == (
        "mi355x-01: Docker cannot be used: the Docker daemon does not answer\ntry:  ssh mi355x-01 docker version"
    )


def test_stderr_goes_where_stdout_goes_when_both_are_wanted(world: World) -> None:
    kept: list[bytes] = []
    world.nodes[NODE].first = [("docker logs", b"both")]
    world.session.machine(NODE).docker_stream(["docker", "logs", "x"], timeout=5, sink=kept.append, both=True)
    assert b"".join(kept) == b"both"
    assert world.nodes[NODE].lines[-1] == "sh -c 'exec \"$@\" 2>&1' _ docker logs x"


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", Response(200, b"ok")),
        (7, "http://10.0.0.1:80/health: connection refused"),
        (CommandTimeout("late"), "http://10.0.0.1:80/health: no answer within 10 s"),
        (b"SSH-2.0", "http://10.0.0.1:80/health: not an HTTP answer: b'SSH-2.0'"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok",
            "http://10.0.0.1:80/health: answer cut short after 2 bytes",
        ),
    ],
)
def test_a_question_over_http_has_an_answer_or_a_reason(world: World, reply: object, answer: object) -> None:
    world.nodes[NODE].first = [("/dev/tcp", reply)]
    assert world.session.machine(NODE).ask(http.get("10.0.0.1", 80, "/health")) == answer


def test_a_lost_host_is_no_missing_answer(world: World) -> None:
    world.nodes[NODE].first = [("/dev/tcp", Unreachable("gone"))]
    with pytest.raises(Unreachable):
        world.session.machine(NODE).ask(http.get("10.0.0.1", 80, "/"))


def test_each_machine_has_its_answer_or_its_error(world: World) -> None:
    def act(machine: Machine) -> str:
        if machine.name == NODE:
            raise Unreachable("gone", where=machine.name)
        return machine.name

    answers = world.session.each([NODE, "mi355x-02", NODE], act)
    assert list(answers) == [NODE, "mi355x-02"]
    assert isinstance(answers[NODE], Unreachable)
    assert answers["mi355x-02"] == "mi355x-02"


def test_work_that_must_succeed_everywhere_raises_one_error(world: World) -> None:
    def act(machine: Machine) -> str:
        raise Unreachable("gone", where=machine.name)

    with pytest.raises(HostError) as told:
        world.session.all([NODE, "mi355x-02"], act)
    assert str(told.value) == "mi355x-01: gone\nmi355x-02: gone"
    with pytest.raises(Unreachable):
        world.session.all([NODE], act)


def test_several_errors_end_with_the_highest_code() -> None:
    both: list[FleetError] = [HostError("a"), ServiceDied("b")]
    assert together(both).exit_code == 4
