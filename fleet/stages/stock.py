"""What a host has that matters for staging: layers, room on its disks, an engine that takes images in parts or not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from fleet import layers
from fleet.errors import CommandFailed
from fleet.session import Machine

# Images may come and go meanwhile: those that can be inspected are listed.
SCRIPT = """
scratch=$1 image=$2; shift 2
info=$("$@" info --format '{{json .DriverStatus}}{{"\\n"}}{{.DockerRootDir}}') || exit
printf 'store %s\\n' "${info%%
*}"
room() {
    dir=$2
    while [ -n "$dir" ] && ! [ -d "$dir" ]; do dir=${dir%/*}; done
    df -k --output=avail -- "${dir:-/}" 2>/dev/null | sed -n "2s/^ */$1 /p"
}
room engine "${info#*
}"
room scratch "$scratch"
tar --version 2>/dev/null | sed -n '1s/.*GNU.*/tar gnu/p'
"$@" images -aq --no-trunc | sort -u | xargs -r "$@" image inspect --format 'layers {{json .RootFS.Layers}}' 2>/dev/null
[ -z "$image" ] || "$@" history --human=false --format 'size {{.Size}}' "$image"
exit 0
"""


@dataclass(frozen=True)
class Stock:
    """engine, scratch: free bytes on the disks of the engine and of the scratch folder, None where unknown.

    parts: whether its engine takes an image in parts. sizes: bytes of an image's layers, lowest first, about.
    """

    chains: tuple[tuple[str, ...], ...] = ()
    engine: int | None = None
    scratch: int | None = None
    parts: bool = False
    gnu_tar: bool = False
    sizes: tuple[int, ...] = ()

    def of(self, image: Sequence[str]) -> int:
        """How many layers of an image it has, from the bottom."""
        return layers.shared(image, self.chains)


def stock(machine: Machine, image: str = "", *, timeout: float = 0) -> Stock:
    """Ask a host. image: one whose sizes are wanted, too. timeout: seconds, else the settings'. Raises HostError."""
    argv = ["sh", "-c", SCRIPT, "sh", machine.host.scratch, image, *machine.docker_prefix(), "docker"]
    return parse(machine.run(argv, timeout=timeout).out)


def parse(out: str) -> Stock:
    said: dict[str, list[str]] = {}
    for line in out.splitlines():
        word, _, rest = line.partition(" ")
        said.setdefault(word, []).append(rest)
    if "store" not in said:
        raise CommandFailed("the engine does not tell how it stores images")
    chains = [tuple(map(str, json.loads(text) or ())) for text in said.get("layers", [])]
    sizes = [int(text) for text in said.get("size", []) if text.isdigit()]
    return Stock(
        chains=tuple(dict.fromkeys(chains)),
        engine=_kilobytes(said.get("engine", [])),
        scratch=_kilobytes(said.get("scratch", [])),
        # With containerd's store an image is what its registry had, compressed: parts would make another one of it.
        parts="io.containerd" not in said["store"][0],
        gnu_tar="tar" in said,
        sizes=tuple(reversed([size for size in sizes if size])),
    )


def _kilobytes(found: Sequence[str]) -> int | None:
    return 1024 * int(found[0]) if found and found[0].strip().isdigit() else None
