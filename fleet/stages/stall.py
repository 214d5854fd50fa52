"""A start that makes no progress: its log is silent and none of its processes uses a CPU."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import datetime

from fleet import docker
from fleet.errors import NotReady
from fleet.model.service import Service
from fleet.session import Machine
from fleet.stages.deployment import ANSWER_SECONDS, Deployment, spoken
from fleet.timeline import seen

LOOKS = 20
"""How often in the time after which a start counts as stalled it is looked at."""

WIDTH = 160


@dataclass
class Stall:
    """What a starting container showed last, and since when it shows nothing else. Seconds of one clock."""

    asked: float = 0.0
    since: float = 0.0
    clock: str = ""
    shows: tuple[str, str] = field(default=("", ""))

    def look(self, machine: Machine, deployment: Deployment, service: Service) -> None:
        """Raises NotReady once nothing has changed for `stalled_after`."""
        after, now = machine.settings.timeouts.stalled_after, time.monotonic()
        if self.asked and now - self.asked < after / LOOKS:
            return
        self.asked = now
        shows = _shows(machine, deployment.named(service))
        if shows is None or shows != self.shows or not self.since:
            self.shows, self.since, self.clock = shows or ("", ""), now, f"{datetime.now():%H:%M:%S}"
        elif now - self.since >= after:
            last = seen(self.shows[0].partition(" ")[2]).strip()[:WIDTH] or "none"
            what = f"no progress since {self.clock} ({now - self.since:.0f} s): its log is silent and it uses no CPU"
            raise NotReady(f"{spoken(service)}: {what}; last line: {last}", hint="type: invoke logs")


def _shows(machine: Machine, name: str) -> tuple[str, str] | None:
    """The last line of a container's log and the CPU time of its processes; None if docker does not say."""
    lines: list[bytes] = []
    tail = machine.docker_stream(
        docker.logs_argv(name, tail=1), timeout=ANSWER_SECONDS, sink=lines.append, both=True, check=False
    )
    top = machine.docker(docker.cpu_argv(name), timeout=ANSWER_SECONDS, check=False)
    if not tail.ok or not top.ok:
        return None
    return b"".join(lines).decode(errors="replace").strip(), docker.parse_cpu(top.out)
