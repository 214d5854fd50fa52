"""Stop and remove what carries our labels, and nothing else."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from fleet import docker, probes
from fleet.docker import Container
from fleet.errors import FleetError, HostError, NotKept, UsageError, shown
from fleet.hosts.base import Deadline
from fleet.session import Machine, Session
from fleet.stages.deployment import Deployment
from fleet.words import counted

STOP_SECONDS = 180.0
"""For all containers of a host: the longest stop timeout of a service is a minute."""

PORT_SECONDS = 5.0
"""How long a port may take to be free after its container is gone."""

GPU_SECONDS = 30.0
"""The same for GPU memory, which the driver gives back page by page."""

LOOK = 0.5
"""Seconds between two looks at them."""

KEEP_SECONDS = 300.0
"""For saving the logs of a host's containers before they are removed."""


def teardown(deployment: Deployment) -> list[FleetError]:
    """The router first, so that nothing new is sent; then the rest, all hosts at once; then the run's scratch folders.

    What could not be done is returned, not raised: the other hosts are cleared all the same.
    """
    if deployment.arm.router and (host := deployment.arm.router.host) in deployment.reachable:
        deployment.session.each([host], lambda one: _remove(one, deployment, role="router"), timeout=STOP_SECONDS)
    answers = deployment.session.each(
        deployment.reachable, lambda machine: _clear(machine, deployment), timeout=STOP_SECONDS
    )
    lost = [_left(deployment, host) for host in deployment.hosts if host in deployment.vigil.lost]
    return [*lost, *deployment.problems(answers)]


def _left(deployment: Deployment, host: str) -> HostError:
    """What stays on a host that was lost."""
    what = "lost: its containers and their logs are left there; when it is back"
    return HostError(f"{what}: invoke down --run {deployment.labels.run}", where=host)


def _clear(machine: Machine, deployment: Deployment) -> None:
    """Where another run has our names, and so perhaps this run's own name, its folder may be in use by that one."""
    _remove(machine, deployment)
    if not deployment.taken and machine.name not in deployment.unsaved:
        machine.run(["rm", "-rf", deployment.scratch(machine.name)])
        came_back(machine, {port.number: one.name for one in deployment.on(machine.name) for port in one.ports})


def came_back(machine: Machine, ports: Mapping[int, str]) -> None:
    """Wait until what our services had is free again. ports: by number, whose each was.

    Raises HostError for a port that is still held, with the holder, and for GPU memory.
    """
    deadline = Deadline(PORT_SECONDS)
    while left := (machine.probe(probes.PORTS) or frozenset()) & ports.keys():
        if not deadline.left():
            seen, there = machine.probe(probes.holders(machine.docker_prefix())), everything(machine)
            whose = {port: seen[port].said(there) if port in seen else "" for port in sorted(left)}
            told = [f"port {one} ({ports[one]}) is still held by {by or 'somebody'}" for one, by in whose.items()]
            raise HostError("; ".join(told), where=machine.name, hint=_who(machine, min(left)))
        time.sleep(LOOK)
    deadline = Deadline(GPU_SECONDS)
    while why := gpus_busy(machine):
        if not deadline.left():
            raise HostError(f"{why} although our containers are gone", where=machine.name)
        time.sleep(LOOK)


def _who(machine: Machine, port: int) -> str:
    return f"who:  {machine.transport.ssh_line(['ss', '-ltnp', f'sport = :{port}'])}"


def gpus_busy(machine: Machine) -> str:
    """What GPU memory is in use, in words; "" where none is, or nobody can tell."""
    kind = machine.host.accelerator
    which = {"rocm": probes.ROCM_GPUS, "cuda": probes.CUDA_GPUS}.get(kind)
    if which is None:
        return ""
    gpus = machine.probe(which)
    if not (why := probes.not_idle(gpus, 0)):
        return ""
    seen = machine.probe(probes.ROCM_HOLDERS if kind == "rocm" else probes.CUDA_HOLDERS)
    return f"{why}{probes.held_by(seen, everything(machine))}"


def _remove(machine: Machine, deployment: Deployment, *, role: str = "") -> None:
    filters = {"run": deployment.labels.run, "arm": deployment.labels.arm} | ({"role": role} if role else {})
    mine = [one for one in ours(machine, **filters) if one.name not in deployment.taken]
    remove(machine, mine, keep=deployment.unsaved.get(machine.name, frozenset()))


def ours(machine: Machine, **labels: str) -> list[Container]:
    """Containers on a machine that carry our labels with these values."""
    filters = [f"{docker.PREFIX}.{name}={value}" for name, value in labels.items()] or [f"{docker.PREFIX}.run"]
    return docker.parse_ps(machine.docker(docker.ps_argv(*filters)).out)


def remove(machine: Machine, containers: list[Container], *, keep: Collection[str] = ()) -> None:
    """Stop (TERM, then KILL after each container's own stop timeout) and remove. Paused ones are woken first; those
    that would not hear the signal are killed at once.

    keep: names of those that are stopped only.
    """
    if not containers:
        return
    names = [container.id for container in containers]
    paused = [container.id for container in containers if container.state == "paused"]
    if paused:
        machine.docker(["docker", "unpause", *paused], check=False)
    if deaf := _deaf(machine, names):
        machine.docker(docker.kill_argv(deaf), check=False)
    machine.docker(docker.stop_argv(names), timeout=STOP_SECONDS)
    if gone := [container.id for container in containers if container.name not in keep]:
        machine.docker(docker.rm_argv(gone), timeout=STOP_SECONDS)


def _deaf(machine: Machine, names: list[str]) -> list[str]:
    inits = docker.inits(machine.docker(docker.inspect_argv(names), check=False).out)
    if not inits:
        return []
    deaf = machine.probe(probes.deaf({pid: sign for pid, (_, sign) in inits.items()}))
    return [inits[pid][0] for pid in sorted(deaf)]


def everything(machine: Machine) -> list[Container]:
    """All containers of a machine, strangers' included."""
    return docker.parse_ps(machine.docker(docker.ps_argv()).out)


def one_run(runs: Mapping[str, str], asked: str, me: str) -> str:
    """The run that a name or the beginning of one means, among those with containers (name → owner); the word itself
    where none is meant. Raises UsageError where it could be several, or a beginning means a run of another owner.
    """
    meant = [asked] if asked in runs else sorted(name for name in runs if name.startswith(asked))
    lines = [f"invoke down --run {name}   (of {runs[name]})" for name in meant]
    if len(meant) > 1:
        raise UsageError(f"--run {shown(asked)} could be {counted(len(meant), 'run')}", hint="\n".join(lines))
    if meant and meant != [asked] and runs[meant[0]] != me:
        what = f"--run {shown(asked)} is a run of {runs[meant[0]]}: to remove it its whole name is needed"
        raise UsageError(what, hint=lines[0])
    return meant[0] if meant else asked


Keep = Callable[[Machine, Container], None]
"""Saves the log of a container here."""


def saved(machine: Machine, containers: Sequence[Container], keep: Keep) -> dict[str, NotKept]:
    """Save their logs; by name the containers whose logs the disk here does not take."""
    refused = {}
    for container in containers:
        try:
            keep(machine, container)
        except NotKept as problem:
            refused[container.name] = problem
    return refused


def unsaved(machine: Machine, refused: Mapping[str, NotKept], again: str) -> HostError:
    """What to say of containers that stay for that reason. again: the line that fetches their logs and removes them."""
    lines = [f"{one.what}: the log of {name} could not be saved as {one.where}" for name, one in refused.items()]
    stay = "its container stays, stopped" if len(refused) == 1 else "their containers stay, stopped"
    elsewhere = "free some space there, or name another folder: INVOKE_FLEET_RESULTS=FOLDER before invoke"
    hint = f"{elsewhere}\nthen this brings the logs home and removes the containers: {again}"
    return HostError("\n".join([*lines, stay]), where=machine.name, hint=hint)


def down(
    session: Session,
    wanted: Callable[[Container], bool],
    keep: Keep,
    *,
    run: str = "",
    refused: dict[str, Mapping[str, NotKept]] | None = None,
) -> dict[str, list[str] | FleetError]:
    """Remove those of our containers that are wanted, each after `keep` has saved its log. What went, by host.

    The scratch folder of a run that has no container left on a host goes, too; that of `run` even if it never had one.
    refused: gets, by host and name, the containers whose logs the disk here did not take: they are stopped, and stay.
    """

    def act(machine: Machine) -> list[str]:
        found = [container for container in ours(machine) if wanted(container)]
        if (kept := saved(machine, found, keep)) and refused is not None:
            refused[machine.name] = kept
        remove(machine, found, keep=kept)
        runs = {one.labels["run"] for one in found} | ({run} if run else set())
        folders = _remove_scratch(machine, runs - {one.labels["run"] for one in ours(machine)}) if runs else []
        return [container.name for container in found if container.name not in kept] or folders

    return session.each(session.names, act, timeout=KEEP_SECONDS + STOP_SECONDS)


def _remove_scratch(machine: Machine, runs: set[str]) -> list[str]:
    """What was removed. A run that is no plain name (anyone can set a label) has no folder of ours."""
    plain = sorted(run for run in runs if re.fullmatch(r"\w[\w.+@=-]*", run))
    folders = [docker.scratch_path(machine.host, run) for run in plain]
    there = [folder for folder in folders if machine.run(["test", "-e", folder], check=False).ok]
    if there:
        machine.run(["rm", "-rf", *there])
    return there
