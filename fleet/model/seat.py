"""Seats: which role's rank sits on which host with which GPUs."""

from __future__ import annotations

from fleet.model.arm import Arm, Role
from fleet.model.base import Model
from fleet.model.inventory import Host


class Seat(Model):
    """One rank of one role. A worker that spans hosts has one seat per host, `node` 0 … `span` - 1."""

    role: Role
    rank: int
    host: str
    gpus: tuple[int, ...] = ()
    node: int = 0
    span: int = 1

    @property
    def name(self) -> str:
        """Short and unique in a deployment: prefill0, decode0, router, client; prefill0.1 for a second host."""
        base = self.role if self.role in ("router", "client") else f"{self.role}{self.rank}"
        return f"{base}.{self.node}" if self.node else base


class Placement(Model):
    """An arm with a host for each of its seats: first those that serve (prefill, decode or server), router, client."""

    arm: Arm
    seats: tuple[Seat, ...]
    hosts: tuple[Host, ...]

    def host(self, name: str) -> Host:
        return next(host for host in self.hosts if host.name == name)

    def of(self, role: Role) -> tuple[Seat, ...]:
        return tuple(seat for seat in self.seats if seat.role == role)
