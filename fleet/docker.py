"""A service as a docker command, and what docker answers. Nothing here runs; `sudo -n` is for the caller to add."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from fleet.model.base import Model
from fleet.model.inventory import Host
from fleet.model.service import Service

PREFIX = "dev.fleet"
SCRATCH = "/fleet"
SECRETS = "/run/fleet/secrets"
"""Where a container that needs secrets finds their values: a mounted file, so that docker itself never knows them."""

WITH_SECRETS = f'set -a; . {SECRETS}; set +a; exec "$@"'
LOG_SIZE = "256m"
LOG_FILES = "4"


class Labels(Model):
    """Whose container it is. `plan` is the plan's short hash; `point` is set for load clients only."""

    run: str
    owner: str
    plan: str
    arm: str
    point: str = ""

    def of(self, service: Service, host: Host) -> dict[str, str]:
        seat = service.seat
        labels = {
            "run": self.run,
            "owner": self.owner,
            "plan": self.plan,
            "arm": self.arm,
            "role": seat.role,
            "rank": str(seat.rank),
            "spec": spec_hash(service, host),
        }
        if seat.node:
            labels["node"] = str(seat.node)
        if self.point:
            labels["point"] = self.point
        if service.secrets:
            labels["secrets"] = " ".join(service.secrets)
        return {f"{PREFIX}.{name}": value for name, value in labels.items()}


def spec_hash(service: Service, host: Host) -> str:
    """What the container is, whoever runs it: equal means that a running one need not be started anew."""
    text = json.dumps([*_settings(service, host, ""), service.image, *service.argv, *service.secrets])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def container_name(service: Service, labels: Labels) -> str:
    """fleet-<plan>-<seat>; a client's also names its point, as one follows the other."""
    return "-".join(part for part in ("fleet", labels.plan, service.name, labels.point) if part)


def scratch_path(host: Host, run: str) -> str:
    """The run's own folder on the host, mounted at /fleet."""
    return f"{host.scratch.rstrip('/')}/{run}"


def secrets_path(host: Host, run: str) -> str:
    """The file of the secrets' values on the host: it goes with the run's folder."""
    return f"{scratch_path(host, run)}/secrets"


def run_argv(service: Service, host: Host, labels: Labels) -> list[str]:
    """The container, detached. Where the service has secrets, its command reads their values from a mounted file:
    with `--env` or `--env-file` they would stand in what `docker inspect` shows.

    Mounts fail if their source is missing (`--volume` would make an empty folder). --shm-size has no effect beside
    --ipc host, where the host's own /dev/shm is seen; it stays for the day someone takes host IPC away.
    """
    argv = ["docker", "run", "-d", "--name", container_name(service, labels)]
    argv += _settings(service, host, labels.run)
    if service.secrets:
        argv += ["--mount", f"type=bind,source={secrets_path(host, labels.run)},target={SECRETS},readonly"]
    argv += [part for name, value in labels.of(service, host).items() for part in ("--label", f"{name}={value}")]
    command = _command(service)
    return [*argv, "--entrypoint", command[0], service.image, *command[1:]]


def _command(service: Service) -> list[str]:
    return [*(("sh", "-c", WITH_SECRETS, "sh") if service.secrets else ()), *service.argv]


def _settings(service: Service, host: Host, run: str) -> list[str]:
    """Everything about the container but whose it is and what it runs."""
    argv = ["--pull", "never", "--network", "host", "--ipc", "host", "--init"]
    argv += ["--stop-timeout", str(service.stop_timeout)]
    argv += ["--stop-signal", service.stop_signal] if service.stop_signal != "SIGTERM" else []
    argv += ["--log-driver", "json-file", "--log-opt", f"max-size={LOG_SIZE}", "--log-opt", f"max-file={LOG_FILES}"]
    argv += [*_limits(host), "--shm-size", "128g"]
    argv += devices(service, host)
    argv += ["--privileged"] if host.privileged else []
    argv += _mounts(service, host, run)
    return argv + [part for name, value in environment(service, host).items() for part in ("--env", f"{name}={value}")]


def environment(service: Service, host: Host) -> dict[str, str]:
    """The service's variables over the host's own. The plan refuses a variable that both set differently."""
    return dict(sorted({**host.env, **service.env}.items()))


def _limits(host: Host) -> list[str]:
    """Pinned memory, stacks and sockets without end, as GPU engines and RDMA want them.

    A host without accelerators keeps its engine's own: not every engine may raise them (it takes CAP_SYS_RESOURCE).
    """
    if host.accelerator == "none":
        return []
    return ["--ulimit", "memlock=-1", "--ulimit", "stack=67108864", "--ulimit", "nofile=1048576"]


def devices(service: Service, host: Host) -> list[str]:
    """Accelerators go to services that use GPUs, and to no other."""
    if not service.gpu:
        return []
    argv = {"rocm": _rocm, "cuda": _cuda, "none": _none}[host.accelerator](service, host)
    return argv + [part for device in host.devices for part in ("--device", device)]


def _rocm(service: Service, host: Host) -> list[str]:
    nodes = ["/dev/kfd", "/dev/dri", *(["/dev/infiniband"] if host.fabric.nics else [])]
    argv = [part for node in nodes for part in ("--device", node)]
    return [*argv, "--group-add", "video", "--cap-add", "SYS_PTRACE", "--security-opt", "seccomp=unconfined"]


def _cuda(service: Service, host: Host) -> list[str]:
    gpus = service.seat.gpus
    some = ",".join(map(str, gpus))
    argv = ["--gpus", "all" if len(gpus) == host.gpus else f'"device={some}"']
    return argv + (["--device", "/dev/infiniband"] if host.fabric.nics else [])


def _none(service: Service, host: Host) -> list[str]:
    return []


def _mounts(service: Service, host: Host, run: str) -> list[str]:
    argv = []
    for mount in service.mounts:
        argv += ["--mount", f"type=bind,source={mount.source},target={mount.target}" + ",readonly" * mount.read_only]
    argv += ["--mount", f"type=bind,source={scratch_path(host, run)},target={SCRATCH}"]
    return argv + [part for mount in host.mounts for part in ("--volume", mount)]


# --- other commands -------------------------------------------------------------------------------------------------


def ps_argv(*filters: str) -> list[str]:
    """All containers, running or not. filters: labels, as `dev.fleet.run=…`."""
    argv = ["docker", "ps", "-a", "--no-trunc"]
    argv += [part for label in filters for part in ("--filter", f"label={label}")]
    return [*argv, "--format", "{{json .}}"]


def inspect_argv(names: Sequence[str]) -> list[str]:
    return ["docker", "inspect", "--type", "container", *names]


def images_of_argv(names: Sequence[str]) -> list[str]:
    """A line a container: its name and the ID of the image it runs."""
    return ["docker", "inspect", "--type", "container", "--format", "{{.Name}} {{.Image}}", *names]


def parse_images_of(out: str) -> dict[str, str]:
    """By container name."""
    rows = (line.split() for line in out.splitlines() if line.strip())
    return {name.lstrip("/"): image for name, image in rows}


def image_argv(images: Sequence[str]) -> list[str]:
    return ["docker", "image", "inspect", *images]


def images_argv() -> list[str]:
    return ["docker", "images", "--no-trunc", "--format", "{{json .}}"]


def stop_argv(names: Sequence[str]) -> list[str]:
    """The signal, and KILL after the stop timeout, that the container was started with; TERM by default."""
    return ["docker", "stop", *names]


def kill_argv(names: Sequence[str]) -> list[str]:
    return ["docker", "kill", *names]


def rm_argv(names: Sequence[str]) -> list[str]:
    return ["docker", "rm", *names]


def logs_argv(name: str, *, since: str | None = None, follow: bool = False, tail: int | None = None) -> list[str]:
    argv = ["docker", "logs", "--timestamps"]
    argv += ["--since", since] if since else []
    argv += ["--follow"] if follow else []
    argv += ["--tail", str(tail)] if tail is not None else []
    return [*argv, name]


def events_argv(run: str, since: float, until: float) -> list[str]:
    """Starts and ends of a run's containers between two times of the host's clock; waits for the second one."""
    kinds = ["type=container", f"label={PREFIX}.run={run}", "event=start", "event=die"]
    filters = [part for kind in kinds for part in ("--filter", kind)]
    times = ["--since", f"{since:.6f}", "--until", f"{until:.6f}"]
    return ["docker", "events", *filters, *times, "--format", "{{json .}}"]


def cpu_argv(name: str) -> list[str]:
    return ["docker", "top", name, "-eo", "pid,time"]


def parse_cpu(out: str) -> str:
    """The processes of a container with the CPU time of each: the same text as long as none uses any."""
    return " ".join(sorted("=".join(line.split()) for line in out.splitlines()[1:]))


def watch_argv(run: str, arm: str, since: float) -> list[str]:
    """All that can happen to the containers of an arm, from a time of the host's clock on, without an end."""
    events = ("die", "oom", "pause", "destroy")
    labels = (f"label={PREFIX}.run={run}", f"label={PREFIX}.arm={arm}")
    kinds = ["type=container", *labels, *(f"event={event}" for event in events)]
    filters = [part for kind in kinds for part in ("--filter", kind)]
    return ["docker", "events", *filters, "--since", f"{since:.6f}", "--format", "{{json .}}"]


def stops_argv(id: str, seconds: float) -> list[str]:
    """The signals that a container was sent in these last seconds, by its host's clock."""
    filters = [part for kind in (f"container={id}", "event=kill") for part in ("--filter", kind)]
    return ["docker", "events", "--since", f"{seconds:.0f}s", "--until", "0s", *filters, "--format", "{{json .}}"]


def wait_argv(names: Sequence[str]) -> list[str]:
    return ["docker", "wait", *names]


def exec_argv(name: str, argv: Sequence[str]) -> list[str]:
    return ["docker", "exec", name, *argv]


def save_argv(images: Sequence[str]) -> list[str]:
    return ["docker", "save", *images]


def load_argv() -> list[str]:
    return ["docker", "load"]


def pull_argv(image: str) -> list[str]:
    return ["docker", "pull", "--quiet", image]


def version_argv() -> list[str]:
    return ["docker", "version", "--format", "{{json .}}"]


def info_argv() -> list[str]:
    return ["docker", "info", "--format", "{{json .}}"]


# --- what docker answers --------------------------------------------------------------------------------------------


class Container(Model):
    """A line of `docker ps`. Of its labels only fleet's are kept, without their prefix; strangers have none.

    created: how long ago, in docker's words.
    """

    id: str
    name: str
    image: str
    state: str
    status: str
    labels: dict[str, str] = {}
    created: str = ""

    @property
    def ours(self) -> bool:
        return "run" in self.labels


class State(Model):
    """A container as `docker inspect` sees it. Times are as docker writes them, "" before the event."""

    id: str
    name: str
    status: str
    running: bool
    exit_code: int
    oom_killed: bool
    error: str
    image_id: str
    started: str
    finished: str
    labels: dict[str, str] = {}

    @property
    def cause(self) -> str:
        """Why it ended, in words."""
        return cause(self.exit_code, oom=self.oom_killed, error=self.error)


class Event(Model):
    """Something happened to a container. `code`: its exit code, if it has ended; `time`: seconds since 1970 there.

    action: docker's word, such as start, die, oom, pause or destroy.
    """

    container: Container
    time: float
    code: int | None = None
    action: str = ""


class Image(Model):
    """An image on one host. `layers` are diff IDs, lowest first; `digest` is the registry's, None without one.

    digests: as `repository@sha256:…`, of every repository that it was pulled from on this host.
    """

    id: str
    tags: tuple[str, ...] = ()
    digest: str | None = None
    digests: tuple[str, ...] = ()
    size: int = 0
    layers: tuple[str, ...] = ()
    labels: dict[str, str] = {}

    @property
    def double(self) -> bool:
        """A stand-in that plays an engine: its numbers are no measurement."""
        return self.labels.get(f"{PREFIX}.double") == "1"


def short(image_id: str) -> str:
    """An image's ID as docker lists it."""
    return image_id.removeprefix("sha256:")[:12]


def cause(code: int, *, oom: bool = False, error: str = "") -> str:
    """What an exit code says. error: docker's own word of it."""
    if oom:
        return f"exit {code}: killed, out of memory"
    known = {0: "ended", 125: "docker could not start it", 126: "the command is not executable"}
    known |= {127: "the command is not in the image", 137: "killed", 139: "segmentation fault", 143: "terminated"}
    return f"exit {code}: {known.get(code, 'failed')}" + (f" ({error})" if error else "")


def parse_ps(out: str) -> list[Container]:
    return [_container(row) for row in _rows(out)]


def parse_inspect(out: str) -> list[State]:
    return [_state(row) for row in json.loads(out or "[]")]


def inits(out: str) -> dict[int, tuple[str, str]]:
    """The first process on the host of each running container of a `docker inspect`: its container's ID, and the name
    of the signal that asks it to end, "" where none is said.
    """
    rows = json.loads(out or "[]")
    found = {row["State"].get("Pid", 0): (row["Id"], row.get("Config", {}).get("StopSignal") or "") for row in rows}
    return {pid: one for pid, one in found.items() if pid}


def unlike(row: dict[str, Any], service: Service, host: Host, image: str) -> str:
    """Why a container, as an inspection tells of it, is not this service at work; "" if it is. image: the ID wanted."""
    status, config = str(row["State"]["Status"]), row.get("Config") or {}
    if status != "running":
        return f"is {status}"
    if (config.get("Labels") or {}).get(f"{PREFIX}.spec") != spec_hash(service, host):
        return "was started otherwise than planned"
    if [*(config.get("Entrypoint") or ()), *(config.get("Cmd") or ())] != _command(service):
        return "runs another command line"
    return "" if row.get("Image") == image else "is of another image"


def parse_image(out: str) -> list[Image]:
    """The answer to `image_argv`; also of a call that failed for some images: those that exist are listed."""
    return [_image(row) for row in json.loads(out or "[]")]


def parse_images(out: str) -> dict[str, str]:
    """`repository:tag` → image ID. Untagged images are left out."""
    rows = [row for row in _rows(out) if row.get("Repository") != "<none>" and row.get("Tag") != "<none>"]
    return {f"{row['Repository']}:{row['Tag']}": row["ID"] for row in rows}


def parse_events(out: str) -> list[Event]:
    """The answer to `events_argv`, or whole lines of it."""
    return [_event(row) for row in _rows(out)]


def parse_version(out: str) -> tuple[str, str]:
    """Versions of client and engine; "" for an engine that did not answer."""
    row = json.loads(out)
    return str((row.get("Client") or {}).get("Version", "")), str((row.get("Server") or {}).get("Version", ""))


def parse_info(out: str) -> dict[str, Any]:
    row = json.loads(out)
    return dict(row) if isinstance(row, dict) else {}


def lasted(words: str) -> float | None:
    """Seconds in what docker says of a duration (`Up About a minute`, `Exited (0) 5 seconds ago`), None without one.

    Docker rounds: minutes down, hours to the nearest.
    """
    if "Less than a second" in words:
        return 0.0
    found = re.search(r"(About an?|\d+) (second|minute|hour|day|week|month|year)", words)
    return (int(found[1]) if found[1].isdigit() else 1) * _SECONDS[found[2]] if found else None


_SECONDS = {"second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86400.0}
_SECONDS |= {"week": 7 * 86400.0, "month": 30 * 86400.0, "year": 365 * 86400.0}


def when(text: str) -> datetime | None:
    """A time as docker writes it (nanoseconds, UTC); None for its zero time."""
    if not text or text.startswith("0001-"):
        return None
    head, _, fraction = text.rstrip("Z").partition(".")
    return datetime.fromisoformat(f"{head}.{fraction[:6] or '0':0<6}+00:00")


def _rows(out: str) -> Iterable[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines() if line.strip().startswith("{")]


def _container(row: dict[str, Any]) -> Container:
    pairs = [pair.partition("=") for pair in str(row.get("Labels", "")).split(",")]
    state = str(row.get("State") or _state_of(str(row.get("Status", ""))))
    return Container(
        id=row["ID"],
        name=row["Names"],
        image=row["Image"],
        state=state,
        status=str(row.get("Status", "")),
        labels=_ours({key: value for key, _, value in pairs}),
        created=str(row.get("RunningFor", "")),
    )


def _state_of(status: str) -> str:
    """Old engines' `ps` has no State."""
    head = status.split(" ")[0].lower()
    return {"up": "running", "": "created"}.get(head, head)


def _state(row: dict[str, Any]) -> State:
    state = row["State"]
    return State(
        id=row["Id"],
        name=row["Name"].lstrip("/"),
        status=state["Status"],
        running=state["Running"],
        exit_code=state["ExitCode"],
        oom_killed=state.get("OOMKilled", False),
        error=state.get("Error", ""),
        image_id=row["Image"],
        started=_time(state.get("StartedAt", "")),
        finished=_time(state.get("FinishedAt", "")),
        labels=_ours(row.get("Config", {}).get("Labels") or {}),
    )


def _image(row: dict[str, Any]) -> Image:
    digests = row.get("RepoDigests") or []
    return Image(
        id=row["Id"],
        tags=tuple(row.get("RepoTags") or ()),
        digest=digests[0].rpartition("@")[2] if digests else None,
        digests=tuple(sorted(digests)),
        size=int(row.get("Size", 0)),
        layers=tuple((row.get("RootFS") or {}).get("Layers") or ()),
        labels=dict((row.get("Config") or {}).get("Labels") or {}),
    )


def _event(row: dict[str, Any]) -> Event:
    actor = row["Actor"]
    facts = actor.get("Attributes") or {}
    code = str(facts.get("exitCode", ""))
    ended = row.get("Action") == "die"
    container = Container(
        id=actor["ID"],
        name=facts.get("name", ""),
        image=facts.get("image", ""),
        state="exited" if ended else "running",
        status="",
        labels=_ours(facts),
    )
    time = int(row["timeNano"]) / 1e9
    action = str(row.get("Action", ""))
    return Event(container=container, time=time, code=int(code) if ended and code else None, action=action)


def _time(text: str) -> str:
    return "" if text.startswith("0001-") else text


def _ours(labels: dict[str, str]) -> dict[str, str]:
    start = f"{PREFIX}."
    return {key.removeprefix(start): value for key, value in labels.items() if key.startswith(start)}
