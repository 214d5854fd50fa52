"""`inventory.add`: hosts are looked at and written into an inventory file; all else that stands there is untouched."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleet import profile, ui, verbs
from fleet.errors import FileFaults, FleetError, HostError, HostKeyError, UsageError, shown
from fleet.hardware import Hardware
from fleet.hosts import route
from fleet.model import enrolment, hostrange, load, roster, yamlfile
from fleet.model.hostrange import folded
from fleet.model.inventory import Host, Inventory
from fleet.model.near import did_you_mean
from fleet.model.yamledit import Unchangeable
from fleet.profile import Wishes
from fleet.progress import Silent
from fleet.results import store
from fleet.session import connect
from fleet.settings import Settings
from fleet.stages.survey import survey

HEADER = """\
# Who we have. What each key means: docs/inventory.md
# Is it right? {check}
"""
UNTOUCHED = "nothing was written"
LONGEST_PATH = 4096

Tell = Callable[[str], None]

_WORD = re.compile(r"(?:(?P<user>\w[^@\s]*)@)?(?P<host>[^@\s]+?)(?::(?P<port>\d+))?")


@dataclass(frozen=True)
class Order:
    """What to add, and how. hosts: by name, with what the command line itself says of each; recipes: the runner labels
    that they ask for."""

    hosts: Mapping[str, Mapping[str, Any]]
    group: str
    wish: Wishes
    update: bool
    recipes: tuple[str, ...]


@dataclass(frozen=True)
class File:
    """An inventory file as it was found. content is None where there is none; `text` is what hosts are added to."""

    path: Path
    content: bytes | None
    text: str
    inventory: Inventory
    groups: tuple[str, ...] = ()

    @property
    def hosts(self) -> dict[str, Host]:
        return {host.name: host for host in self.inventory.hosts}


def run(
    settings: Settings,
    *,
    hosts: Sequence[str],
    group: str = "",
    runners: Sequence[str] = (),
    models: str = "",
    fabric: str = "",
    dry_run: bool = False,
    update: bool = False,
) -> int | None:
    """3 if a host could not be looked at; the others are written all the same. A dry run's stdout is the diff alone."""
    asked = named(hosts)
    file = _read(settings.inventory, hosts)
    recipes = _labels(settings)
    known = dict.fromkeys([*(label for host in file.inventory.hosts for label in host.runners), *recipes])
    wish = Wishes(tuple(runners), models, fabric, tuple(known))
    order = Order(asked, "" if group == "all" else group, wish, update, recipes)
    _check(file, order)
    bare = _with_new(file, order)
    answers = _answers(settings, file, order, bare)
    good = {name: (bare[name], found) for name, found in answers.items() if isinstance(found, Hardware)}
    tell: Tell = ui.progress(json=True).line if dry_run else ui.say
    if good and not dry_run:
        ui.machines(good.values())
    text, written = _edited(file, order, good)
    for line in _remarks(file, order, good):
        tell(line)
    _keep(settings, file, text, written, dry_run=dry_run)
    failures = [answer for answer in answers.values() if isinstance(answer, FleetError)]
    _complain(failures, file.path, order)
    if failures and not written:
        ui.complain(UNTOUCHED)
    return HostError.exit_code if failures else None


# --- what is asked ----------------------------------------------------------------------------------------------


def named(words: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The hosts by name, ranges taken apart; user and port where `user@host:port` says them."""
    if not words:
        known = route.aliases()
        told = f"\naliases in ~/.ssh/config: {', '.join(known)}" if known else ""
        raise UsageError("which host?", hint=f"type: invoke inventory.add --host NAME{told}")
    found: dict[str, dict[str, Any]] = {}
    for word in words:
        match = _WORD.fullmatch(word)
        try:
            names = hostrange.expand(match["host"] if match else word)
        except ValueError as error:
            raise UsageError(f"--host {shown(word)}: {error}", hint="type: --host 'node[01-08]'") from None
        if match is None or not roster.is_name(names[0]):
            what = f"--host {shown(word)}: an alias of ~/.ssh/config, a name or an IPv4 address expected"
            raise UsageError(what, hint="for anything else write an alias into ~/.ssh/config first")
        given = {"user": match["user"], "port": int(match["port"]) if match["port"] else None}
        for name in names:
            found.setdefault(name, {}).update({key: value for key, value in given.items() if value})
    return found


def _read(path: Path, words: Sequence[str]) -> File:
    """The file as it is. Raises FileFaults with its faults, UsageError for the lab's own."""
    new = _is_new(path)
    if not new and path.is_dir():
        load.inventory(path)
    content = None if new else yamlfile.content(path)
    header = HEADER.format(check=_line("inventory.check", path))
    text = header if content is None else content.decode("utf-8", "replace")
    if not enrolment.says_something(text):
        return File(path, content, text, Inventory(path=str(path), hosts=()))
    inventory = _sound(text if content is None else content, path)
    if inventory.provision == "lab":
        instead = path.with_name("mine.yaml")
        line = _line("inventory.add", instead, *(part for word in words for part in ("--host", word)))
        what = (
            f"{path} has the nodes of invoke lab.up, which belong to this machine; hosts of yours go into another file"
        )
        raise UsageError(what, hint=f"type: {line}")
    return File(path, content, text, inventory, tuple(roster.places(text.encode(), str(path)).groups))


def _is_new(path: Path) -> bool:
    """Raises UsageError for a path that no file can have."""
    try:
        path.stat()
    except FileNotFoundError:
        return True
    except OSError as problem:
        raise UsageError(f"--inventory {shown(path)}: {problem.strerror}", hint=UNTOUCHED) from None
    return False


def _sound(content: bytes | str, path: Path) -> Inventory:
    try:
        return roster.parsed(content.encode() if isinstance(content, str) else content, str(path), empty=True)
    except FileFaults as error:
        raise FileFaults(error.path, error.faults, hint=UNTOUCHED) from None


def _check(file: File, order: Order) -> None:
    """Words of the command line that no file could take."""
    for name in order.hosts:
        if name in file.groups and name not in file.hosts:
            raise UsageError(f"--host {name}: that is a group in {file.path}", hint="a host's name is needed")
    if order.group and not roster.is_name(order.group):
        raise UsageError(f"--group {shown(order.group)}: letters, digits, dots and dashes expected", hint=UNTOUCHED)
    models = order.wish.models
    if models and not (models.startswith("/") and models.isprintable() and len(models) < LONGEST_PATH):
        raise UsageError(f"--models {shown(models)}: a path from / expected", hint=UNTOUCHED)


def _labels(settings: Settings) -> tuple[str, ...]:
    """The runner labels that recipes ask for."""
    found = []
    for key in load.recipe_keys(settings.recipes):
        with suppress(FleetError):
            found.append(load.recipe(key, settings.recipes).config.runner)
    return tuple(dict.fromkeys(found))


# --- what the hosts are -----------------------------------------------------------------------------------------


def _with_new(file: File, order: Order) -> dict[str, Host]:
    """All hosts by name as the file would have them, nothing known of the new ones but what they inherit."""
    new = {name: given for name, given in order.hosts.items() if name not in file.hosts}
    alone = {name: given for name, given in new.items() if not _twin(file, name, given)}
    text = _guarded(lambda: enrolment.added(file.text, str(file.path), alone, order.group))
    found = {host.name: host for host in _parsed(text, file.path).hosts}
    return found | {name: Host(name=name, **given) for name, given in new.items() if name not in found}


def _twin(file: File, name: str, given: Mapping[str, Any]) -> str:
    """The host of the file that has this name as its address."""
    place = Host(name=name, **given).place
    return next((host.name for host in file.inventory.hosts if host.name != name and host.place == place), "")


def _parsed(text: str, path: Path) -> Inventory:
    try:
        return roster.parsed(text.encode(), str(path), empty=True)
    except FileFaults as error:
        reasons = "\n".join(f"  {fault.text}" for fault in error.faults)
        raise UsageError(f"{path} would not be sound with these hosts:\n{reasons}", hint=UNTOUCHED) from None


def _answers(
    settings: Settings, file: File, order: Order, hosts: Mapping[str, Host]
) -> dict[str, Hardware | FleetError]:
    """What each host that is asked for is made of, or why that is not known."""
    chosen = {name: hosts[name].model_copy(update=dict(given)) for name, given in order.hosts.items()}
    everyone = file.inventory.model_copy(update={"hosts": tuple({**file.hosts, **chosen}.values())})
    doubles = _doubles(everyone, order.hosts)
    wanted = everyone.model_copy(update={"hosts": tuple(one for name, one in chosen.items() if name not in doubles)})
    folders = [order.wish.models] if order.wish.models else []
    with connect(wanted, settings, Silent()) as session:
        found = survey(session, models=folders)
    answers = {name: doubles.get(name) or found[name] for name in order.hosts}
    return {name: _fitting(name, answer, order.wish) for name, answer in answers.items()}


def _doubles(inventory: Inventory, asked: Mapping[str, object]) -> dict[str, FleetError]:
    """New names of machines that are there already, as ssh_config resolves both."""
    first: dict[object, str] = {}
    found: dict[str, FleetError] = {}
    for host in sorted(inventory.hosts, key=lambda host: host.name in asked):
        with suppress(FleetError, ValueError):
            way = route.resolve(
                host.address or host.name, user=host.user, port=host.port, gateway=host.gateway,
                identity=host.identity, ssh_config=inventory.ssh_config,
            )  # fmt: skip
            other = first.setdefault((way.host.casefold(), way.port, way.jumps, way.proxy_command), host.name)
            if other != host.name and host.name in asked:
                what = f"the same machine as {other}: {way.host} port {way.port}"
                found[host.name] = HostError(what, where=host.name, hint="a machine stands in an inventory once")
    return found


def _fitting(name: str, answer: Hardware | FleetError, wish: Wishes) -> Hardware | FleetError:
    """A host on which --fabric means nothing was not looked at as it was asked."""
    if not isinstance(answer, Hardware) or not wish.fabric or profile.addresses(answer, wish):
        return answer
    known = profile.eligible(answer)
    of = "RDMA devices with a link" if answer.addresses else "interfaces"
    return HostError(
        f"--fabric {shown(wish.fabric)} fits none of its {of}", where=name,
        hint=f"there are: {', '.join(known)}" if known else "there is none with an address",
    )  # fmt: skip


# --- what is written --------------------------------------------------------------------------------------------

Good = Mapping[str, tuple[Host, Hardware]]
"""Hosts that were looked at, with what the file says of them."""


def _edited(file: File, order: Order, good: Good) -> tuple[str, list[str]]:
    """The file's new text, and the hosts that it says something new of."""
    path, text = str(file.path), file.text
    new = {name: {**order.hosts[name], **_found(order, name, good)} for name in good if name not in file.hosts}
    text = _guarded(lambda: enrolment.added(text, path, new, order.group))
    written = list(new)
    for name in good if order.update else ():
        if name in new or not (values := _differs(order, name, good)):
            continue
        text = _guarded(lambda: _changed(text, path, name, dict(values), order.group))  # noqa: B023
        written.append(name)
    _prove(file, text, order, good, written)
    return text, written


def _found(order: Order, name: str, good: Good) -> dict[str, Any]:
    host, found = good[name]
    return profile.entry(host, found, order.wish)


def _differs(order: Order, name: str, good: Good) -> dict[str, Any]:
    """What the file would have to say of a host that it has."""
    host, _ = good[name]
    said = {key: value for key, value in order.hosts[name].items() if getattr(host, key) != value}
    grouped = {"group": order.group} if order.group and order.group not in host.groups else {}
    return {**said, **_found(order, name, good), **grouped}


def _changed(text: str, path: str, name: str, values: dict[str, Any], group: str) -> str:
    if values.pop("group", ""):
        text = enrolment.added(text, path, {name: {}}, group)
    return enrolment.changed(text, path, name, values)


def _guarded(edit: Callable[[], str]) -> str:
    try:
        return edit()
    except Unchangeable as problem:
        raise UsageError(f"this cannot be written without changing more: {problem}", hint=UNTOUCHED) from None


def _prove(file: File, text: str, order: Order, good: Good, written: Sequence[str]) -> None:
    """The loader itself says that the new text means what it should, and the same as before of all other hosts."""
    if not written:
        return
    after = {host.name: host for host in _parsed(text, file.path).hosts}
    moved = [name for name, host in file.hosts.items() if name not in written and after.get(name) != host]
    unsaid = [name for name in written if _differs(order, name, {name: (after[name], good[name][1])})]
    if moved or unsaid:
        what = f"{folded(moved or unsaid)} would not be what was found" if unsaid else f"{folded(moved)} would change"
        raise UsageError(f"this cannot be written into {file.path}: {what}", hint=f"{UNTOUCHED}; write it by hand")


def _keep(settings: Settings, file: File, text: str, written: Sequence[str], *, dry_run: bool) -> None:
    """The new text in the file's place, what it means, and the next line to type; a dry run shows the diff."""
    diff = _diff(file, text) if written else ""
    if diff and dry_run:
        ui.say(diff)
    if not diff or dry_run:
        return
    _replace(file, text)
    ui.say(f"\n{diff}\n\nwritten: {folded(written)}\n")
    verbs.check_inventory(settings.model_copy(update={"inventory": file.path}), about=written)
    ui.say(f"next: {_line('health', file.path, '--limit', ','.join(folded(written).split()))}")


def _diff(file: File, text: str) -> str:
    before = "" if file.content is None else file.text
    name = str(file.path)
    lines = difflib.unified_diff(
        before.splitlines(keepends=True),
        text.splitlines(keepends=True),
        "/dev/null" if file.content is None else name,
        name,
    )
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines).rstrip(
        "\n"
    )


def _replace(file: File, text: str) -> None:
    target = file.path.resolve()
    try:
        if (target.read_bytes() if target.exists() else None) != file.content:
            raise UsageError(f"{file.path} was changed meanwhile", hint=f"{UNTOUCHED}; type it again")
        target.parent.mkdir(parents=True, exist_ok=True)
        store.replace(target, text.encode(), mode=target.stat().st_mode & 0o777 if target.exists() else 0o644)
    except OSError as error:
        raise FleetError(error.strerror or str(error), where=str(file.path), hint=UNTOUCHED) from None


# --- what is told -----------------------------------------------------------------------------------------------


def _remarks(file: File, order: Order, good: Good) -> Iterator[str]:
    if good and order.group and order.group not in file.groups:
        yield f"group {order.group} is new in {file.path}{did_you_mean(order.group, file.groups)}"
    for name in good:
        if name in file.hosts and not (order.update and _differs(order, name, good)):
            yield f"{name}: {_there(file, order, name, good)}"
    yield from _without_gpus(file, order, good)
    yield from _hints(file, order, good)


def _without_gpus(file: File, order: Order, good: Good) -> Iterator[str]:
    """What to write by hand for hosts that show no GPUs, where the file does not say it already."""
    asked = {name: host for name, (host, found) in good.items() if not found.gpus}
    bare = [name for name, host in asked.items() if not host.gpus or order.update or name not in file.hosts]
    if not bare:
        return
    keys = ["gpus: 8", "accelerator: rocm (or cuda)"]
    if order.recipes and not order.wish.runners and not all(asked[name].runners for name in bare):
        keys.append(f"runners: [{', '.join(order.recipes)}]")
    yield f"no GPUs found on {_named(bare)}; if they have some write: {', '.join(keys)}"


def _hints(file: File, order: Order, good: Good) -> Iterator[str]:
    """Each once, with all hosts that it is true of."""
    anyone, found = "\0", dict[str, list[str]]()
    for name, (host, hardware) in good.items():
        for hint in profile.hints(anyone, host, hardware, order.wish, inventory=str(file.path)):
            found.setdefault(hint, []).append(name)
    for hint, names in found.items():
        yield f"{_named(names)}: {hint.replace(anyone, ' --host '.join(map(shlex.quote, folded(names).split())))}"


def _named(names: Sequence[str]) -> str:
    return ", ".join(folded(names).split())


def _there(file: File, order: Order, name: str, good: Good) -> str:
    differs = _differs(order, name, good)
    if not differs:
        return f"is in {file.path} already, as it was found"
    says = good[name][0].model_dump(mode="json") | {"group": ", ".join(good[name][0].groups) or None}
    told = ", ".join(f"{key}: {_shown(says[key])} (found: {_shown(value)})" for key, value in differs.items())
    line = _line("inventory.add", file.path, "--host", name, "--update")
    return f"is in {file.path} already and stays as it is; it says {told}\nto write what was found:  {line}"


def _complain(failures: Sequence[FleetError], path: Path, order: Order) -> None:
    """Hosts whose keys are not on record are trusted by one line; the file need not have them yet."""
    untrusted = [one for one in failures if isinstance(one, HostKeyError) and one.hint]
    for failure in failures:
        ui.complain(failure.head if failure in untrusted else failure)
    if untrusted:
        words = [part for one in untrusted for part in ("--host", _typed(one.where, order.hosts.get(one.where, {})))]
        ui.complain(f"compare the fingerprints with the hosts' own, then:  {_line('trust', path, *words)}")


def _typed(name: str, given: Mapping[str, Any]) -> str:
    """A host as `--host` takes it."""
    user, port = given.get("user"), given.get("port")
    return (f"{user}@" if user else "") + name + (f":{port}" if port else "")


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(_shown(one) for one in value.values() if one) or "-"
    if isinstance(value, (list, tuple)):
        return folded([str(one) for one in value]) or "-"
    return "-" if value in (None, "") else str(value)


def _line(verb: str, path: Path, *words: str) -> str:
    return shlex.join(["invoke", verb, "--inventory", str(path), *words])
