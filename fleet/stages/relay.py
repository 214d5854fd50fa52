"""What a host of a chain runs: POSIX sh, coreutils and ssh, no more. Its lines that begin with @ are for the chain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fleet.hosts.base import Argv, Peer, quoted
from fleet.hosts.peer import ssh_argv

# A folder of its own below the base, gone with the script, whichever of its ends it comes to. `timeout` passes a signal
# on twice, to the script and to its group: the second one must not end what clears away.
BEGIN = """
umask 077
mkdir -p -- "$base/$run" && cd -- "$base/$run" || exit 126
over() { trap '' HUP INT TERM; cd /; rm -rf -- "$base/$run"; kill -TERM 0; }
trap over EXIT
trap 'trap "" HUP INT TERM; exit 143' HUP INT TERM
echo $$ >pid
"""

# Of a process whose number is in a file: what it has read so far.
TICK = """
( while sleep 0.3 >/dev/null 2>&1; do
    read -r number <"$counted" && while read -r key value; do
        [ "$key" = rchar: ] && echo "@got $value" && break
    done <"/proc/$number/io" || echo "@got -"
done ) 2>/dev/null &
"""

# A command that ends early leaves tee with the next host; a next host that is gone leaves it with the command.
STOP = (
    "base=$1 run=$2 from=$3 next=$4 skip=$5\nshift 5\n"
    + BEGIN
    + """
[ -p in ] || mkfifo in 2>/dev/null || [ -p in ] || exit 126
mkfifo mine || exit 126
exec 3<&0
out=/dev/null
if [ -n "$next" ]; then
    out=out
    mkfifo out || exit 126
    { head -c "$skip" >/dev/null && exec cat; } <out 3<&- | {
        sh -c "echo \\$\\$ >link; exec $next" >/dev/null 2>err 3<&-
        code=$?
        sed 's/^/@said /' err
        echo "@link $code"
    } &
    link=$!
fi
( "$@" <mine 2>&1 3<&-; code=$?; echo "@done $code"; exit $code ) &
eater=$!
if [ "$from" = in ]; then tee -p "$out" <in >mine 3<&- & else tee -p "$out" <&3 >mine & fi
tee=$!
exec 3<&-
echo $tee >tee
counted=tee
"""
    + TICK
    + """
wait $tee
wait $eater
code=$?
[ -z "$next" ] || wait $link
exit $code
"""
)

FEED = (
    "base=$1 run=$2 next=$3\nshift 3\n"
    + BEGIN
    + """
mkfifo out || exit 126
( "$@" >out; code=$?; echo "@made $code"; exit $code ) &
maker=$!
{
    sh -c "echo \\$\\$ >link; exec $next" <out >/dev/null 2>err
    code=$?
    sed 's/^/@said /' err
    echo "@link $code"
} &
link=$!
counted=link
"""
    + TICK
    + """
wait $maker
code=$?
wait $link
exit $code
"""
)

ENTER = """umask 077
mkdir -p -- "$1" && { [ -p "$1/in" ] || mkfifo "$1/in" 2>/dev/null || [ -p "$1/in" ]; } || exit 126
exec cat >"$1/in" """

HANG_UP = 'read -r number <"$1/$2" && kill -TERM "$number"'


@dataclass(frozen=True)
class Hop:
    """From one host to the next: `known` is a known_hosts file on the former, `folder` the chain's on the latter."""

    peer: Peer
    known: str
    folder: str

    def text(self, run: str) -> str:
        """Shell text for the former."""
        return quoted(ssh_argv(self.peer, self.known, ["sh", "-c", ENTER, "sh", f"{self.folder}/{run}"]))


def stop_argv(folder: str, run: str, argv: Argv, *, hop: Hop | None, skip: int, stdin: bool) -> list[str]:
    """Take the stream, from the host before or from stdin, give it to a command and to the next host.

    skip: bytes of it that the next host does not want.
    """
    words = [folder, run, "-" if stdin else "in", hop.text(run) if hop else "", str(skip)]
    return ["sh", "-c", STOP, "sh", *words, *argv]


def feed_argv(folder: str, run: str, argv: Argv, hop: Hop) -> list[str]:
    """Give what a command writes to the next host."""
    return ["sh", "-c", FEED, "sh", folder, run, hop.text(run), *argv]


def hang_up_argv(folder: str, run: str, which: str) -> list[str]:
    """End a script of a chain ("pid"), or only what it gives to the next host ("link")."""
    return ["sh", "-c", HANG_UP, "sh", f"{folder}/{run}", which]


class Lines:
    """Whole lines from chunks of bytes."""

    def __init__(self) -> None:
        self._rest = b""

    def of(self, data: bytes) -> Sequence[str]:
        *whole, self._rest = (self._rest + data).split(b"\n")
        return [line.decode("utf-8", "replace") for line in whole]
