"""A plan's machines as scripted hosts that remember: containers, images, clocks, counters and HTTP services.

Well unless a test says otherwise: `world.nodes["mi355x-01"].ports.add(8010)`, `world.box("decode0").end(1)`.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fleet import docker, plan
from fleet.docker import Labels
from fleet.hosts.base import Transport
from fleet.hosts.fake import Fake, Reply
from fleet.hosts.local import Local
from fleet.model import load
from fleet.model.lease import FOLDER
from fleet.model.service import Service
from fleet.plan import ArmPlan, Plan
from fleet.progress import Silent
from fleet.results.record import Record
from fleet.results.store import RunFolder
from fleet.session import Session
from fleet.settings import Settings, Timeouts
from fleet.stages.deployment import Deployment

ROOT = Path(__file__).resolve().parents[1]
LOCAL = Local()
KEY = "dsv4-fp4-mi355x-atom-disagg-mtp"
RUN = f"20261130-210405-{KEY}-7f3a9c"
IMAGE_ID = "sha256:" + "a4" * 32
GB = 1 << 30
IDLE = "".join(f"card{number} {GB} {288 * GB}\n" for number in range(8))
TOKENS = 900
"""What the scripted client says every answer was long."""
PROMPT = 8000
"""And every prompt."""
DURATION = 0.4
"""And the whole load, in seconds: less than it may miss our clock by."""


def a_plan(arm: str | None = "1p1d-mtp3", conc: Sequence[int] = (4,)) -> Plan:
    """1P1D with MTP 3 at concurrency 4, on the example's first two hosts."""
    inventory = load.inventory(ROOT / "inventories" / "example-mi355x.yaml")
    inventory = inventory.model_copy(update={"path": "inventories/example-mi355x.yaml"})
    return plan.build(load.recipe(KEY, ROOT / "recipes"), inventory, ROOT / "recipes", arm=arm, conc=conc)


class Listener(Silent):
    """Keeps what was told."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.hosts: list[tuple[str, str, str, bool]] = []
        self.records: list[Record] = []
        self.moves: list[tuple[str, str, int, int, float]] = []
        self.cleared = 0

    def line(self, text: str) -> None:
        self.lines.append(text)

    def host(self, stage: str, host: str, text: str, *, done: bool = False) -> None:
        self.hosts.append((stage, host, text, done))

    def moved(self, stage: str, host: str, done: int, total: int, rate: float) -> None:
        self.moves.append((stage, host, done, total, rate))

    def record(self, record: Record) -> None:
        self.records.append(record)

    def clear(self) -> None:
        self.cleared += 1


@dataclass
class Box:
    """One container. looks: a client ends when it was inspected so often. ended: when, as docker writes it.

    up: how long it is there, in docker's words; stopped: somebody sent it TERM. argv: its command line. deaf: its first
    process does not handle TERM.
    """

    name: str
    image: str = "rocm/atom-dev:n1"
    state: str = "running"
    code: int = 0
    oom: bool = False
    ended: str = ""
    image_id: str = IMAGE_ID
    labels: dict[str, str] = field(default_factory=dict)
    log: str = ""
    looks: int = 2
    up: str = "2 minutes"
    stopped: bool = False
    argv: list[str] = field(default_factory=list)
    deaf: bool = False

    @property
    def id(self) -> str:
        return f"id-{self.name}"

    def end(self, code: int = 137, *, oom: bool = False, at: str = "") -> None:
        self.state, self.code, self.oom, self.ended = "exited", code, oom, at

    def row(self) -> str:
        labels = ",".join(f"{docker.PREFIX}.{name}={value}" for name, value in self.labels.items())
        known = {"running": f"Up {self.up}", "paused": f"Up {self.up} (Paused)", "created": "Created"}
        status = known.get(self.state, f"Exited ({self.code}) 2 seconds ago")
        row = {"ID": self.id, "Names": self.name, "Image": self.image, "State": self.state, "Status": status}
        return json.dumps(row | {"Labels": labels, "RunningFor": f"{self.up} ago"})

    def inspected(self) -> dict[str, Any]:
        running = self.state in ("running", "paused")
        state = {"Status": self.state, "Running": running, "ExitCode": self.code, "OOMKilled": self.oom}
        state["FinishedAt"] = self.ended or "0001-01-01T00:00:00Z"
        config = {"Labels": {f"{docker.PREFIX}.{name}": value for name, value in self.labels.items()}}
        config |= {"Entrypoint": self.argv[:1], "Cmd": self.argv[1:]}
        return {"Id": self.id, "Name": f"/{self.name}", "State": state, "Image": self.image_id, "Config": config}


@dataclass
class Counted:
    """What a worker shows at /metrics. `late`: seconds its counters lie behind; None: it does not say when.

    `running`: requests under way; None: it does not say.
    """

    finished: float = 0
    prompts: float = 0
    running: float | None = 0
    generated: float = 0
    accepted: float = 0
    steps: float = 0
    late: float | None = 0.0

    def text(self) -> str:
        values = {
            "requests_finished_total": self.finished,
            "prompt_tokens_total": self.prompts,
            "prefix_cache_cached_tokens_total": 0,
            "generation_tokens_total": self.generated,
            "mtp_draft_tokens_total": 3 * self.steps,
            "mtp_accepted_tokens_total": self.accepted,
            "mtp_decode_steps_total": self.steps,
        }
        if self.running is not None:
            values |= {"requests_running": self.running, "requests_waiting": 0, "requests_parked_kv_load": 0}
        if self.late is not None:
            values["metrics_last_refresh_timestamp_seconds"] = time.time() + 1 - self.late
        return "".join(f"atom:{name} {value!r}\n" for name, value in values.items())


Handler = Callable[[str, dict[str, Any]], "tuple[int, object] | str | None"]


class Node:
    """One machine. `first`: answers that go before the usual ones, as Fake takes them."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.boxes: dict[str, Box] = {}
        self.images = {world.tag: IMAGE_ID}
        self.ports: set[int] = {22}
        self.clock = 0.0
        self.free = {"/": 900 * GB, "/var/lib/docker": 900 * GB}
        self.gpus = IDLE
        self.gpu_holders = ""
        self.files = "config.json\t10\nmodel-1.safetensors\t1000\n"
        self.contents: dict[str, str] = {}
        self.missing = ""
        self.first: list[Any] = []
        self.lacks: set[str] = set()
        self.digests: list[str] = []
        self.box_image = IMAGE_ID
        self.helps: dict[str, str] = {}
        self.written: dict[str, bytes] = {}
        self.folders: list[str] = []
        self.leases = TemporaryDirectory(prefix="fleet-test-lease-")
        self.fake = Fake(name, [(lambda argv: True, self._answer)])

    @property
    def lines(self) -> list[str]:
        return [asked.line for asked in self.fake.calls]

    def asked(self, pattern: str) -> list[str]:
        return [line for line in self.lines if re.search(pattern, line)]

    def _answer(self, argv: list[str], stdin: bytes) -> Any:
        special = Fake(self.fake.name, [*self.first, (lambda _: True, self._usual)])
        return special.run(argv, stdin=stdin, check=False)

    def _usual(self, argv: list[str], stdin: bytes) -> Any:
        argv = argv[argv.index("docker") :] if "docker" in argv else argv
        if argv[0] == "docker":
            return self._docker(argv[1:])
        if argv[:2] == ["bash", "-c"] and "/dev/tcp" in argv[2]:
            return self.world.http(argv[-2], int(argv[-1]), stdin)
        if argv[0] == "cat":
            return self.written.get(argv[1], 1)
        if argv[0] in ("mkdir", "rm", "true"):
            return 0
        if argv[0] == "ls":
            return "\n".join(self.folders)
        if argv[3:4] == ["fleet-lease"]:
            return self.lease(argv)
        if argv[3:4] == ["fleet-weights"]:
            return self.survey()
        return self._probe(argv)

    def lease(self, argv: list[str]) -> Any:
        """The real script, in a folder of this node."""
        return LOCAL.run([f"{self.leases.name}/lease" if word == FOLDER else word for word in argv], check=False)

    def survey(self) -> Any:
        """What the script would say of `files`; contents: hashes of some of them."""
        rows = [line.split("\t") for line in self.files.splitlines()]
        listing = "".join(f"f\0{name}\0{size}\0009.0\0009.0\0001:{n}\0\0" for n, (name, size) in enumerate(rows))
        told = "".join(f"h 1:{n} {self.contents.get(name, f'{name}-{size}')}\n" for n, (name, size) in enumerate(rows))
        return f"{listing}=\0{told}.\n" if rows else 44

    def _probe(self, argv: list[str]) -> Any:
        line = " ".join(argv)
        if argv[0] == "date":
            return f"{time.time() + self.clock}\n"
        if "ss -Hltnp" in line:
            return "".join(f'LISTEN 0 9 *:{port} *:* users:(("nc",pid=77,fd=3))\n' for port in self.ports)
        if argv[0] == "ss":
            return "".join(f"LISTEN 0 128 0.0.0.0:{port} 0.0.0.0:*\n" for port in self.ports)
        if "df" in argv:
            return self._df(argv[argv.index("--") + 1 :])
        if argv[0] == "grep" and "^Sig(Blk|Cgt):" in argv:
            return self._signals(argv[3:])
        if argv[0] == "find":
            return self.files if self.files else (1, "", "find: no such directory")
        if "kfd/proc" in line:
            return self.gpu_holders
        if "mem_info_vram" in line:
            return self.gpus
        if "test -e" in line:
            return self.missing
        if "uname" in line:
            return "kernel=6.8.0\n"
        if "/dev/tcp" in line:
            return 1, "", "bash: connect: Connection refused"
        raise AssertionError(f"{self.fake.name}: {line}")

    def _df(self, paths: Sequence[str]) -> Reply:
        there = [path for path in paths if path in self.free]
        rows = "".join(f"/dev/sda 1 1 {self.free[path]} 1% {path}\n" for path in there)
        errors = "".join(f"df: {path}: No such file or directory\n" for path in paths if path not in there)
        return Reply(1 if errors else 0, f"Filesystem 1B-blocks Used Available Use% Mounted\n{rows}", errors)

    # --- docker ---

    def _docker(self, argv: list[str]) -> Any:
        verb = {"image": self._image, "ps": self._ps, "inspect": self._inspect, "run": self._run, "logs": self._logs}
        verb |= {
            "stop": self._stop,
            "kill": self._kill,
            "rm": self._rm,
            "unpause": self._unpause,
            "events": self._events,
        }
        if argv[0] in verb:
            return verb[argv[0]](argv[1:])
        if argv[0] == "info":
            return json.dumps({"DockerRootDir": "/var/lib/docker", "ServerVersion": "27.3"})
        return {"top": "PID TIME\n1 00:00:01\n", "version": "27.3\n", "exec": "atom 0.4\n", "tag": ""}[argv[0]]

    def _image(self, argv: list[str]) -> Any:
        tag = argv[-1]
        found = self.images.get(tag) or (tag if tag in self.images.values() else None)
        if not found:
            return 1, "[]", f"Error: No such image: {tag}"
        row = {"Id": found, "RepoTags": [tag], "RepoDigests": self.digests, "Size": 37_000_000}
        return json.dumps([row | {"RootFS": {"Layers": []}}])

    def _ps(self, argv: list[str]) -> str:
        wanted = [part.removeprefix(f"label={docker.PREFIX}.") for part in argv if part.startswith("label=")]
        return "\n".join(box.row() for box in self.boxes.values() if all(_carries(box, one) for one in wanted))

    def _signals(self, files: list[str]) -> str:
        boxes = [list(self.boxes.values())[int(file.split("/")[2]) - 1000] for file in files]
        masks = [("0" if box.deaf else "4000") for box in boxes]
        rows = zip(files, masks, strict=True)
        return "".join(f"{file}:SigBlk:\t0\n{file}:SigCgt:\t{mask}\n" for file, mask in rows)

    def _inspect(self, argv: list[str]) -> Any:
        if "--format" in argv:
            names = argv[argv.index("--format") + 2 :]
            return "".join(f"/{name} {self.box_image}\n" for name in names if name in self.boxes)
        boxes = [self._box(word) for word in argv if word.startswith(("fleet-", "id-"))] or [None]
        if None in boxes:
            return 1, "[]", "Error: No such container"
        for box in filter(None, boxes):
            if box.name in argv:  # a teardown asks by ID
                self._looked_at(box)
        return json.dumps([box.inspected() | self._alive(box) for box in filter(None, boxes)])

    def _alive(self, box: Box) -> dict[str, Any]:
        state = box.inspected()["State"]
        running = state["Running"] and box.name in self.boxes
        return {"State": state | {"Pid": 1000 + list(self.boxes).index(box.name) if running else 0}}

    def _looked_at(self, box: Box) -> None:
        if box.labels.get("role") == "client" and box.state == "running":
            box.looks -= 1
            if box.looks <= 0:
                self.world.client_ends(self, box)

    def _run(self, argv: list[str]) -> Any:
        if "--rm" in argv:
            return self._proof(argv[argv.index("--entrypoint") + 1 :])
        labels = dict(
            part.removeprefix(f"{docker.PREFIX}.").split("=", 1) for part in argv if f"{docker.PREFIX}." in part
        )
        at = argv.index("--entrypoint")
        box = Box(argv[argv.index("--name") + 1], labels=labels, argv=[argv[at + 1], *argv[at + 3 :]])
        box.image_id = self.images.get(argv[at + 2], IMAGE_ID)
        self.boxes[box.name] = box
        return box.id

    def _proof(self, argv: list[str]) -> Any:
        """What a container says that only proves an image. `lacks`: parts that are not in it; `helps`: by module."""
        if argv[0] == "/sbin/docker-init":
            return "tini version 0.19.0"
        if argv[0] in self.lacks:
            return 127, "", f"[FATAL tini (7)] exec {argv[0]} failed: No such file or directory"
        if argv[-1].startswith("--help"):
            return next((text for name, text in self.helps.items() if name in argv), "")
        return json.dumps([name not in self.lacks for _, name in json.loads(argv[-1])])

    def _logs(self, argv: list[str]) -> Any:
        box = self._box(argv[-1])
        if box is None:
            return 1, "Error response from daemon: No such container: x\n"
        since = argv[argv.index("--since") + 1] if "--since" in argv else ""
        if not since.endswith("Z"):
            return box.log
        return "".join(line for line in box.log.splitlines(keepends=True) if line.split(" ")[0] >= since)

    def _stop(self, argv: list[str]) -> int:
        for box in filter(None, map(self._box, argv)):
            if box.state == "running":
                box.end(143)
                box.stopped = True
        return 0

    def _kill(self, argv: list[str]) -> int:
        for box in filter(None, map(self._box, argv)):
            box.end(137)
        return 0

    def _rm(self, argv: list[str]) -> Any:
        for name in argv:
            box = self._box(name)
            if box is None or box.state in ("running", "paused"):
                return 1, "", f"cannot remove {name}"
            del self.boxes[box.name]
        return 0

    def _events(self, argv: list[str]) -> str:
        if not any(part.startswith("container=") for part in argv):
            return ""
        box = self._box(next(part for part in argv if part.startswith("container=")).removeprefix("container="))
        return '{"Action":"kill","Actor":{"Attributes":{"signal":"15"}}}\n' if box and box.stopped else ""

    def _unpause(self, argv: list[str]) -> int:
        for box in filter(None, map(self._box, argv)):
            box.state = "running"
        return 0

    def _box(self, word: str) -> Box | None:
        return next((box for box in self.boxes.values() if word in (box.name, box.id)), None)


def _carries(box: Box, wanted: str) -> bool:
    name, _, value = wanted.partition("=")
    return name in box.labels and (not value or box.labels[name] == value)


class World:
    """All machines of a plan, and the services that run on them."""

    def __init__(self, made: Plan | None = None, **timeouts: float) -> None:
        self.plan = made or a_plan()
        self.tag = self.plan.arms[0].arm.image
        names = [host.name for host in self.plan.inventory.hosts]
        self.nodes = {name: Node(self, name) for name in names}
        self.counted = {one.name: Counted() for arm in self.plan.arms for one in arm.servers}
        self.handlers: dict[str, Handler] = {}
        self.heard: list[tuple[str, str, dict[str, Any]]] = []
        self.told = Listener()
        self.client_code, self.client_log = 0, ""
        self.result: bytes | dict[str, Any] | None = {}
        self.turns = 0
        transports: dict[str, Transport] = {name: node.fake for name, node in self.nodes.items()}
        settings = Settings(timeouts=Timeouts(**timeouts))
        self.session = Session(self.plan.inventory, transports, settings, self.told)

    def deployment(self, folder: Path, arm: int = 0) -> Deployment:
        path = folder / RUN
        path.mkdir(exist_ok=True)
        labels = Labels(run=RUN, owner="ops@here", plan=self.plan.hash6, arm=self.plan.arms[arm].arm.name)
        return Deployment(self.session, RunFolder(path), self.plan, self.plan.arms[arm], labels)

    def running(self, folder: Path) -> Deployment:
        """A deployment all of whose containers run."""
        made = self.deployment(folder)
        for service in made.services:
            self.start(made, service)
        return made

    def start(self, deployment: Deployment, service: Service) -> None:
        host = deployment.arm.placement.host(service.host)
        argv = docker.run_argv(service, host, deployment.labels)
        self.nodes[service.host]._run(argv)

    def box(self, seat: str) -> Box:
        """The container of a seat."""
        boxes = [box for node in self.nodes.values() for box in node.boxes.values()]
        return next(box for box in boxes if f"-{seat}" in box.name)

    # --- HTTP ---

    def http(self, address: str, port: int, request: bytes) -> Any:
        """What comes back when a machine asks: a handler's answer, or that of a well service."""
        path, body = _parsed(request)
        arm, service = self._at(address, port)
        if arm is None or service is None:
            return 7
        self.heard.append((service.name, path, body))
        handler = self.handlers.get(service.name)
        answer = handler(path, body) if handler else None
        if answer is None:
            answer = self.well(arm, service, path, body)
        return _spoken(answer) if isinstance(answer, tuple) else 7

    def _at(self, address: str, port: int) -> tuple[ArmPlan, Service] | tuple[None, None]:
        """What runs there now."""
        for arm in self.plan.arms:
            for one in arm.services:
                if one.http == port and arm.placement.host(one.host).fast_address == address:
                    for box in self.nodes[one.host].boxes.values():
                        if (box.labels.get("arm"), box.state) == (
                            arm.arm.name,
                            "running",
                        ) and f"-{one.name}" in box.name:
                            return arm, one
        return None, None

    def well(self, arm: ArmPlan, service: Service, path: str, body: dict[str, Any]) -> tuple[int, object]:
        if path == "/metrics":
            return 200, self.counted[service.name].text()
        if path == "/v1/models":
            return 200, {"data": [{"id": arm.arm.model_path}]}
        if path == "/readiness":
            count = len(arm.servers)
            return 200, {"healthy_workers": count, "total_workers": count}
        if path == "/kv_transfer_info":
            role = "kv_producer" if service.seat.role == "prefill" else "kv_consumer"
            return 200, {"kv_role": role, "tp_size": 8, "dp_size": 1, "handshake_port": 6301}
        if path == "/v1/completions":
            return 200, self._complete(arm, service, body)
        return 200, {}

    def _complete(self, arm: ArmPlan, service: Service, body: dict[str, Any]) -> object:
        if service.kind == "router":
            self.turns += 1
            for role in ("prefill", "decode"):
                seats = [one.name for one in arm.servers if one.seat.role == role]
                self.counted[seats[self.turns % len(seats)]].finished += 1
        else:
            self.counted[service.name].finished += 1
        answer: dict[str, Any] = {"usage": {"completion_tokens": body["max_tokens"]}}
        return answer | ({"kv_transfer_params": {"remote_engine_id": "e1"}} if service.seat.role == "prefill" else {})

    # --- the load client ---

    def client_ends(self, node: Node, box: Box) -> None:
        """A good client: every worker counted what was sent, and its result lies where it was told to put it."""
        box.state, box.code, box.log = "exited", self.client_code, self.client_log
        planned = next(one for arm in self.plan.arms for one in arm.points if one.point.id == box.labels["point"])
        if self.client_code == 0:
            sent = planned.point.prompts + planned.point.warmups
            for name, counted in self.counted.items():
                counted.finished += sent
                counted.prompts += sent * PROMPT
                counted.generated += sent * (TOKENS if "decode" in name else 1)
                if "decode" in name:
                    counted.accepted, counted.steps = counted.accepted + sent * 550, counted.steps + sent * 345
        host = next(host for host in self.plan.inventory.hosts if host.name == node.fake.name)
        path = f"{docker.scratch_path(host, box.labels['run'])}/raw/{planned.point.id}.json"
        if isinstance(self.result, bytes):
            node.written[path] = self.result
        elif self.result is not None:
            node.written[path] = json.dumps(
                raw_result(planned.point.prompts, planned.point.conc) | self.result
            ).encode()


def raw_result(prompts: int, conc: int) -> dict[str, Any]:
    """What the client writes when all went well."""
    golden = json.loads((ROOT / "tests" / "golden" / "aggregate" / "raw.1p1d-mtp3-c4.json").read_text())
    facts = {"num_prompts": prompts, "completed": prompts, "max_concurrency": conc}
    lengths = {"input_lens": [PROMPT] * prompts, "output_lens": [TOKENS] * prompts, "errors": [""] * prompts}
    totals = {"total_input_tokens": PROMPT * prompts, "total_output_tokens": TOKENS * prompts}
    rates = {"duration": DURATION, "output_throughput": TOKENS * prompts / DURATION}
    rates["total_token_throughput"] = (TOKENS + PROMPT) * prompts / DURATION
    return dict(golden) | facts | lengths | totals | rates


def _parsed(request: bytes) -> tuple[str, dict[str, Any]]:
    head, _, body = request.partition(b"\r\n\r\n")
    path = head.split(b" ")[1].decode()
    return path, json.loads(body) if body else {}


def _spoken(answer: tuple[int, object]) -> bytes:
    status, body = answer
    data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    return b"HTTP/1.1 %d OK\r\nContent-Length: %d\r\n\r\n" % (status, len(data)) + data
