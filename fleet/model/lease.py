"""A node's lease: who holds it, for which run, until when; and the script that reads and changes it on the node.

Ages are judged by the node's own clock, in the script: clocks of controllers may differ.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Literal

from pydantic import ValidationError

from fleet.errors import shown
from fleet.model.base import Model

FOLDER = "/var/tmp/fleet-lease"
"""On every node. Everybody who logs in there may write to it, so that a lease can be taken over from another user."""

LASTS = 60
"""Seconds from a renewal to the end of a lease that is not renewed again."""

STEP = 30
"""Seconds by which a node's clock may be put right without a word."""

FILE = f"{FOLDER}/lease.json"


class Lease(Model):
    """One node's lease as it is written there. host: the controller. since, renewed, expires, ends: seconds since 1970
    by the node's clock; ends: when it is over at the latest.

    pid, process: the program that holds it, and which one of that number it is (see Claim).
    """

    owner: str
    host: str
    run: str
    token: str
    pid: int = 0
    process: str = ""
    since: int
    renewed: int
    expires: int
    ends: int

    @property
    def run_of(self) -> str:
        return f"run {shown(self.run)} of {shown(self.owner)}"


class Claim(Model):
    """Who asks for nodes. process: boot, process namespace and start time of `pid`: no other one is taken for it."""

    owner: str
    host: str
    run: str
    token: str
    pid: int
    process: str


Word = Literal["absent", "held", "taken", "expired", "instead", "renewed", "other", "released"]


class Answer(Model):
    """What the script says. word: what was done, or why nothing was. now: the node's clock. lease: the one it found.

    damaged: why what it found is no lease, "" where it is one. mark: stands for exactly what it found.
    """

    word: Word
    now: int
    lease: Lease | None = None
    damaged: str = ""
    mark: str = ""

    @property
    def live(self) -> Lease | None:
        """The lease that holds the node now."""
        return self.lease if self.lease and self.lease.expires > self.now else None

    @property
    def key(self) -> str:
        """What to call it by, to replace or remove this one and no other."""
        return self.lease.token if self.lease else self.mark

    @property
    def odd(self) -> str:
        """Why the times of a live lease cannot be those of a run that renews it by the node's clock; "" if they can."""
        if (held := self.live) is None:
            return ""
        later = max(held.since, held.renewed)
        if later > self.now + STEP:
            return f"it was written in the future by the node's clock ({age(later - self.now)} ahead)"
        if held.expires > self.now + LASTS + STEP:
            return f"it counts for {age(held.expires - self.now)} more, where {LASTS} s are usual"
        return ""


# The lock is the folder's own: the kernel lets go of it when the script ends, however it does. Files are written aside
# and renamed; a file's owner does not matter, as the folder has no sticky bit. Anybody can put anything in its place:
# what is no plain file is never opened (a named pipe would not answer), and a folder is set aside, for its content may
# be somebody's. `mark` stands for exactly what was found.
SCRIPT = r"""
set -u
LC_ALL=C; export LC_ALL; umask 022
verb=$1 folder=$2 token=$3 head=$4 lasts=$5 longest=$6 instead=$7 since=$8
file=$folder/lease.json held='' fault='' mark='' there=''
say() { printf '%s %s %s %s\n' "$1" "$now" "$mark" "$fault"; [ -z "$held" ] || printf '%s\n' "$held"; exit 0; }
field() { printf '%s' "$held" | sed -n 's/.*"'"$1"'" *: *"\{0,1\}\([0-9a-f]*\).*/\1/p'; }
whole() {
  string='"([^"\\]|\\.)*"'
  printf '%s\n' "$held" | grep -Eqx "\{($string ?: ?($string|[0-9]+)(, ?|\}\$))+" || return 1
  printf '%s\n' "$held" | grep -Eq '"token" ?: ?"[0-9a-f]+"' || return 1
  for key in owner host run since renewed expires ends; do
    case $held in *"\"$key\""*) ;; *) return 1 ;; esac
  done
}
seen() {
  [ -e "$file" ] || [ -h "$file" ] || return 0
  there=1
  if [ -h "$file" ]; then fault='is a symbolic link'
  elif [ -d "$file" ]; then fault='is a folder'
  elif [ -p "$file" ]; then fault='is a named pipe'
  elif [ ! -f "$file" ]; then fault='is no plain file'
  elif [ ! -r "$file" ]; then fault='may not be read by this user'
  elif [ ! -s "$file" ]; then fault='is empty'
  else
    held=$(timeout 5 head -c 8192 "$file" 2>/dev/null | tr -d '\000' | head -n 1)
    whole || fault='does not say what a lease says'
  fi
  mark=$(printf '%s|%s' "$fault" "$held" | cksum | tr -c '0-9\n' -)
}
clear() { if [ -d "$file" ] && [ ! -h "$file" ]; then mv -T "$file" "$folder/.damaged.$now.$$" || exit 74; fi; }
write() {
  expires=$((now + lasts)) ends=$((since + longest))
  [ "$expires" -le "$ends" ] || expires=$ends
  aside=$(mktemp "$folder/.aside.XXXXXX") || exit 74
  clear
  printf '{%s,"since":%s,"renewed":%s,"expires":%s,"ends":%s}\n' "$head" "$since" "$now" "$expires" "$ends" >"$aside" &&
    chmod 644 "$aside" && mv -fT "$aside" "$file" || { rm -f "$aside"; exit 74; }
}
now=$(date +%s)
if [ "$verb" = take ]; then
  [ -e "$folder" ] || [ -h "$folder" ] || mkdir -m 0777 "$folder" || [ -d "$folder" ] || exit 73
elif [ ! -e "$folder" ] && [ ! -h "$folder" ]; then say absent; fi
if [ -h "$folder" ] || [ ! -d "$folder" ] || [ ! -w "$folder" ]; then
  echo "$folder is not a folder that this user may write to" >&2; exit 73
fi
exec 9<"$folder" || exit 73
flock -w 10 9 || { echo "$folder is locked for more than 10 s, or flock (util-linux) is missing" >&2; exit 75; }
now=$(date +%s)
seen
old=$(field token) expires=$(field expires)
[ -z "$fault" ] || old=- expires=
case $verb in
look) if [ -n "$there" ]; then say held; else say absent; fi ;;
take)
  if [ -z "$there" ]; then word=taken
  elif [ -z "$fault" ] && [ "${expires:-0}" -le "$now" ]; then word=expired
  else case " $instead " in *" $old "*|*" $mark "*) word=instead ;; *) say held ;; esac; fi
  since=$now; write; say "$word" ;;
renew)
  [ -n "$there" ] || say absent
  [ "$old" = "$token" ] || say other
  write; say renewed ;;
release)
  [ -n "$there" ] || say absent
  [ "$old" = "$token" ] || [ "$mark" = "$token" ] || say other
  clear; rm -f "$file" || exit 74
  say released ;;
esac
exit 2
"""


def argv(
    verb: Literal["look", "take", "renew", "release"],
    *,
    claim: Claim | None = None,
    token: str = "",
    longest: float = 0,
    instead: Sequence[str] = (),
    since: int = 0,
) -> list[str]:
    """The command for a node. longest: seconds from since to the end at the latest; instead: keys of those that it may
    replace although they are live or damaged; token: the key of the one to release, by default the claim's."""
    head = json.dumps(claim.model_dump(), separators=(",", ":"), ensure_ascii=True)[1:-1] if claim else ""
    own = token or (claim.token if claim else "")
    numbers = (str(LASTS), str(int(longest)))
    return ["sh", "-c", SCRIPT, "fleet-lease", verb, FOLDER, own, head, *numbers, " ".join(instead), str(since)]


def parse(out: str) -> Answer:
    """Raises ValueError where the script did not say what it says."""
    first, _, rest = out.partition("\n")
    word, now, mark, damaged = (*first.split(" ", 3), "", "")[:4]
    lease = None
    if (text := rest.strip()) and not damaged:
        try:
            lease = Lease.model_validate_json(text)
        except ValidationError:
            damaged = "does not say what a lease says"
    return Answer.model_validate({"word": word, "now": int(now), "lease": lease, "damaged": damaged, "mark": mark})


def whose(node: str, answer: Answer, here: datetime) -> str:
    """Who has a node, as far as its lease tells. here: what our clock shows when the node's shows the answer's."""
    if answer.lease is None:
        return f"{node}: {FILE} {answer.damaged}: nobody can tell who has the node"
    odd = f"; {answer.odd}: was its clock moved?" if answer.odd else ""
    return taken(node, answer.lease, answer.now, here) + odd


def taken(node: str, lease: Lease, now: int, here: datetime) -> str:
    """Whose a node is, since when and until when. now: the node's clock; here: what ours shows at that moment."""
    since, ends = (clock(here, now, at) for at in (lease.since, lease.ends))
    whose = f"{node} is leased by {shown(lease.owner)} for run {shown(lease.run)}"
    return f"{whose} since {since}, renewed {age(now - lease.renewed)} ago, ends {ends} at the latest"


def clock(here: datetime, now: int, at: int) -> str:
    """A time of the node's clock by ours: 18:50, with the day where it is another one."""
    when = here - timedelta(seconds=max(-(10**9), min(10**9, now - at)))
    return f"{when:%H:%M}" if when.date() == here.date() else f"{when:%Y-%m-%d %H:%M}"


def age(seconds: float) -> str:
    """`4 s`, `12 min`, `3 h`, `2 days`."""
    for size, name in ((172800, "days"), (7200, "h"), (120, "min")):
        if seconds >= size:
            return f"{seconds / {'days': 86400, 'h': 3600, 'min': 60}[name]:.0f} {name}"
    return f"{max(0, seconds):.0f} s"
