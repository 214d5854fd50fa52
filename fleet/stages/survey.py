"""What hosts are made of, all of them asked at once."""

from __future__ import annotations

from collections.abc import Sequence

from fleet import hardware, probes
from fleet.errors import CommandTimeout, FleetError
from fleet.hardware import Hardware
from fleet.model.inventory import Accelerator
from fleet.probes import Gpu
from fleet.session import Machine, Session


def survey(session: Session, *, models: Sequence[str] = ()) -> dict[str, Hardware | FleetError]:
    """By host. models: folders to look for models in, beside the inventory's and the usual ones."""

    def act(machine: Machine) -> Hardware:
        return look(machine, models)

    return session.each(session.names, act, timeout=4 * session.settings.timeouts.command)


def look(machine: Machine, models: Sequence[str] = ()) -> Hardware:
    """One machine. Raises HostError if it does not answer; a Docker that cannot be used is a finding."""
    plain = machine.probe(probes.docker_access())
    access = plain if plain.usable else machine.probe(probes.docker_access(sudo=True))
    prefix, cause = probes.docker_prefix(plain, access)
    kind, count, gpu = _gpus(machine)
    nics, interfaces = machine.probe(hardware.NETWORK)
    return Hardware(
        docker=access,
        sudo=bool(prefix),
        docker_cause=cause,
        accelerator=kind,
        gpus=count,
        gpu=gpu,
        nics=nics,
        interfaces=interfaces,
        models=_models(machine, [*models, machine.host.models]),
        scratch=machine.probe(hardware.scratch(machine.host.scratch)),
    )


def _gpus(machine: Machine) -> tuple[Accelerator, int, str]:
    """Kind, count and short name of the GPUs. A driver without any GPU counts for nothing."""
    drivers = machine.probe(hardware.DRIVERS)
    found: dict[Accelerator, tuple[Gpu, ...]] = {}
    names: dict[Accelerator, tuple[str, ...]] = {}
    if "rocm" in drivers:
        found["rocm"], names["rocm"] = machine.probe(probes.ROCM_GPUS), machine.probe(hardware.ROCM_NAMES)
    if "cuda" in drivers:
        found["cuda"], names["cuda"] = machine.probe(probes.CUDA_GPUS), machine.probe(hardware.CUDA_NAMES)
    counts = {kind: len(found[kind]) or len(names[kind]) for kind in found}
    kind = hardware.chosen({kind: gpus for kind, gpus in found.items() if counts[kind]})
    return kind, counts.get(kind, 0), hardware.model_name(names.get(kind, ()))


def _models(machine: Machine, folders: Sequence[str]) -> dict[str, tuple[str, ...]] | None:
    """A mount that hangs keeps even `timeout` from ending: then nobody knows."""
    try:
        return machine.probe(hardware.models(*dict.fromkeys(folders)))
    except CommandTimeout:
        return None
