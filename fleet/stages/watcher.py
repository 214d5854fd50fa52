"""Follows an arm from launch to teardown: every host's heart beat and Docker events, and whether its engines live."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

from fleet import docker
from fleet.errors import CommandFailed, FleetError, HostError
from fleet.session import Machine
from fleet.stages.corpse import Inquest
from fleet.stages.deployment import Deployment
from fleet.stages.pulse import Pulse

TURN = 60.0
"""Seconds after which a stream of events is begun anew: none outlives us for long on a host."""

OVERLAP = 5.0
"""Seconds that a stream begins before now: clocks differ, and an engine tells the past as well."""

PAUSE = 0.5
"""Seconds between two streams."""

ANSWER_SECONDS = 5.0
"""For an engine to say that it is there."""

ENDING = 2.0
"""Seconds at the end for all streams to be ended on their hosts."""

GONE = ("cannot connect to the docker daemon", "is the docker daemon running", "error during connect")


class Watcher:
    """Keeps the deployment's vigil while the block runs; what it runs on the hosts ends with it."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._vigil = deployment.vigil
        self._stopped = threading.Event()
        self._began = time.time()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Watcher:
        self._vigil.kept = True
        for host in self._deployment.hosts:
            machine = self._deployment.session.machine(host)
            for act in (self._pulse, self._follow):
                self._begin(host, act, machine)
        self._begin("engines", self._inquire)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stopped.set()
        self._vigil.kept = False
        for host in self._deployment.reachable:
            self._deployment.session.machine(host).transport.cancel()
        end = time.monotonic() + ENDING
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))

    def _begin(self, name: str, act: Callable[..., None], *machine: Machine) -> None:
        thread = threading.Thread(target=act, args=machine, name=f"fleet-watch-{name}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _inquire(self) -> None:
        """Once the arm is ready: what a start logs is read when it has failed."""
        inquest = Inquest(self._deployment)
        while not self._stopped.wait(inquest.pause):
            if self._vigil.serving:
                with suppress(FleetError):
                    inquest.look()

    def _pulse(self, machine: Machine) -> None:
        def lost(why: str) -> None:
            self._deployment.session.lost.add(machine.name)
            self._vigil.note(self._vigil.lost, machine.name, why)

        def alive(now: float) -> None:
            self._vigil.answered[machine.name] = now

        Pulse(machine.transport, self._stopped, lost, alive).watch()

    # ------------------------------------------------------------------ events

    def _follow(self, machine: Machine) -> None:
        """Stream after stream. What ends one early is looked into; a host that is lost is its pulse's to tell."""
        since = self._began
        while not self._over(machine):
            begun = time.time()
            try:
                self._stream(machine, since)
            except FleetError:
                pass
            finally:
                self._vigil.following.discard(machine.name)
            since = begun
            if not self._over(machine):
                self._ask(machine)
                self._stopped.wait(PAUSE)

    def _over(self, machine: Machine) -> bool:
        return self._stopped.is_set() or machine.name in self._vigil.lost or machine.name in self._vigil.engines

    def _stream(self, machine: Machine, since: float) -> None:
        rest = b""

        def hear(data: bytes) -> None:
            nonlocal rest
            if self._stopped.is_set():
                raise FleetError("the watch is over")
            lines, _, rest = (rest + data).rpartition(b"\n")
            for event in docker.parse_events(lines.decode(errors="replace")):
                self._vigil.hear(machine.name, event)

        labels = self._deployment.labels
        there = since - OVERLAP + self._deployment.clocks.get(machine.name, 0.0)
        argv = docker.watch_argv(labels.run, labels.arm, there)
        self._vigil.following.add(machine.name)
        machine.docker_stream(argv, timeout=TURN, sink=hear, check=False)

    def _ask(self, machine: Machine) -> None:
        """Whether the engine is still there."""
        try:
            machine.docker(docker.info_argv(), timeout=ANSWER_SECONDS)
        except CommandFailed as problem:
            if any(words in problem.what.lower() for words in GONE):
                self._vigil.note(self._vigil.engines, machine.name, "stopped")
        except HostError:
            pass


class Bystander:
    """Keeps the pulse of an arm's hosts while the arm is cleared away: nobody waits for one that is lost meanwhile."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._stopped = threading.Event()

    def __enter__(self) -> Bystander:
        for host in self._deployment.reachable:
            machine = self._deployment.session.machine(host)
            threading.Thread(target=self._watch, args=(machine,), name=f"fleet-bystander-{host}", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stopped.set()

    def _watch(self, machine: Machine) -> None:
        vigil = self._deployment.vigil
        Pulse(
            machine.transport,
            self._stopped,
            lambda why: vigil.note(vigil.lost, machine.name, why),
            lambda now: None,
        ).watch()
        while machine.name in vigil.lost and not self._stopped.wait(PAUSE):
            machine.transport.cancel()
