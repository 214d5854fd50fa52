"""The small image that carries the engine doubles: made from this machine's own Python, without a registry or a build.

Two layers: Debian's python3 with the libraries it needs and busybox, and the doubles. The archive is one that
`docker load` reads, and everything in it is fixed (order, owners, times): equal contents give an equal image ID.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fleet.errors import LabError

ATOM_TAGS = ("rocm/atom-dev:nightly_202606101403", "rocm/atom-dev:nightly_202607201550")
VLLM_TAGS = ("vllm/vllm-openai-rocm:v0.22.0",)
TAGS = (*ATOM_TAGS, *VLLM_TAGS)
LABEL = "dev.fleet.double"
DOUBLES = Path(__file__).parent / "doubles"
HOME = "opt/doubles"
STAMP = 1_577_836_800
CREATED = "2020-01-01T00:00:00Z"
FORMAT = "1"
KEPT = 3
PYTHON = "/usr/bin/python3"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
LEFT_OUT = frozenset(
    {"test", "idlelib", "lib2to3", "tkinter", "ensurepip", "pydoc_data", "turtledemo", "distutils"}
    | {"__pycache__", "sitecustomize.py"}
)
APPLETS = (
    "sh", "ls", "cat", "sleep", "env", "ps", "kill", "wget", "hostname", "mkdir", "rm", "cp", "mv", "dd",
    "head", "tail", "grep", "find", "date", "id", "nc", "true", "false", "echo", "df", "du", "sync", "stat",
    "sed", "awk", "cut", "sort", "uniq", "wc", "tr", "tee", "touch", "chmod", "chown", "ln", "readlink", "tar",
    "gzip", "timeout", "uname", "test",
)  # fmt: skip
PROGRAMS = {"usr/local/bin/atomesh": "atomesh", "usr/local/bin/vllm": "vllm.cli"}
VERSION = "0.0+double"
PACKAGES = {
    f"{HOME}/{name}-{VERSION}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {VERSION}\n"
    for name in ("atom", "vllm")
}
"""What makes a double a package to whoever asks for its version; nobody can take that version for the engine's."""
FILES = {
    **PACKAGES,
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\n",
    "etc/group": "root:x:0:\nvideo:x:44:\nrender:x:109:\n",
    "etc/nsswitch.conf": "hosts: files dns\n",
    **{
        name: f"#!/usr/bin/python3\nimport os\nimport sys\n\nsys.path.insert(0, '/{HOME}')\n"
        f"from {module} import main\n\ncode = main(sys.argv[1:])\nsys.stdout.flush()\nos._exit(code)\n"
        for name, module in PROGRAMS.items()
    },
}
SURVEY = """
import importlib, json, py_compile, sys, sysconfig
from pathlib import Path
doubles, out = Path(sys.argv[1]), Path(sys.argv[2])
sys.dont_write_bytecode = True
sys.path.insert(0, str(doubles))
ours = sorted(doubles.rglob("*.py"))
for path in ours:
    importlib.import_module(".".join(path.relative_to(doubles).with_suffix("").parts).removesuffix(".__init__"))
used = {getattr(module, "__file__", None) for module in list(sys.modules.values())} - {None}
stdlib = Path(sysconfig.get_path("stdlib"))
for path in sorted(Path(name) for name in used if name.endswith(".py")):
    root = doubles if path.is_relative_to(doubles) else stdlib
    home = Path("/opt/doubles") if root is doubles else stdlib
    if path.is_relative_to(root):
        name = path.relative_to(root)
        cached = name.parent / "__pycache__" / f"{name.stem}.{sys.implementation.cache_tag}.pyc"
        target = out / (home / cached).relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
        py_compile.compile(str(path), str(target), str(home / name), doraise=True, invalidation_mode=mode)
print(json.dumps({"binary": str(Path(sys.executable).resolve()), "stdlib": str(stdlib)}))
"""


@dataclass(frozen=True)
class BuiltImage:
    """An archive for `docker load`, and the image ID (`sha256:…`) that it loads as."""

    tar: Path
    id: str
    tags: tuple[str, ...]


class Ran(Protocol):
    """A finished command."""

    @property
    def returncode(self) -> int: ...
    @property
    def out(self) -> str: ...
    @property
    def err(self) -> str: ...


class Engines(Protocol):
    """Who can reach a node's Docker engine with this machine's client: the lab."""

    def docker(self, node: str, argv: Sequence[str], *, timeout: float = 30.0, check: bool = False) -> Ran: ...


def ensure(lab: Engines, node: str, image: BuiltImage) -> bool:
    """Have the image on this one node, under all its tags; whether it had to be loaded. Raises LabError."""
    if all(_image_id(lab, node, tag) == image.id for tag in image.tags):
        return False
    loaded = lab.docker(node, ["load", "--quiet", "--input", str(image.tar)], timeout=120.0)
    if loaded.returncode != 0:
        raise LabError(f"the image of the doubles did not load: {loaded.err.strip()[-300:]}", where=node)
    for tag in image.tags:
        if (found := _image_id(lab, node, tag)) != image.id:
            raise LabError(f"{tag} is {found or 'absent'} after loading {image.id}", where=node)
    return True


def forget_others(lab: Engines, nodes: Sequence[str], image: BuiltImage) -> list[str]:
    """Take the image's tags away where they name another one, as after a change of the doubles; the nodes concerned."""
    concerned = []
    for node in nodes:
        stale = [tag for tag in image.tags if _image_id(lab, node, tag) not in ("", image.id)]
        if stale:
            lab.docker(node, ["image", "rm", "--force", *stale], check=True)
            concerned.append(node)
    return concerned


def _image_id(lab: Engines, node: str, tag: str) -> str:
    asked = lab.docker(node, ["image", "inspect", "--format", "{{.Id}}", tag])
    return asked.out.strip() if asked.returncode == 0 else ""


def build(cache: Path, tags: Sequence[str] = TAGS) -> BuiltImage:
    """The image's archive in `cache`, made if its inputs have changed. Raises LabError when a program is missing.

    Inputs: the doubles (by content), this machine's Python and busybox (by name, size and time), the tags.
    """
    cache.mkdir(parents=True, exist_ok=True)
    source = Source.find()
    tar = cache / f"doubles-{source.key(tags)[:16]}.tar"
    if not tar.exists():
        _make(source, tar, tags)
        _forget(cache)
    return BuiltImage(tar, _read_id(tar), tuple(tags))


def _read_id(tar: Path) -> str:
    with tarfile.open(tar) as archive:
        member = archive.next()
        manifest = archive.extractfile(member) if member else None
        assert manifest is not None
        return "sha256:" + str(json.load(manifest)[0]["Config"]).removesuffix(".json")


def _forget(cache: Path) -> None:
    """Keep the newest archives only."""
    for old in sorted(cache.glob("doubles-*.tar"), key=lambda path: path.stat().st_mtime)[:-KEPT]:
        old.unlink(missing_ok=True)


def _ask(argv: Sequence[str]) -> str:
    environment = {"PATH": os.environ.get("PATH", os.defpath), "PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"}
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=60, env=environment, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LabError(f"cannot run {argv[0]}: {error}") from None
    if done.returncode != 0:
        raise LabError(f"{argv[0]} failed: {done.stderr.strip()[-300:]}")
    return done.stdout


@dataclass(frozen=True)
class Source:
    """What of this machine goes into the image."""

    python: Path
    stdlib: Path
    busybox: Path

    @classmethod
    def find(cls) -> Source:
        if not Path(PYTHON).exists():
            raise LabError(f"{PYTHON} is missing", hint="apt-get install python3")
        busybox = shutil.which("busybox", path="/usr/bin:/bin:/usr/sbin:/sbin")
        if busybox is None:
            raise LabError("busybox is missing", hint="apt-get install busybox-static")
        python = Path(PYTHON).resolve()
        return cls(python, Path("/usr/lib") / python.name, Path(busybox).resolve())

    def key(self, tags: Sequence[str]) -> str:
        """A hash of all inputs."""
        seal = hashlib.sha256("\n".join([FORMAT, SURVEY, *FILES.values(), *APPLETS, *tags]).encode())
        for path in self.files():
            state = path.stat()
            seal.update(f"{path} {state.st_size} {state.st_mtime_ns}\n".encode())
        for path in doubles():
            seal.update(f"{path.relative_to(DOUBLES)}\n".encode() + path.read_bytes())
        return seal.hexdigest()

    def files(self) -> list[Path]:
        """Python, its library and busybox."""
        found = [self.python, self.busybox]
        for folder, names, files in os.walk(self.stdlib):
            names[:] = sorted(name for name in names if name not in LEFT_OUT and not name.startswith("config-"))
            paths = (Path(folder) / name for name in sorted(files) if name not in LEFT_OUT)
            found += [path for path in paths if path.is_file()]
        return found

    def libraries(self) -> list[Path]:
        """The shared libraries of Python and its extension modules, as the loader finds them, and of name lookup."""
        asking = [str(self.python), str(self.busybox), *map(str, sorted((self.stdlib / "lib-dynload").glob("*.so")))]
        words = _ask(["sh", "-c", 'for f in "$@"; do ldd "$f" 2>/dev/null || :; done', "sh", *asking]).split()
        found = {Path(word) for word in words if word.startswith("/") and not word.endswith(":")}
        homes = {path.parent for path in found if "linux-gnu" in str(path)}
        names = (home / f"libnss_{kind}.so.2" for home in homes for kind in ("files", "dns"))
        return sorted(path for path in found | set(names) if path.is_file())


def doubles() -> list[Path]:
    """The doubles' own files, sorted."""
    return sorted(path for path in DOUBLES.rglob("*.py") if "__pycache__" not in path.parts)


class Layer:
    """A layer's tar with fixed owners and times; folders are made as files need them."""

    def __init__(self, path: Path) -> None:
        self._tar = tarfile.open(path, "w", format=tarfile.GNU_FORMAT)  # noqa: SIM115
        self._folders = {"."}

    def close(self) -> None:
        self._tar.close()

    def folder(self, name: str, mode: int = 0o755) -> None:
        if name not in self._folders:
            self.folder(os.path.dirname(name) or ".")
            self._folders.add(name)
            self._add(name, mode, tarfile.DIRTYPE)

    def link(self, name: str, target: str) -> None:
        self.folder(os.path.dirname(name) or ".")
        self._add(name, 0o777, tarfile.SYMTYPE, link=target)

    def file(self, name: str, data: bytes, mode: int = 0o644) -> None:
        self.folder(os.path.dirname(name) or ".")
        self._add(name, mode, tarfile.REGTYPE, data)

    def copy(self, path: Path, name: str) -> None:
        self.file(name, path.read_bytes(), 0o755 if os.access(path, os.X_OK) and path.suffix != ".py" else 0o644)

    def _add(self, name: str, mode: int, kind: bytes, data: bytes = b"", link: str = "") -> None:
        info = tarfile.TarInfo(name)
        info.mode, info.type, info.linkname, info.mtime, info.size = mode, kind, link, STAMP, len(data)
        self._tar.addfile(info, io.BytesIO(data))


def _make(source: Source, target: Path, tags: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".building-") as scratch:
        work = Path(scratch)
        _ask([PYTHON, "-c", SURVEY, str(DOUBLES), str(work / "compiled")])
        compiled = sorted(path for path in (work / "compiled").rglob("*.pyc"))
        ours = [path for path in compiled if path.is_relative_to(work / "compiled" / HOME)]
        base = [path for path in compiled if path not in ours]
        _base_layer(source, work / "base", _named(base, work / "compiled"))
        _doubles_layer(work / "doubles", _named(ours, work / "compiled"))
        _archive(work / "image", [work / "base", work / "doubles"], tags)
        (work / "image").rename(target)


def _named(paths: Iterable[Path], root: Path) -> list[tuple[str, Path]]:
    return [(str(path.relative_to(root)), path) for path in paths]


def _base_layer(source: Source, path: Path, compiled: list[tuple[str, Path]]) -> None:
    layer = Layer(path)
    for name in ("usr/bin", "usr/lib", "usr/lib64", "root"):
        layer.folder(name)
    layer.folder("tmp", 0o1777)
    for name in ("bin", "lib", "lib64"):
        layer.link(name, f"usr/{name}")
    layer.copy(source.busybox, "usr/bin/busybox")
    for name in APPLETS:
        layer.link(f"usr/bin/{name}", "busybox")
    layer.link("usr/bin/python3", source.python.name)
    for name, text in FILES.items():
        if name.startswith("etc/"):
            layer.file(name, text.encode())
    for file in source.files():
        if file != source.busybox:
            layer.copy(file, str(file).lstrip("/"))
    for library in source.libraries():
        layer.copy(library, _under_usr(library))
    for name, file in compiled:
        layer.copy(file, name)
    layer.close()


def _under_usr(library: Path) -> str:
    """Where a library goes: /lib and /lib64 are links into /usr."""
    name = str(library).lstrip("/")
    return name if name.startswith("usr/") else f"usr/{name}"


def _doubles_layer(path: Path, compiled: list[tuple[str, Path]]) -> None:
    layer = Layer(path)
    for file in doubles():
        layer.copy(file, f"{HOME}/{file.relative_to(DOUBLES)}")
    for name, file in compiled:
        layer.copy(file, name)
    for name in PROGRAMS:
        layer.file(name, FILES[name].encode(), 0o755)
    for name in PACKAGES:
        layer.file(name, FILES[name].encode())
    layer.close()


def _archive(target: Path, layers: list[Path], tags: Sequence[str]) -> None:
    """The docker-archive: manifest, image configuration, layers."""
    digests = [_digest(layer) for layer in layers]
    config = json.dumps(_config(digests), sort_keys=True).encode()
    name = hashlib.sha256(config).hexdigest() + ".json"
    paths = [f"{digest}/layer.tar" for digest in digests]
    manifest = json.dumps([{"Config": name, "RepoTags": list(tags), "Layers": paths}]).encode()
    with tarfile.open(target, "w", format=tarfile.GNU_FORMAT) as archive:
        for member, data in (("manifest.json", manifest), (name, config)):
            archive.addfile(_member(member, len(data)), io.BytesIO(data))
        for member, layer in zip(paths, layers, strict=True):
            with layer.open("rb") as stream:
                archive.addfile(_member(member, layer.stat().st_size), stream)


def _member(name: str, size: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.mtime, info.size = STAMP, size
    return info


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _config(digests: Sequence[str]) -> dict[str, object]:
    machine = platform.machine()
    made = ("python and busybox of the machine", "engine doubles")
    return {
        "architecture": ARCHITECTURES.get(machine, machine),
        "os": "linux",
        "created": CREATED,
        "config": {
            "Cmd": ["/bin/sh"],
            "Env": [
                "PATH=/usr/local/bin:/usr/bin:/bin",
                f"PYTHONPATH=/{HOME}",
                "PYTHONDONTWRITEBYTECODE=1",
                "PYTHONUNBUFFERED=1",
                "LANG=C.UTF-8",
            ],
            "Labels": {LABEL: "1"},
            "WorkingDir": "/",
        },
        "history": [{"created": CREATED, "created_by": text} for text in made],
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
    }
