"""Secrets on their way: from the operator's environment or a local command to a file on each host, and nowhere else."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace

from fleet import docker
from fleet.docker import Container
from fleet.errors import FleetError, UsageError, shown
from fleet.hosts.base import quoted
from fleet.hosts.local import Local
from fleet.plan import Plan
from fleet.secret import ENVIRONMENT, Secrets, parsed, words
from fleet.session import Machine
from fleet.stages.deployment import Deployment
from fleet.words import counted

NOT_FOUND = 127

COMMAND_SECONDS = 60.0
"""For a local command that prints a value: somebody may have to type a passphrase."""

HERE = "in your environment"

KEPT_BACK = "what it said is kept back, it may hold the value"

_BYTES = ("utf-8", "surrogateescape")


def gathered(plan: Plan, environment: Mapping[bytes, bytes] = os.environb) -> Secrets:
    """The values of every secret of a plan. Raises UsageError: all that are missing at once."""
    found: dict[str, dict[str, bytes]] = {}
    known: dict[tuple[str, str], bytes] = {}
    missing: dict[str, str] = {}
    for host, name, source in _wanted(plan):
        at = (name, source) if source == ENVIRONMENT else ("", source)
        if at not in known and name not in missing:
            try:
                known[at] = _environment(name, environment) if source == ENVIRONMENT else _printed(name, source)
            except ValueError as why:
                missing[name] = str(why)
        if at in known:
            found.setdefault(host, {})[name] = known[at]
    if missing:
        what = "\n".join([f"{counted(len(missing), 'secret')} of {plan.key} cannot be had", *_lines(missing)])
        raise UsageError(what, hint=_hint(missing, plan.inventory.path))
    return Secrets(found)


def _wanted(plan: Plan) -> Iterator[tuple[str, str, str]]:
    """Host, name and source of each secret, each once."""
    found = {}
    for arm in plan.arms:
        for service in (*arm.services, *(planned.client for planned in arm.points)):
            sources = arm.placement.host(service.host).secrets
            for name in service.secrets:
                found[service.host, name] = sources.get(name, ENVIRONMENT)
    yield from ((host, name, source) for (host, name), source in found.items())


def _lines(missing: Mapping[str, str]) -> list[str]:
    return [f"  {name}: {why}" for name, why in missing.items()]


def _hint(missing: Mapping[str, str], inventory: str) -> str:
    unset = [name for name, why in missing.items() if why.endswith(HERE)]
    lines = [f"type: read -rs {name} && export {name}   (nothing of it shows)" for name in unset]
    if silent := [name for name, why in missing.items() if why.endswith(KEPT_BACK)]:
        whose = f"the command of {', '.join(silent)} as {inventory} has it"
        lines.append(f"to see what it says: {whose}, with >/dev/null behind it")
    return "\n".join(["nothing was started", *lines])


def _environment(name: str, environment: Mapping[bytes, bytes]) -> bytes:
    value = environment.get(name.encode())
    if not value:
        raise ValueError(f"{'empty' if value == b'' else 'not set'} {HERE}")
    return value


def _printed(name: str, source: str) -> bytes:
    """What a command prints, without the ends of lines behind it. Nothing that it printed, and none of its words but
    the first, is in a message."""
    argv = words(source)
    told = shown(argv[0])
    try:
        outcome = Local().run(argv, timeout=COMMAND_SECONDS, check=False)
    except FleetError:
        raise ValueError(f"{told} did not end within {COMMAND_SECONDS:g} s") from None
    value = outcome.stdout.rstrip(b"\r\n")
    if outcome.code == NOT_FOUND:
        raise ValueError(f"{told} ended with code {outcome.code} (no such command?); {KEPT_BACK}")
    if not outcome.ok:
        raise ValueError(f"{told} ended with code {outcome.code}; {KEPT_BACK}")
    if not value or b"\0" in value:
        raise ValueError(f"{told} printed {'a NUL byte' if value else 'nothing'}; {KEPT_BACK}")
    return value


def written(values: Mapping[str, bytes]) -> bytes:
    """The file that a container's shell reads: any byte but NUL arrives as it is."""
    lines = (f"{name}={quoted([value.decode(*_BYTES)])}\n" for name, value in sorted(values.items()))
    return "".join(lines).encode(*_BYTES)


def bring(machine: Machine, deployment: Deployment) -> None:
    """The file of a host's secrets, readable by the login user (and root) alone; its content goes by stdin."""
    if values := machine.secrets.of(machine.name):
        path = docker.secrets_path(machine.host, deployment.labels.run)
        machine.transport.put(written(values), path, mode=0o600)


def knowing(machine: Machine, container: Container) -> Machine:
    """The machine, masking what a run's containers were given: read from the run's own file on the host, so that it
    works for everyone who may read that, whoever started the run.
    """
    if machine.secrets or not container.labels.get("secrets"):
        return machine
    outcome = machine.run(["cat", docker.secrets_path(machine.host, container.labels["run"])], check=False)
    try:
        return replace(machine, secrets=Secrets({machine.name: parsed(outcome.stdout)})) if outcome.ok else machine
    except ValueError:
        return machine
