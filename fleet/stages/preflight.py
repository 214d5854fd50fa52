"""Everything that can be known before a container starts: what is found on each host, and every reason not to start."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from fleet import docker, probes, proof
from fleet.checkpoint import Checkpoint
from fleet.docker import Container, Image, container_name
from fleet.errors import FleetError, LeaseHeld, PreflightError, shown
from fleet.model.inventory import Host
from fleet.model.service import Service
from fleet.plan import Plan
from fleet.probes import Gpu, Holder, Listing
from fleet.session import Machine, Session, owner
from fleet.stages import weights
from fleet.stages.launch import image_on

CLOCK_LIMIT = 1.0
"""Seconds a host's clock may be off: logs of several hosts are read as one."""

FREE_SCRATCH = 1 << 30
"""Bytes a run may need in a host's scratch folder: results and logs of a sweep are megabytes."""

REACH_SECONDS = 3
"""How long one connection to a peer may take to be made or refused."""


@dataclass(frozen=True)
class Findings:
    """One host as it was found. None: it could not be found out. `seconds`: one short command, connection open.

    models: their files by name and size; weights: by content too, which only a preflight asks.
    """

    seconds: float
    docker: str = ""
    sudo: bool = False
    clock_offset_s: float | None = None
    ports: frozenset[int] | None = None
    disk: dict[str, int] = field(default_factory=dict)
    missing_devices: tuple[str, ...] | None = ()
    gpus: tuple[Gpu, ...] = ()
    models: dict[str, Listing | None] = field(default_factory=dict)
    weights: dict[str, Checkpoint | None] = field(default_factory=dict)
    images: dict[str, Image | None] = field(default_factory=dict)
    containers: tuple[Container, ...] = ()
    facts: dict[str, str] = field(default_factory=dict)
    holders: dict[int, Holder] = field(default_factory=dict)
    gpu_holders: tuple[Holder, ...] = ()

    def holder(self, port: int) -> str:
        """Who listens there, as far as this user may see it, and how to find out more."""
        by = self.holders.get(port, Holder()).said(self.containers)
        return f" by {by}" if by else f"; who: ss -ltnp 'sport = :{port}'"

    @property
    def strangers(self) -> tuple[str, ...]:
        return probes.strangers(self.containers)

    @property
    def ours(self) -> tuple[Container, ...]:
        """But for containers that only prove an image: they take nothing that a run wants."""
        return tuple(one for one in self.containers if one.ours and one.labels.get("role") != proof.ROLE)


@dataclass(frozen=True)
class Needs:
    """What a plan wants of one host. `ports` → who listens there; `peers`: (address, port) it must reach; `names`: of
    its containers.
    """

    services: tuple[Service, ...] = ()
    names: frozenset[str] = frozenset()
    ports: dict[int, str] = field(default_factory=dict)
    peers: tuple[tuple[str, int], ...] = ()
    models: tuple[str, ...] = ()
    images: tuple[str, ...] = ()


def needs(plan: Plan) -> dict[str, Needs]:
    """By host, over all arms of a plan."""
    found: dict[str, Needs] = {}
    for arm in plan.arms:
        services = [*arm.servers, *((arm.router,) if arm.router else ())]
        for seat in arm.placement.seats:
            own = tuple(service for service in services if service.host == seat.host)
            others = [service for service in services if service.host != seat.host]
            before = found.get(seat.host, Needs())
            peers = {
                (arm.placement.host(s.host).fast_address, port.number)
                for s in others
                for port in s.ports
                if port.public
            }
            found[seat.host] = Needs(
                services=(*before.services, *own),
                names=before.names | {container_name(service, plan.labels(arm, "", "")) for service in own},
                ports={**before.ports, **{port.number: service.name for service in own for port in service.ports}},
                peers=tuple(sorted({*before.peers, *peers})),
                models=tuple(dict.fromkeys((*before.models, arm.arm.model_basename))),
                images=tuple(dict.fromkeys((*before.images, arm.arm.image))),
            )
    return found


def look(session: Session, wanted: dict[str, Needs]) -> dict[str, Findings | FleetError]:
    """Ask every host everything, all at once; a host that does not answer has its error as finding."""

    def act(machine: Machine) -> Findings:
        return find(machine, wanted.get(machine.name, Needs()))

    return session.each(wanted, act, timeout=4 * session.settings.timeouts.command)


def find(machine: Machine, want: Needs) -> Findings:
    """All findings on one host. Raises HostError if it does not answer, or Docker cannot be used."""
    host = machine.host
    # The first command opens the connection: it would count as clock offset.
    machine.probe(probes.CLOCK)
    offset, seconds = clock(machine)
    prefix = machine.docker_prefix()
    info = docker.parse_info(machine.docker(docker.info_argv()).out)
    root = str(info.get("DockerRootDir", "/var/lib/docker"))
    ports, gpus = machine.probe(probes.PORTS), _gpus(machine)
    return Findings(
        seconds=seconds,
        docker=str(info.get("ServerVersion", "")),
        sudo=bool(prefix),
        clock_offset_s=offset,
        ports=ports,
        disk=free(machine, root, host.scratch),
        missing_devices=machine.probe(probes.missing(*devices(host))) if devices(host) else (),
        gpus=gpus,
        gpu_holders=_gpu_holders(machine) if probes.not_idle(gpus, 0) else (),
        models={name: machine.probe(probes.directory(f"{host.models}/{name}")) for name in want.models},
        images={tag: image_on(machine, tag) for tag in want.images},
        containers=tuple(docker.parse_ps(machine.docker(docker.ps_argv()).out)),
        facts=machine.probe(probes.FACTS),
        holders=machine.probe(probes.holders(prefix)) if ports and ports & want.ports.keys() else {},
    )


def clock(machine: Machine, *, timeout: float = 0) -> tuple[float | None, float]:
    """How many seconds a host's clock is ahead, None if it cannot be read, and the seconds that asking took.

    The offset may be wrong by half of these. The connection is to be open before.
    """
    began = time.time()
    read = machine.probe(probes.CLOCK, timeout=timeout)
    done = time.time()
    return None if read is None else probes.clock_offset(read, began, done)[0], done - began


def free(machine: Machine, *paths: str) -> dict[str, int]:
    """Free bytes where each path is, or will be once it is made."""
    lineages = {path: [path, *map(str, PurePosixPath(path).parents)] for path in paths}
    free = machine.probe(probes.disk(*dict.fromkeys(one for lineage in lineages.values() for one in lineage)))
    nearest = {path: next((one for one in lineage if one in free), None) for path, lineage in lineages.items()}
    return {path: free[one] for path, one in nearest.items() if one is not None}


def devices(host: Host) -> tuple[str, ...]:
    rocm = ("/dev/kfd", "/dev/dri") if host.accelerator == "rocm" else ()
    fabric = ("/dev/infiniband",) if host.fabric.nics else ()
    return (*rocm, *fabric, *(device.partition(":")[0] for device in host.devices))


def _gpus(machine: Machine) -> tuple[Gpu, ...]:
    which = {"rocm": probes.ROCM_GPUS, "cuda": probes.CUDA_GPUS}.get(machine.host.accelerator)
    return machine.probe(which) if which else ()


def _gpu_holders(machine: Machine) -> tuple[Holder, ...]:
    return machine.probe(probes.ROCM_HOLDERS if machine.host.accelerator == "rocm" else probes.CUDA_HOLDERS)


def held_gpus(found: Findings) -> str:
    """What somebody has of the GPUs' memory, and who; "" if nothing."""
    why = probes.not_idle(found.gpus, 0)
    return why and why + probes.held_by(found.gpu_holders, found.containers)


def reasons(
    plan: Plan,
    hosts: Sequence[Host],
    found: dict[str, Findings | FleetError],
    *,
    own: str = "",
    beside_strangers: bool = False,
) -> list[str]:
    """Every reason not to start, host by host, then the images, which must be the same everywhere."""
    wanted, by_name = needs(plan), {host.name: host for host in hosts}
    told: list[str] = []
    good: dict[str, Findings] = {}
    for name, finding in found.items():
        if isinstance(finding, FleetError):
            told.append(str(finding).replace("\n", "\n  "))
        else:
            good[name] = finding
            whys = host_reasons(
                by_name[name],
                wanted[name],
                finding,
                inventory=plan.inventory.path,
                own=own,
                beside_strangers=beside_strangers,
            )
            told += [f"{name}: {why}" for why in whys]
    for tag in dict.fromkeys(tag for need in wanted.values() for tag in need.images):
        told += _image_reasons(tag, good, all_asked=len(good) == len(found))
    return told


def _image_reasons(tag: str, good: dict[str, Findings], *, all_asked: bool) -> Iterator[str]:
    hosts: dict[str, list[str]] = {}
    for name, finding in good.items():
        if image := finding.images.get(tag):
            hosts.setdefault(image.id, []).append(name)
    if good and all_asked and not hosts:
        yield f"image {tag}: on none of {', '.join(good)}; type: docker pull {tag} on one of them"
    if len(hosts) > 1:
        which = "; ".join(f"{', '.join(names)}: {image}" for image, names in hosts.items())
        yield f"image {tag}: {which}; type: docker rmi {tag} where it is the wrong one"


def host_reasons(
    host: Host,
    want: Needs,
    found: Findings,
    *,
    inventory: str = "",
    in_use: bool = False,
    own: str = "",
    beside_strangers: bool = False,
) -> Iterator[str]:
    """What is wrong with one host of this inventory file. in_use: our own services take its ports and GPUs by right.

    own: a run that may have containers here, as one that is resumed.
    """
    ours_by_right = in_use
    if found.clock_offset_s is None:
        yield "its clock cannot be read"
    elif abs(found.clock_offset_s) > CLOCK_LIMIT:
        yield f"its clock is off by {found.clock_offset_s:+.1f} s; type: chronyc makestep there"
    if found.ports is None:
        yield "its ports cannot be listed: is ss (iproute2) there?"
    # Ports and GPUs that a run of fleet holds are told once, as that run.
    in_use = in_use or any(one.state == "running" or one.labels["run"] == own for one in found.ours)
    for port, service in want.ports.items() if not in_use else ():
        if port in (found.ports or ()):
            yield f"port {port} ({service}) is taken{found.holder(port)}"
    if found.missing_devices is None or found.missing_devices:
        yield f"devices missing: {', '.join(found.missing_devices or ['could not look'])}"
    if not in_use and host.accelerator != "none":
        if len(found.gpus) < host.gpus:
            yield probes.not_idle(found.gpus, host.gpus)
        elif not beside_strangers and (why := held_gpus(found)):
            yield f"{why}; if it may be shared: sweep --allow-strangers"
    free = found.disk.get(host.scratch)
    if free is None:
        yield f"the free space at {host.scratch} cannot be found out"
    elif free < FREE_SCRATCH:
        yield f"{free / 1e9:.1f} GB free at {host.scratch}, {FREE_SCRATCH / 1e9:.1f} GB are needed"
    others = [one for one in found.ours if one.labels["run"] != own]
    for run, names in _runs(others).items() if not ours_by_right else ():
        line = shlex.join(["invoke", "down", "--run", run, *(["--inventory", inventory] if inventory else [])])
        yield f"run {run} has containers here ({', '.join(names)}); if nobody needs it any more: {line}"
    for container in found.containers:
        if container.name in want.names and "run" not in container.labels:
            yield f"a stranger's container has the name {container.name} ({container.image}); rename or remove it"


def _runs(containers: Sequence[Container]) -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = {}
    for container in containers:
        grouped.setdefault(container.labels["run"], []).append(f"{container.name} {container.state}")
    return grouped


def _held(found: dict[str, Findings], own: str) -> list[str]:
    """Hosts on which a run of somebody else is under way although nobody has leased them."""
    told = []
    for host, finding in found.items():
        for container in finding.ours:
            whose = container.labels.get("owner", "somebody")
            if container.state == "running" and whose != owner() and container.labels["run"] != own:
                run = shown(container.labels["run"])
                told.append(
                    f"{host} is in use by {shown(whose)} for run {run}, without a lease ({container.name} is running)"
                )
    return told


def weigh(session: Session, plan: Plan, good: dict[str, Findings]) -> tuple[dict[str, Findings], list[weights.Reason]]:
    """The findings with the models' folders in them, and what is wrong with these."""
    wanted = {name: need.models for name, need in needs(plan).items() if name in good}
    found = weights.everywhere(session, wanted, full=session.settings.full_hash)
    failed = [weights.Reason(str(one), (host,)) for host, one in found.items() if isinstance(one, FleetError)]
    models = {host: one for host, one in found.items() if not isinstance(one, FleetError)}
    told = weights.refused(weights.by_model(models), plan.key, plan.inventory.path)
    return {name: replace(one, weights=models.get(name, {})) for name, one in good.items()}, [*failed, *told]


def unreachable_peers(session: Session, plan: Plan) -> list[str]:
    """Which host cannot reach which peer on which port. Refused is fine: nothing listens yet, nothing is in between."""
    wanted = needs(plan)

    def act(machine: Machine) -> list[str]:
        told: dict[tuple[str, str], list[int]] = {}
        for address, port in wanted[machine.name].peers:
            met = machine.probe(probes.reach(address, port, REACH_SECONDS))
            if not met.reachable:
                told.setdefault((address, met.state), []).append(port)
        return [
            f"{machine.name} → {address}: {state} on ports {', '.join(map(str, ports))}{_remedy(state)}"
            for (address, state), ports in told.items()
        ]

    most = max(len(need.peers) for need in wanted.values())
    answers = session.each(wanted, act, timeout=session.settings.timeouts.command + REACH_SECONDS * most)
    return [why for answer in answers.values() for why in (answer if isinstance(answer, list) else [str(answer)])]


def _remedy(state: str) -> str:
    return "; write its IP into the inventory: fabric: {address: …}" if state == "unknown name" else ""


def preflight(session: Session, plan: Plan, *, own: str = "", beside_strangers: bool = False) -> dict[str, Findings]:
    """Raises PreflightError with all reasons, LeaseHeld where another owner's run is under way. own: a run whose
    containers may be there. beside_strangers: GPU memory that somebody holds is told, and no reason.

    Strangers' containers are named and never touched.
    """
    found = look(session, needs(plan))
    good = {name: finding for name, finding in found.items() if not isinstance(finding, FleetError)}
    if held := _held(good, own):
        inventory = shlex.quote(plan.inventory.path)
        hint = f"see it: invoke ps --inventory {inventory}   ·   if it is dead: invoke reap --inventory {inventory}"
        raise LeaseHeld("\n".join(held), hint=hint)
    told = reasons(plan, session.inventory.hosts, found, own=own, beside_strangers=beside_strangers)
    good, apart = weigh(session, plan, good)
    told += [one.text.replace("\n", "\n  ") for one in apart]
    if len(good) == len(found):
        told += unreachable_peers(session, plan)
    if told:
        about = {host for one in apart for host in one.hosts}
        raise PreflightError(told, hosts=[name for name in found if name in about or _about(name, found[name], told)])
    for name, finding in good.items():
        strange = f"; strangers: {', '.join(finding.strangers)}" if finding.strangers else ""
        strange += f"; allowed: {why}" if beside_strangers and (why := held_gpus(finding)) else ""
        same = "".join(f"; {weights.told(model, one)}" for model, one in finding.weights.items() if one)
        session.progress.host("preflight", name, f"ok ({finding.seconds * 1000:.0f} ms){same}{strange}", done=True)
    return good


def _about(name: str, finding: Findings | FleetError, told: Sequence[str]) -> bool:
    """Whether a host did not answer, or one of the reasons begins with its name."""
    return isinstance(finding, FleetError) or any(why.startswith((f"{name}: ", f"{name} → ")) for why in told)
