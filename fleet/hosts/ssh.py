"""SSH, on Fabric: connections that are verified, shared by threads and bounded in time; commands that end.

Fabric opens connections; commands run on the channels of its paramiko transport, where bytes and deadlines are under
control. docs/hosts.md lists what Fabric does otherwise and where each of it is put right.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import os
import secrets
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from functools import lru_cache
from typing import Any, BinaryIO

import fabric
import paramiko

from fleet import awake
from fleet.errors import (
    CommandFailed,
    CommandTimeout,
    HostError,
    HostKeyError,
    Interrupted,
    LoginError,
    Unreachable,
)
from fleet.hosts.archive import TAR_OK, tar_argv
from fleet.hosts.base import (
    CHUNK,
    GRACE,
    KILL_AFTER,
    MUTE,
    REFUSED,
    SILENT,
    Argv,
    Calls,
    Deadline,
    Outcome,
    Peer,
    Tail,
    checked,
    named,
    quoted,
)
from fleet.hosts.route import Route, resolve, split_jump
from fleet.hosts.trust import Found, KnownHosts, Untrusted
from fleet.hosts.wire import Wire

SESSIONS = 8
"""Channels on one connection, before another is opened. sshd's MaxSessions is 10; two stay free to end commands."""

FRESH = 0.2
"""Seconds that the failure of an earlier attempt to connect answers later calls, too."""

SILENCE = 15
"""Seconds of silence after which a connection is given up, whatever a call on it may still take. Packets that are lost
now and then are sent again meanwhile; where containers serve, their host's pulse tells sooner.
"""

PREAMBLE = 64 * 1024
"""Bytes that a login shell's start-up files may print before the command begins."""

HOST_KEYS = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "rsa-sha2-512",
    "rsa-sha2-256",
)

# It tells which process to end, and that the command begins now: whatever a login shell printed before is noise.
# The login shell itself does so in no time, unless it is one to which $$ means nothing (fish): then `sh` is asked to.
TELL = "echo {token} $$; exec {command}"

WRITE = """umask 077; trap 'rm -f -- "$1"' EXIT; trap 'exit 1' HUP INT PIPE TERM
cat >"$1" || exit; [ "$(wc -c <"$1")" -eq "$2" ] || { echo "the data arrived incomplete" >&2; exit 1; }
chmod "$3" "$1" && mv -fT -- "$1" "$4" """

paramiko_log = logging.getLogger("paramiko")
paramiko_log.addHandler(logging.NullHandler())
paramiko_log.propagate = False


HINTED = 300
"""Characters of a command that a hint repeats."""

LOST = (OSError, EOFError, paramiko.SSHException)
"""What paramiko raises on a connection that is gone; such a channel ends without an exit code."""


def shut(channel: paramiko.Channel) -> None:
    """Close a channel; on a connection that is gone there is nothing to close."""
    with contextlib.suppress(*LOST):
        channel.close()


class Plain(fabric.Connection):  # type: ignore[misc]
    """Attributes are attributes: Fabric looks through all that it has each time one is set, which is most of what
    a connection costs here.
    """

    __setattr__ = object.__setattr__


class Nothing(paramiko.SSHConfig):  # type: ignore[misc]
    """What ssh_config says of a host once the route has said it all."""

    def lookup(self, hostname: str) -> paramiko.SSHConfigDict:
        return paramiko.SSHConfigDict()


@lru_cache(maxsize=1)
def settled() -> fabric.Config:
    """For all connections: none of them writes to it."""
    return fabric.Config(lazy=True, ssh_config=Nothing())


class Link:
    """One open connection. `busy` counts the calls on it; a retired one takes no more and closes after the last."""

    def __init__(self, connection: fabric.Connection, limit: float) -> None:
        self.transport: paramiko.Transport = connection.transport
        self.connection = connection
        self.limit = limit
        self.busy = 0
        self.retired = False
        self.pauses = awake.pauses()

    @property
    def usable(self) -> bool:
        """A connection that was open while this process was stopped may be dead without a word."""
        return not self.retired and self.pauses == awake.pauses() and bool(self.transport.is_active())

    def close(self) -> None:
        """Closing may have to wait for a dead peer: nobody waits for it."""
        threading.Thread(target=self._close, name="fleet-close", daemon=True).start()

    def _close(self) -> None:
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            self.connection.close()


class Attempt:
    """One connection being opened: the calls that want it wait for `done`."""

    def __init__(self) -> None:
        self.done: Future[None] = Future()
        self.age = Deadline(0).spent


class Refused(Exception):
    """The host proved who it is, and then the login failed: refused, or a key here that cannot be used."""


class Call:
    """One command on its way: what the threads that serve it share. The bell rings whenever there is news for it."""

    def __init__(self, *, plain: bool) -> None:
        self.plain = plain
        self.token = f"fleet-{secrets.token_hex(8)}"
        self.bell = threading.Event()
        self.link: Link | None = None
        self.opened: Future[paramiko.Channel] = Future()
        self.trouble: BaseException | None = None
        self.pid: int | None = None
        self.cancelled = False
        self.code = -1
        self._before = bytearray()

    def cancel(self) -> None:
        self.cancelled = True
        self.bell.set()

    @property
    def used(self) -> Link:
        """The connection of an open channel."""
        assert self.link is not None
        return self.link

    def body(self, data: bytes) -> bytes:
        """What the command itself wrote: everything after the line that names its process."""
        if self.pid is not None:
            return data
        self._before += data
        _, found, rest = self._before.partition(self.token.encode() + b" ")
        number, ended, rest = rest.partition(b"\n")
        if not found or not ended:
            return b""
        self.pid = int(number)
        return bytes(rest)

    @property
    def refused(self) -> bool:
        """Whether the login shell ended without beginning the command."""
        return self.pid is None and self.code != -1

    @property
    def flooded(self) -> bool:
        return self.pid is None and len(self._before) > PREAMBLE

    @property
    def noise(self) -> bytes:
        return bytes(self._before)


class SSH(Calls):
    """One machine behind sshd. All arguments but the name may come from ssh_config; given ones win.

    address: host name, IP or an ssh_config alias; the name itself where it is None.
    gateway: `[user@]host[:port]`, several separated by commas, or `none`; opened once, shared by all hosts behind it.
    identity, ssh_config, known_hosts: paths. A given ssh_config is the only one read, like `ssh -F`.
    connect_timeout: seconds for each of: TCP connect, banner and key exchange, login, opening a channel.
    inventory: the file that has the host, for the lines that hints say.
    """

    def __init__(
        self,
        name: str,
        *,
        address: str | None = None,
        user: str | None = None,
        port: int | None = None,
        gateway: str | None = None,
        identity: str | None = None,
        ssh_config: str | None = None,
        known_hosts: str | None = None,
        connect_timeout: float = 10.0,
        inventory: str | None = None,
    ) -> None:
        self.name = name
        self.inventory = inventory
        self.connect_timeout = connect_timeout
        self._target = address or name
        self._given = {"user": user, "port": port, "gateway": gateway}
        self._files = {"identity": identity, "ssh_config": ssh_config, "known_hosts": known_hosts}
        self._sessions: float = SESSIONS
        self._known_shell = False
        self._foreign_shell = False
        self._route: Route | None = None
        self._gateway: SSH | None = None
        self._lock = threading.Lock()
        self._links: list[Link] = []
        self._attempt: Attempt | None = None
        self._calls: set[Call] = set()

    # ------------------------------------------------------------------ commands

    def put(self, data: bytes, path: str, *, mode: int = 0o644, timeout: float = 60.0) -> None:
        """See Transport.put. The file gets its name only after every byte of it arrived."""
        aside = f"{path}.tmp.{secrets.token_hex(4)}"
        argv = ["sh", "-c", WRITE, "sh", aside, str(len(data)), f"{mode:o}", path]
        outcome = self.run(argv, timeout=timeout, stdin=data, check=False)
        if not outcome.ok:
            said = outcome.err.strip().splitlines() or [f"code {outcome.code}"]
            hint = f"try:  {self.ssh_line(['ls', '-ld', os.path.dirname(path) or '.'])}"
            raise CommandFailed(f"cannot write {path}: {said[-1].rpartition(': ')[2]}", where=self.name, hint=hint)

    def get(self, path: str, sink: BinaryIO, *, timeout: float = 600.0) -> None:
        """See Transport.get. A file that grows meanwhile, as a log does, is fine."""
        argv = tar_argv(path)
        outcome = self.stream(argv, timeout=timeout, sink=sink.write, check=False)
        checked(outcome, self._hint(argv), allowed=TAR_OK)

    def cancel(self) -> None:
        with self._lock:
            calls = list(self._calls)
        for call in calls:
            call.cancel()

    def close(self) -> None:
        """End all connections. Commands in flight raise Unreachable; a later call connects anew."""
        with self._lock:
            links, self._links = self._links, []
            gateway, self._gateway = self._gateway, None
            self._attempt = None
        for link in links:
            link.retired = True
            link.close()
        if gateway is not None:
            release_gateway(gateway)

    def ssh_line(self, argv: Argv = ()) -> str:
        words = ["ssh"]
        if self._files["ssh_config"]:
            words += ["-F", self._files["ssh_config"]]
        words += self._options()
        gateway = self._given["gateway"]
        if gateway and (self._files["identity"] or self._files["known_hosts"]) and "," not in str(gateway):
            words += ["-o", f"ProxyCommand={self._proxy_line(str(gateway))}"]
        elif gateway:
            words += ["-J", str(gateway)]
        return " ".join([quoted([*words, *self._destination()]), *([quoted([quoted(argv)])] if argv else [])])

    def peer(self, address: str | None = None) -> Peer | None:
        """See Transport.peer. Behind a gateway the address is one of that network, which its peers may share."""
        try:
            route = self.route
        except HostError:
            return None
        trust = KnownHosts(route.label, route.known_hosts)
        revoked = {entry.key for entry in trust.known if entry.revoked}
        keys = dict.fromkeys(f"{one.kind} {one.key}" for one in trust.known if one.key not in revoked)
        return Peer(self.name, address or route.host, route.port, route.user, tuple(keys)) if keys else None

    def _options(self) -> list[str]:
        identity, known = self._files["identity"], self._files["known_hosts"]
        return [*(["-i", identity] if identity else []), *(["-o", f"UserKnownHostsFile={known}"] if known else [])]

    def _proxy_line(self, gateway: str) -> str:
        user, host, port = split_jump(gateway)
        config = ["-F", self._files["ssh_config"]] if self._files["ssh_config"] else []
        words = ["ssh", *config, *self._options(), "-W", "%h:%p", *(["-p", str(port)] if port else [])]
        return quoted([*words, f"{user}@{host}" if user else host])

    def _destination(self) -> list[str]:
        """An alias stays an alias; an address is told with port and user, so that the line works anywhere."""
        user, port = self._given["user"], self._given["port"]
        try:
            route = self.route
        except HostError:
            return [self._target]
        if route.host == self._target:
            return ["-p", str(route.port), f"{route.user}@{route.host}"]
        return [*(["-p", str(port)] if port else []), f"{user}@{self._target}" if user else self._target]

    def _hint(self, argv: Argv) -> str:
        """The same by hand. A command too long to be read is left out: what is to be tried then is the connection."""
        return f"try:  {self.ssh_line(argv if len(quoted(argv)) <= HINTED else ['true'])}"

    # ------------------------------------------------------------------ one call

    def _call(
        self,
        argv: Argv,
        deadline: Deadline,
        source: Iterable[bytes],
        sink: Callable[[bytes], object],
        errors: Tail,
    ) -> Outcome:
        # What an unknown login shell would swallow of a command's stdin could not be sent again.
        plain = self._foreign_shell or (source != () and not self._known_shell)
        call = Call(plain=plain)
        self._carry(call, argv, deadline, source, sink, errors)
        if call.refused and not plain:
            errors.clear()
            call = Call(plain=True)
            self._carry(call, argv, deadline, source, sink, errors)
            self._foreign_shell = not call.refused
        self._known_shell |= not call.plain
        return self._outcome(call, argv, deadline, errors)

    def _carry(
        self,
        call: Call,
        argv: Argv,
        deadline: Deadline,
        source: Iterable[bytes],
        sink: Callable[[bytes], object],
        errors: Tail,
    ) -> None:
        with self._lock:
            self._calls.add(call)
        try:
            link = self._start(call, argv, deadline, source)
            try:
                call.code = self._follow(call, argv, deadline, sink, errors)
            except BaseException as problem:
                self._abandon(call, link, wait=not isinstance(problem, CommandTimeout))
                raise
            self._release(link)
        finally:
            with self._lock:
                self._calls.discard(call)

    def _start(self, call: Call, argv: Argv, deadline: Deadline, source: Iterable[bytes]) -> Link:
        """A connection with the command's channel open on it. Tried anew once: until then nothing was started."""
        fresh = False
        while True:
            call.opened, call.link = Future(), None
            self._thread("feed", self._feed, call, argv, deadline, source)
            try:
                self._wait(call, deadline.left())
                return call.used
            except LOST as lost:
                if call.link and (refused := refusal(lost, call.link)):
                    if not self._narrow(call.link):
                        raise self._unreachable(f"sshd opens no session: {refused}") from lost
                    continue
                if not self._given_up(call):
                    return call.used
                if call.link is None:
                    raise self._silent(deadline) from None
                if fresh or not deadline.left():
                    raise self._unreachable(f"the connection was lost: {lost or 'closed'}") from lost
                fresh = True
            except BaseException:
                if not self._given_up(call):
                    self._abandon(call, call.used)
                raise

    def _given_up(self, call: Call) -> bool:
        """Whether the command is not started, and will not be. Its connection, if it had one, is used no more: it is
        let go here or, where the channel is still being opened, by the thread that does.
        """
        if call.opened.cancel():
            if call.link:
                call.link.retired = True
            return True
        if call.opened.exception() is None:
            return False
        if call.link:
            self._retire(call.link)
        return True

    def _feed(self, call: Call, argv: Argv, deadline: Deadline, source: Iterable[bytes]) -> None:
        """Connect where there is no connection, open a channel, start the command, feed its stdin. May hang on a cut
        link: nobody waits for its return. A call that gave up waiting has cancelled the future, and its command is not
        started.
        """
        opened = call.opened
        link: Link | None = None
        try:
            link = call.link = self._acquire(deadline)
            channel = link.transport.open_session(timeout=min(self.connect_timeout, deadline.left()))
        except BaseException as problem:
            if opened.set_running_or_notify_cancel():
                opened.set_exception(problem)
            elif link:
                self._retire(link)
            return
        if not opened.set_running_or_notify_cancel():
            shut(channel)
            self._release(link)
            return
        opened.set_result(channel)
        try:
            channel.exec_command(wrapped(argv, call.token, deadline.left(), plain=call.plain))
            whole = all(sent(channel, data) for data in self._drawn(call, source))
            if whole and call.trouble is None:
                channel.shutdown_write()
        except LOST:
            shut(channel)  # its reader finds a channel without an exit code

    @staticmethod
    def _drawn(call: Call, source: Iterable[bytes]) -> Iterator[bytes]:
        """The source's chunks. What the source raises is the call's trouble, which its reader sees; a lost connection
        is not.
        """
        try:
            yield from source
        except GeneratorExit:
            raise
        except BaseException as problem:
            call.trouble = problem
            call.bell.set()

    def _narrow(self, link: Link) -> bool:
        """sshd refused one more channel: remember how many it takes. False where it takes not even one."""
        with self._lock:
            link.busy -= 1
            self._sessions = link.limit = max(1, min(link.limit, link.busy))
            return link.busy > 0

    def _thread(self, task: str, target: Callable[..., object], *args: object) -> threading.Thread:
        thread = threading.Thread(target=target, args=args, name=f"fleet-{task}-{self.name}", daemon=True)
        thread.start()
        return thread

    def _follow(self, call: Call, argv: Argv, deadline: Deadline, sink: Callable[[bytes], object], errors: Tail) -> int:
        """Read until the command ends. Returns its exit code."""
        channel = call.opened.result()
        for pipe in (channel.in_buffer, channel.in_stderr_buffer):
            pipe.set_event(call.bell)
        while True:
            call.bell.clear()
            ended = channel.eof_received or channel.closed
            self._check(call, argv, deadline)
            if self._read(call, channel, sink, errors):
                continue
            if ended:
                break
            call.bell.wait(deadline.left() + GRACE)
        while not channel.status_event.wait(GRACE):
            self._check(call, argv, deadline)
        # sshd counts a channel against MaxSessions until it has closed it, right after its last word.
        call.bell.clear()
        if not channel.closed:
            call.bell.wait(GRACE)
        if call.trouble is not None:
            raise call.trouble
        return int(channel.exit_status)

    def _read(self, call: Call, channel: paramiko.Channel, sink: Callable[[bytes], object], errors: Tail) -> bool:
        """What has come on both streams. False if nothing has: only then may the caller wait to be rung, as paramiko
        silences the bell of both when it empties one.
        """
        said, wrote = channel.recv_stderr_ready(), channel.recv_ready()
        if said:
            errors.add(channel.recv_stderr(CHUNK))
        if wrote:
            if body := call.body(channel.recv(CHUNK)):
                sink(body)
            if call.flooded:
                raise LoginError("the login shell floods stdout before the command", where=self.name)
        return bool(said or wrote)

    def _check(self, call: Call, argv: Argv, deadline: Deadline) -> None:
        if call.trouble is not None:
            raise call.trouble
        if call.cancelled:
            raise Interrupted(f"{named(argv)} was interrupted", where=self.name)
        if deadline.spent() > deadline.seconds + GRACE:
            raise self._overdue(argv, deadline, "no word of its end: it may be running still")

    def _outcome(self, call: Call, argv: Argv, deadline: Deadline, errors: Tail) -> Outcome:
        spent, code = deadline.spent(), call.code
        if code == -1:
            started = "it may have done its work" if call.pid else "it is not known to have started"
            raise self._unreachable(f"the connection was lost during {named(argv)}: {started}", argv)
        # Codes 124 and 137 are also what a command itself may end with: it was the deadline only where it has passed.
        if code in (124, 137) and spent >= deadline.seconds:
            raise self._overdue(argv, deadline, "ended there")
        if call.pid is None:
            said = (errors.bytes() or call.noise).decode("utf-8", "replace").strip().splitlines()
            what = f"the login shell did not run the command (code {code})"
            raise LoginError(": ".join([what, *said[-1:]]), where=self.name, hint=self._hint(["true"]))
        return Outcome(self.name, tuple(argv), code, b"", errors.bytes(), spent)

    def _overdue(self, argv: Argv, deadline: Deadline, how: str) -> CommandTimeout:
        what = f"{named(argv)} did not end within {deadline.seconds:g} s; {how}"
        return CommandTimeout(what, where=self.name, hint=self._hint(argv))

    def _abandon(self, call: Call, link: Link, *, wait: bool = True) -> None:
        """Leave a command that still runs: end it over a second channel, as far as the link allows.

        sshd sends no signal when a channel without a terminal closes. Where this fails, the remote `timeout` ends it.
        """
        done = self._thread("end", self._end, call, link)
        if wait:
            done.join(2 * GRACE)

    def _end(self, call: Call, link: Link) -> None:
        channel = call.opened.result()
        sound = False
        try:
            channel.settimeout(GRACE)
            while call.pid is None and (data := channel.recv(CHUNK)):
                call.body(data)
            if call.pid is not None:
                killer = link.transport.open_session(timeout=2 * GRACE)
                killer.settimeout(2 * GRACE)
                killer.exec_command(quoted(["kill", "-TERM", str(call.pid)]))
                killer.recv(1)
                killer.close()
            sound = True
        except LOST:
            pass
        finally:
            (self._release if sound else self._retire)(link)
            shut(channel)

    def _wait(self, call: Call, seconds: float) -> None:
        """Wait for the open channel. Raises why it is none, TimeoutError after `seconds`, Interrupted on cancel."""
        patience = Deadline(seconds)
        call.opened.add_done_callback(lambda _: call.bell.set())
        while not call.opened.done():
            if call.cancelled:
                raise Interrupted("interrupted while connecting", where=self.name)
            if not patience.left():
                raise TimeoutError(f"no answer within {seconds:.3g} s")
            call.bell.wait(patience.left())
            call.bell.clear()
        call.opened.result()

    # ------------------------------------------------------------------ connections

    @property
    def route(self) -> Route:
        """Where this host really is, after ssh_config: what is used is seen."""
        if self._route is None:
            try:
                self._route = resolve(self._target, **self._given, **self._files)  # type: ignore[arg-type]
            except HostError as problem:
                raise HostError(problem.what, where=self.name, hint=problem.hint) from problem
        return self._route

    def _acquire(self, deadline: Deadline) -> Link:
        """A connection with room for one more call; opened by one thread while the others wait for it."""
        while True:
            with self._lock:
                self._forget()
                for link in self._links:
                    if link.busy < link.limit:
                        link.busy += 1
                        return link
                mine = self._attempt is None
                attempt = self._attempt = self._attempt or Attempt()
            stale = not mine and attempt.age() > FRESH
            if mine:
                self._connect(attempt)
            try:
                attempt.done.result(deadline.left())
            except TimeoutError:
                if attempt.done.done():
                    raise
                raise self._silent(deadline) from None
            except HostError as problem:
                if stale and isinstance(problem, Unreachable) and deadline.left():
                    continue  # that was how it was before this call began
                raise copy.copy(problem) from problem.__cause__

    def _silent(self, deadline: Deadline) -> Unreachable:
        return self._unreachable(f"no answer from {self.route} within {deadline.seconds:g} s")

    def _forget(self) -> None:
        """Connections that are not used any more; one that still serves a call is closed after it."""
        unused = [link for link in self._links if not link.usable]
        self._links = [link for link in self._links if link not in unused]
        for link in unused:
            retired, link.retired = link.retired, True
            if not retired and not link.busy:
                link.close()

    def _connect(self, attempt: Attempt) -> None:
        link: Link | None = None
        problem: BaseException | None = None
        try:
            link = Link(self._open(), self._sessions)
        except BaseException as caught:
            problem = self._translated(caught)
        with self._lock:
            wanted = self._attempt is attempt
            if wanted:
                self._attempt = None
            if link is not None and wanted:
                self._links.append(link)
        if link is not None and not wanted:
            link.close()
            problem = self._unreachable("the connection was closed here")
        if problem is not None:
            attempt.done.set_exception(problem)
        else:
            attempt.done.set_result(None)

    def _open(self) -> fabric.Connection:
        route = self.route
        missing = [path for path in route.identities if not os.path.isfile(path)]
        if missing:
            what = f"no such identity file: {missing[0]}"
            raise LoginError(what, where=self.name, hint="correct it in the inventory")
        trust = KnownHosts(route.label, route.known_hosts)
        options: dict[str, Any] = {
            "banner_timeout": self.connect_timeout,
            "auth_timeout": self.connect_timeout,
            "channel_timeout": self.connect_timeout,
            "transport_factory": Wire,
            **identified(route.identities),
            "look_for_keys": not route.identities_only,
            "allow_agent": agent_answers() and (not route.identities_only or any(map(locked, route.identities))),
            "disabled_algorithms": {"keys": trust.unwanted(HOST_KEYS)},
        }
        if route.jumps:
            options["sock"] = self._through(route)
        connection = Plain(
            route.host,
            user=route.user,
            port=route.port,
            config=settled(),
            gateway=None if route.jumps else route.proxy_command,
            connect_timeout=self.connect_timeout,
            connect_kwargs=options,
        )
        connection.client.set_missing_host_key_policy(trust)
        try:
            connection.open()
        except BaseException as problem:
            connection.client.close()
            if trust.accepted and isinstance(problem, (paramiko.SSHException, ValueError, TypeError)):
                raise Refused(str(problem)) from problem
            raise
        heed_silence(connection.transport.sock)
        return connection

    @property
    def gateway(self) -> SSH | None:
        """The host to jump from, None where the way is direct; shared by all hosts behind it."""
        if self._gateway is None and self.route.jumps:
            self._gateway = share_gateway(self.route.jumps, self._files, self.connect_timeout)
        return self._gateway

    def _through(self, route: Route) -> paramiko.Channel:
        gateway = self.gateway
        assert gateway is not None
        try:
            return gateway.tunnel(route.host, route.port)
        except HostError as problem:
            hint = self._trust_hint() if isinstance(problem, HostKeyError) else problem.hint
            raise type(problem)(f"gateway {gateway.name}: {problem.what}", where=self.name, hint=hint) from problem

    def host_key(self) -> Found:
        """The key that the host shows, on the way that every call takes; nobody logs in there. Raises HostError."""
        route = self.route
        trust = KnownHosts(route.label, route.known_hosts)
        try:
            try:
                key = self._exchange(route, trust.unwanted(HOST_KEYS))
            except paramiko.ssh_exception.IncompatiblePeer:
                key = self._exchange(route, [])
        except Exception as problem:
            translated = self._translated(problem)
            raise translated from problem
        known = tuple(trust.known)
        return Found(route.label, str(route), route.known_hosts[0], key.get_name(), key.get_base64(), known)

    def _exchange(self, route: Route, unwanted: Sequence[str]) -> paramiko.PKey:
        sock: Any
        if route.jumps:
            sock = self._through(route)
        elif route.proxy_command:
            sock = paramiko.ProxyCommand(route.proxy_command)
        else:
            sock = socket.create_connection((route.host, route.port), self.connect_timeout)
        transport = paramiko.Transport(sock, disabled_algorithms={"keys": list(unwanted)})
        transport.banner_timeout = self.connect_timeout
        try:
            transport.start_client(timeout=self.connect_timeout)
            return transport.get_remote_server_key()
        finally:
            transport.close()

    def knock(self, seconds: float) -> str:
        """See Transport.knock: sshd greets first, before anybody has proved anything."""
        patience, sock = Deadline(seconds), None
        try:
            sock = self._door(seconds)
            sock.settimeout(max(0.1, patience.left()))
            return "" if sock.recv(1) else REFUSED
        except (ConnectionError, EOFError):
            return REFUSED
        except (HostError, OSError, paramiko.SSHException):
            return MUTE if sock is not None else SILENT
        finally:
            if sock is not None:
                sock.close()

    def _door(self, seconds: float) -> Any:
        """A connection to this host's sshd, none of the pool's."""
        route = self.route
        if route.jumps:
            return self._through(route)
        if route.proxy_command:
            return paramiko.ProxyCommand(route.proxy_command)
        return socket.create_connection((route.host, route.port), seconds)

    def tunnel(self, host: str, port: int) -> paramiko.Channel:
        """A socket-like channel from this host to another one. Only for hosts that serve as a gateway."""
        hint = self._hint(["nc", "-zv", host, str(port)])
        for last in (False, True):
            link = self._acquire(Deadline(4 * self.connect_timeout))
            self._release(link)
            try:
                return link.transport.open_channel("direct-tcpip", (host, port), ("", 0), timeout=self.connect_timeout)
            except paramiko.ChannelException as refused:
                what = f"cannot reach {host}:{port} from there: {refused.text.lower()}"
                raise Unreachable(what, where=self.name, hint=hint) from refused
            except (paramiko.SSHException, EOFError, OSError) as silent:
                if self._answers(link):
                    what = f"no answer from {host}:{port} within {self.connect_timeout:g} s"
                    raise Unreachable(what, where=self.name, hint=hint) from silent
                link.retired = True
                link.close()
                if last:
                    raise self._unreachable(f"the connection was lost: {silent or 'closed'}") from silent
        raise AssertionError("unreachable code")

    @staticmethod
    def _answers(link: Link) -> bool:
        try:
            link.transport.open_session(timeout=2 * GRACE).close()
        except (paramiko.SSHException, EOFError, OSError):
            return False
        return True

    def _release(self, link: Link) -> None:
        with self._lock:
            link.busy -= 1
            idle = link.retired and not link.busy
        if idle:
            link.close()

    def _retire(self, link: Link) -> None:
        link.retired = True
        self._release(link)

    # ------------------------------------------------------------------ errors

    def _unreachable(self, what: str, argv: Argv = ("true",)) -> Unreachable:
        return Unreachable(what, where=self.name, hint=self._hint(argv))

    def _translated(self, problem: BaseException) -> BaseException:
        """A connecting error in our words."""
        if isinstance(problem, HostError):
            return problem
        if not isinstance(problem, (OSError, EOFError, paramiko.SSHException, Untrusted, Refused)):
            return problem
        kind, what, hint = self._reason(problem)
        error = kind(what, where=self.name, hint=hint or self._hint(["true"]))
        error.__cause__ = problem
        return error

    def _reason(self, problem: BaseException) -> tuple[type[HostError], str, str]:
        route, text = self.route, str(problem)
        if isinstance(problem, Untrusted):
            return HostKeyError, f"{problem} at {route}", "" if problem.revoked else self._trust_hint()
        if isinstance(problem, paramiko.ssh_exception.IncompatiblePeer) and "host key" in text:
            return HostKeyError, f"the host shows no key of the kind on record at {route}: {text}", self._trust_hint()
        if isinstance(problem, Refused):
            return LoginError, f"login refused at {route}: {text.rstrip('.').lower()}; {self._keys_tried()}", ""
        if isinstance(problem, socket.gaierror):
            return Unreachable, f"name unknown: {route.host} ({problem.strerror})", ""
        return Unreachable, f"{spoken(problem, self.connect_timeout)} at {route}", ""

    def _trust_hint(self) -> str:
        words = ["invoke", "trust", *(["--inventory", self.inventory] if self.inventory else []), "--limit", self.name]
        return f"compare the fingerprint with the host's own, then:  {quoted(words)}"

    def _keys_tried(self) -> str:
        route = self.route
        tried = list(route.identities) + ([] if route.identities_only else ["the keys in ~/.ssh"])
        if os.environ.get("SSH_AUTH_SOCK"):
            tried.append("the agent's" if agent_answers() else "no agent: the one in SSH_AUTH_SOCK does not answer")
        return f"keys tried: {', '.join(tried) or 'none'}"


def heed_silence(channel: object) -> None:
    """The kernel asks a peer that says nothing whether it is there, and ends the connection when no answer comes:
    paramiko's own keepalive waits for none. Behind a jump host the first leg alone is heeded.
    """
    if not isinstance(channel, socket.socket):
        return
    channel.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", SILENCE // 3),
        ("TCP_KEEPINTVL", SILENCE // 6),
        ("TCP_KEEPCNT", 5),
        ("TCP_USER_TIMEOUT", 1000 * SILENCE),
    ):
        if hasattr(socket, option):  # not every system has them all
            channel.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def spoken(problem: BaseException, seconds: float) -> str:
    """A network error in words."""
    if isinstance(problem, paramiko.ssh_exception.NoValidConnectionsError):
        problem = next(iter(problem.errors.values()))
    if isinstance(problem, ConnectionRefusedError):
        return "connection refused"
    text = str(problem)
    if "banner" in text or "No existing session" in text:
        return f"no SSH banner within {seconds:g} s or the connection was dropped"
    if isinstance(problem, TimeoutError) or "timed out" in text:
        return f"no answer within {seconds:g} s"
    if isinstance(problem, OSError) and problem.strerror:
        return problem.strerror[0].lower() + problem.strerror[1:]
    return text or "the connection was dropped"


def refusal(problem: Exception, link: Link) -> str:
    """Why sshd opened no channel; empty where that was not its answer. paramiko keeps one error for all threads of a
    connection: of two that are refused at once only one is told why.
    """
    if isinstance(problem, paramiko.ChannelException):
        return str(problem.text)
    alive = isinstance(problem, paramiko.SSHException) and link.transport.is_active()
    return "refused" if alive and "Unable to open channel" in str(problem) else ""


def sent(channel: paramiko.Channel, data: bytes) -> bool:
    """Send it all, however long the other side takes. False when it does not listen any more."""
    rest = memoryview(data)
    while rest:
        try:
            count = channel.send(rest[:CHUNK])
        except TimeoutError:
            continue
        except OSError:
            return False
        if not count:
            return False
        rest = rest[count:]
    return True


def wrapped(argv: Argv, token: str, seconds: float, *, plain: bool) -> str:
    """The shell text that sshd hands to the login shell: our argv, bounded by coreutils' timeout.

    plain: for a login shell of any kind.
    """
    bound = ["timeout", "-k", str(KILL_AFTER), f"{seconds + 0.001:.3f}"]
    text = TELL.format(token=token, command=quoted([*bound, *argv]))
    return quoted(["sh", "-c", text]) if plain else text


def agent_answers(seconds: float = 2.0) -> bool:
    """Whether the agent in SSH_AUTH_SOCK lists its keys in time. A stale socket would hang paramiko for ever."""
    path = os.environ.get("SSH_AUTH_SOCK")
    if not path:
        return False
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as agent:
        agent.settimeout(seconds)
        agent.connect(path)
        agent.sendall(struct.pack(">IB", 1, 11))  # SSH_AGENTC_REQUEST_IDENTITIES
        return bool(agent.recv(1))
    return False


def identified(paths: Sequence[str]) -> dict[str, Any]:
    """Private keys as paramiko's client takes them. One plain key is read once for all hosts: the client would try to
    read each file as every kind of key.
    """
    if len(paths) == 1 and not os.path.exists(f"{paths[0]}-cert.pub"):
        with contextlib.suppress(Exception):  # the client tells what is wrong with it
            state = os.stat(paths[0])
            return {"pkey": private_key(paths[0], state.st_mtime_ns, state.st_size)}
    return {"key_filename": list(paths)}


@lru_cache(maxsize=16)
def private_key(path: str, _changed: int, _size: int) -> paramiko.PKey:
    return paramiko.PKey.from_path(path)


def locked(identity: str) -> bool:
    """Whether a private key needs a passphrase: then only the agent can use it."""
    try:
        paramiko.PKey.from_path(identity)
    except (paramiko.PasswordRequiredException, TypeError):  # TypeError is cryptography's word for it
        return True
    except Exception:
        return False
    return False


# A gateway is opened once for all hosts behind it: sshd drops many connections that come at once (MaxStartups).
_gateways: dict[tuple[object, ...], tuple[SSH, int]] = {}
_gateways_lock = threading.Lock()


def share_gateway(jumps: tuple[str, ...], files: dict[str, str | None], connect_timeout: float) -> SSH:
    key = (jumps, *files.values())
    with _gateways_lock:
        gateway, users = _gateways.get(key, (None, 0))
        if gateway is None:
            user, host, port = split_jump(jumps[-1])
            before = ",".join(jumps[:-1]) or None
            gateway = SSH(host, user=user, port=port, gateway=before, connect_timeout=connect_timeout, **files)
            gateway._sessions = float("inf")
        _gateways[key] = (gateway, users + 1)
        return gateway


def release_gateway(gateway: SSH) -> None:
    """Close it after the last host behind it."""
    with _gateways_lock:
        key, users = next((key, users) for key, (shared, users) in _gateways.items() if shared is gateway)
        if users > 1:
            _gateways[key] = (gateway, users - 1)
            return
        del _gateways[key]
    gateway.close()
