"""Between two points: the servers are at rest before the next load begins."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from fleet.errors import NotReady
from fleet.hosts.base import Deadline
from fleet.model.service import Service
from fleet.stages import counters, watch
from fleet.stages.deployment import Deployment, spoken
from fleet.stages.wait import NotYet, wait
from fleet.words import counted

EVERY = 1.0
"""Seconds between two looks at the servers."""

LOOK_SECONDS = 30.0
"""How long servers may take to publish what is under way."""

STILL_SECONDS = 60.0
"""A server that does not say what is under way is at rest once it has finished nothing for so long."""


def rest(deployment: Deployment, *, after: str, before: str, within: float) -> None:
    """Wait until no server works on a request of a load that was cut short. after, before: the two points in words.

    within: seconds. Raises NotReady with what is still under way, ServiceDied or HostError.
    """
    deadline, progress, host = Deadline(within), deployment.session.progress, deployment.front.host
    servers = Servers(deployment)

    def tell(why: str) -> None:
        if not servers.busy:
            progress.line(f"  {before} waits until the servers have done with {after}: {why}")
        servers.busy = why
        progress.host("rest", host, why)

    try:
        wait(servers.look, what=f"rest after {after}", within=within, every=EVERY, telling=tell)
    except NotReady:
        why = f"the servers had not done with {after} after {deadline.spent():.0f} s: {servers.busy}"
        raise NotReady(f"{before} is not run: {why}", hint="type: invoke logs") from None
    if servers.busy:
        progress.host("rest", host, f"no request is under way after {deadline.spent():.1f} s", done=True)


@dataclass
class Servers:
    """The servers that are waited for. busy: what was under way at the last look, "" before the first."""

    deployment: Deployment
    busy: str = ""
    still: dict[str, tuple[float | None, float]] = field(default_factory=dict)

    def look(self) -> bool | NotYet:
        watch.alive(self.deployment)
        metrics = watch.meanwhile(self.deployment, lambda: counters.fresh(self.deployment, within=LOOK_SECONDS))
        whys = [(one, self._why(one, metrics.get(one.name))) for one in counters.http_servers(self.deployment)]
        told = [f"{spoken(one)} {why}" for one, why in whys if why]
        return NotYet("; ".join(told)) if told else True

    def _why(self, server: Service, metrics: str | None) -> str:
        """Why a server is not at rest; "" if it is."""
        if metrics is None:
            return "shows no counters"
        under_way = self.deployment.engine.under_way(metrics)
        if under_way is None:
            return self._moving(server.name, self.deployment.engine.counters(metrics).finished)
        return f"works on {counted(under_way, 'request')}" if under_way else ""

    def _moving(self, name: str, finished: float | None) -> str:
        """By the counter of finished requests, where there is no count of those under way."""
        seen, since = self.still.get(name, (None, 0.0))
        if finished is None or finished != seen:
            self.still[name] = (finished, time.monotonic())
        elif time.monotonic() - since >= STILL_SECONDS:
            return ""
        return "does not say what it works on"
