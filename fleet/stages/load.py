"""How a host loads an image from a stream: in parts, of which those that came whole stay, or as one archive."""

from __future__ import annotations

from fleet import docker
from fleet.errors import HostError
from fleet.layers import PART
from fleet.session import Machine

# Reads a line with size and image ID, the part, a line `end`; after the last part `done`. The engine unpacks a part as
# it comes and registers its layers when the archive ends: its end is given when the part before is registered. So two
# parts are under way at most: one that comes and one that is being registered. It runs in a folder of its own.
LOAD = """
load() {
    { cat <"part.$number"; read -r go <"go.$number" && head -c 1024 /dev/zero; } 2>/dev/null |
        "$@" load -q >"out.$number" 2>&1 || exit
    echo "loaded $id"
    exit 0
}
number=0 now= before= id=
said() { [ ! -s "out.$1" ] || cat "out.$1"; }
early() { [ -z "$before" ] || wait "$before" || said "$((number - 1))"; echo "the stream ended early"; exit 1; }
while read -r size id && [ "$size" != done ]; do
    number=$((number + 1))
    mkfifo "part.$number" "go.$number" || exit 126
    load "$@" &
    now=$!
    head -c "$size" >"part.$number" 2>/dev/null || { : >"go.$number"; wait "$now"; said "$number"; exit 1; }
    read -r end && [ "$end" = end ] || { : >"go.$number"; wait "$now"; early; }
    if [ -n "$before" ]; then
        echo @busy
        wait "$before" || { : >"go.$number"; wait "$now"; said "$((number - 1))"; exit 1; }
        echo @idle
    fi
    echo go >"go.$number"
    before=$now
done
[ "$size" = done ] || early
[ -n "$before" ] || exit 0
echo @busy
wait "$before" || { said "$number"; exit 1; }
"""

# What is left of an image that came in parts: unnamed images that are some layers of it.
TIDY = """
parts=$1; shift
"$@" images -q --no-trunc --filter "label=$parts" | sort -u | xargs -r "$@" image rm --no-prune >/dev/null 2>&1
exit 0
"""


def parts_argv(machine: Machine) -> tuple[str, ...]:
    return ("sh", "-c", LOAD, "sh", *machine.docker_prefix(), "docker")


def whole_argv(machine: Machine) -> tuple[str, ...]:
    return (*machine.docker_prefix(), *docker.load_argv(), "-q")


def tidy(machine: Machine, image_id: str) -> None:
    """Remove what is left of an image's parts. What cannot be removed now is nobody's fault."""
    argv = ["sh", "-c", TIDY, "sh", f"{PART}={image_id}", *machine.docker_prefix(), "docker"]
    try:
        machine.run(argv, check=False)
    except HostError:
        return
