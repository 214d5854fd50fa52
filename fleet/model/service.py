"""A service: what one container is. Engines, routers and load clients describe services; `fleet.docker` runs them."""

from __future__ import annotations

from typing import Literal

from fleet.model.base import Model
from fleet.model.seat import Seat


class Mount(Model):
    source: str
    target: str
    read_only: bool = True


class Port(Model):
    """A TCP port the service occupies on its host. `peers` are hosts that must reach it."""

    name: str
    number: int
    public: bool = True


class Service(Model):
    """One container.

    argv: the whole command, entrypoint included. env: plain values; secrets: names of variables, sorted, whose values
    nothing but the container sees.
    http: the port of its HTTP interface, None if it has none. stop_signal: what asks it to end; stop_timeout: seconds
    from that to KILL.
    origins: where each flag or variable comes from ("--max-model-len" → "config: isl + osl + 256"), for readers.
    consumes: names of declared values that this service carries, as `role.field` or `field` ("prefill.tp").
    """

    seat: Seat
    kind: Literal["server", "router", "client"]
    image: str
    argv: tuple[str, ...]
    env: dict[str, str] = {}
    secrets: tuple[str, ...] = ()
    mounts: tuple[Mount, ...] = ()
    ports: tuple[Port, ...] = ()
    http: int | None = None
    gpu: bool = False
    stop_timeout: int = 60
    stop_signal: Literal["SIGTERM", "SIGINT"] = "SIGTERM"
    origins: dict[str, str] = {}
    consumes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.seat.name

    @property
    def host(self) -> str:
        return self.seat.host
