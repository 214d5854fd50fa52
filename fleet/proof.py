"""The container that proves an image on a host: it starts, and looks whether what the plan needs is in the image.

It has no ports, no GPUs, no mounts and no network, and removes itself. Nothing here runs.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence

from fleet import docker
from fleet.docker import PREFIX
from fleet.manual import said_by
from fleet.model.part import Part
from fleet.steps import Plan

ROLE = "proof"
"""The `role` label of these containers: they serve nothing and take nothing that a run wants."""

INIT = ("/sbin/docker-init", "--version")
"""In every container that is started with --init, also of an image without a shell."""

NOT_FOUND = 127
"""What a container ends with whose command is not in the image."""

SCRIPT = r"""
import json, os, re, shutil, sys

def spec(name):
    found, where, known = None, None, ""
    for word in name.split("."):
        if known and where is None:
            return None
        known = known + "." + word if known else word
        finds = (finder.find_spec(known, where) for finder in sys.meta_path if hasattr(finder, "find_spec"))
        found = next((one for one in finds if one), None)
        if found is None:
            return None
        where = found.submodule_search_locations
    return found

def defines(name):
    module, _, kind = name.rpartition(".")
    found = spec(module)
    origin = found.origin if found else None
    if not origin or not origin.endswith(".py") or not os.path.exists(origin):
        return found is not None
    with open(origin, encoding="utf-8", errors="replace") as source:
        return re.search(r"(?m)^\s*class %s\b" % re.escape(kind), source.read()) is not None

def there(kind, name):
    if kind == "path":
        return os.path.isfile(name) and os.access(name, os.X_OK)
    if kind == "program":
        return shutil.which(name) is not None
    return spec(name) is not None if kind == "module" else defines(name)

print("\n" + json.dumps([there(*part) for part in json.loads(sys.argv[1])]))
"""
"""Nothing is imported: an engine's modules want GPUs. A class is looked for in its module's source."""


def run_argv(
    image: str,
    command: Sequence[str],
    labels: Mapping[str, str],
    name: str,
    env: Mapping[str, str],
    devices: Sequence[str] = (),
) -> list[str]:
    """A container of an image, by ID, that runs one short command in the foreground."""
    argv = ["docker", "run", "--rm", "--name", name, "--pull", "never", "--init", "--network", "none"]
    argv += [part for key, value in sorted(env.items()) for part in ("--env", f"{key}={value}")]
    argv += [part for key, value in labels.items() for part in ("--label", f"{PREFIX}.{key}={value}")]
    return [*argv, *devices, "--entrypoint", command[0], image, *command[1:]]


def labels(run: str, owner: str) -> dict[str, str]:
    return {"run": run, "owner": owner, "role": ROLE, "rank": "0"}


def name(run: str, image: str, what: str = "") -> str:
    """Of one question to one image on a host."""
    seal = hashlib.sha256(f"{run} {what}".encode()).hexdigest()[:6]
    return f"fleet-{ROLE}-{docker.short(image)}-{seal}"


def command(parts: Sequence[Part]) -> tuple[str, ...]:
    """What the container runs: a look for these parts, by the image's own Python; without any only its start counts."""
    if not parts:
        return INIT
    return ("python3", "-c", SCRIPT, json.dumps([(part.kind, part.name) for part in parts]))


def missing(code: int, out: str, parts: Sequence[Part]) -> list[Part]:
    """Which of the parts the image does not have. Raises ValueError if the container did not say."""
    if not parts:
        return []
    if code == NOT_FOUND:
        return [Part("program", "python3", "all of it")]
    last = out.strip().rpartition("\n")[2]
    found = json.loads(last) if re.fullmatch(r"\[.*\]", last) else None
    if code != 0 or not isinstance(found, list) or len(found) != len(parts):
        raise ValueError(last)
    return [part for part, there in zip(parts, found, strict=True) if not there]


def parts(plan: Plan, image: str) -> list[Part]:
    """What the arms of a plan need of an image, each once."""
    return list({(part.kind, part.name): part for part in reversed(list(_parts(plan, image)))}.values())[::-1]


def _parts(plan: Plan, image: str) -> Iterator[Part]:
    for arm in plan.arms:
        clients = [planned.client for planned in arm.points[:1]]
        for service in (*arm.services, *clients):
            if service.image == image:
                yield from said_by(arm, service).parts(service, arm.arm)
