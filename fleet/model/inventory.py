"""Who we have: hosts, their groups, and what is known of each."""

from __future__ import annotations

from typing import Literal

from fleet.model.base import Model, Text, Word

Accelerator = Literal["rocm", "cuda", "none"]


class Fabric(Model):
    """The fast network of a host: the address its peers use for KV transfer, and its NICs (RDMA device names)."""

    address: Word | None = None
    nics: tuple[Word, ...] = ()


class Trial(Model):
    """A small load that proves the chain works. It changes only the client; its numbers are never a measurement.

    input, output: tokens. prompts_per_concurrency: prompts = this × concurrency. max_concurrency: larger points are
    capped.
    """

    input: int = 256
    output: int = 32
    prompts_per_concurrency: int = 4
    max_concurrency: int = 64


class Host(Model):
    """One machine. Paths are on that machine; `address` may be an alias of ~/.ssh/config (default: the name).

    secrets: by name where the value comes from, `env` or `!cmd …`; never the value.
    """

    name: str
    address: Word | None = None
    user: Word | None = None
    port: int | None = None
    gateway: Word | None = None
    identity: Text | None = None
    gpus: int = 0
    gpu: Text | None = None
    accelerator: Accelerator = "none"
    fabric: Fabric = Fabric()
    models: Text = "/models"
    scratch: Text = "/tmp/fleet"
    env: dict[str, str] = {}
    secrets: dict[str, str] = {}
    mounts: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    privileged: bool = False
    runners: tuple[Word, ...] = ()
    groups: tuple[str, ...] = ()

    @property
    def place(self) -> tuple[str, int, str]:
        """Where its sshd is: two hosts of one place are one machine. Behind another gateway an address is another's."""
        return (self.address or self.name).casefold(), self.port or 22, self.gateway or ""

    @property
    def fast_address(self) -> str:
        """The address peers use: the fast network's where one is given."""
        return self.fabric.address or self.address or self.name


class Inventory(Model):
    """All hosts in file order. `provision` is "static", or "lab" for nodes made by `invoke lab.up`.

    `trial`: the numbers of a trial here. `notes`: what the file says and fleet does not use.
    """

    path: str
    hosts: tuple[Host, ...]
    provision: Literal["static", "lab"] = "static"
    ssh_config: str | None = None
    trial: Trial | None = None
    notes: tuple[str, ...] = ()

    @property
    def always_trial(self) -> bool:
        """A lab's nodes have no GPUs: no real load can run there."""
        return self.provision == "lab"

    def trial_for(self, *, asked: bool) -> Trial | None:
        """The small load of a sweep here, None if it is a real one. asked: with `--trial`."""
        return (self.trial or Trial()) if asked or self.always_trial else None
