"""What runs now, in a console: containers of ours, found by their labels each time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fleet import ui
from fleet.docker import Container
from fleet.errors import FleetError, UsageError
from fleet.model.near import did_you_mean
from fleet.session import Machine, Session
from fleet.shell.hosts import Opener
from fleet.shell.shown import Named, Text, said
from fleet.stages import collect, teardown
from fleet.stages.health import seat_of


class Seat(Named):
    """A container of ours: `.logs()`, `.state`, `.host`, `.run`, `.arm`."""

    container: Container
    role: str
    host: str
    run: str
    arm: str
    owner: str

    def __init__(self, machine: Machine, container: Container) -> None:
        labels = container.labels
        self._machine = machine
        self.container = container
        self.name = seat_of(container)
        self.host = machine.name
        self.role, self.run, self.arm = labels.get("role", ""), labels["run"], labels.get("arm", "")
        self.owner = labels.get("owner", "?")

    @property
    def state(self) -> str:
        """As it was when the host was asked."""
        return self.container.status

    def logs(self, lines: int = 100) -> Text:
        """The last lines of its log as it is now, with times; 0 is all of it."""
        return Text(collect.tail(self._machine, self.container, lines))

    def __repr__(self) -> str:
        return f"{self.name} on {self.host}  {self.state}\nrun {self.run}"


class Seats:
    """Containers of ours, by place (`[0]`) or name (`["decode0"]`), and why some hosts could not say theirs."""

    lost: tuple[FleetError, ...]

    def __init__(self, found: Sequence[Seat], lost: Sequence[FleetError] = (), what: str = "deployment") -> None:
        self._found, self._what = tuple(found), what
        self.lost = tuple(lost)

    def __getitem__(self, wanted: int | str) -> Seat:
        if isinstance(wanted, str):
            named = [seat for seat in self._found if seat.name == wanted]
            shown, near = wanted, did_you_mean(wanted, [seat.name for seat in self._found])
        else:
            named = list(self._found[wanted:][:1] if -len(self) <= wanted else ())
            shown, near = f"{self._what}[{wanted}]", ""
        if not named:
            raise UsageError(f"no {shown} of ours runs on {self._who()}{near}", hint="\n".join(said(self.lost)))
        return named[0]

    def _who(self) -> str:
        return "the hosts that answered" if self.lost else "these hosts"

    def _of(self, role: str) -> Seats:
        found = sorted((seat for seat in self._found if seat.role == role), key=lambda seat: seat.name)
        return Seats(found, self.lost, role)

    def __iter__(self) -> Iterator[Seat]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def __repr__(self) -> str:
        runs = dict.fromkeys((seat.run, seat.owner) for seat in self._found)
        blocks = [self._block(run, owner) for run, owner in runs]
        nothing = f"nothing of ours runs on {self._who()}"
        return "\n".join([*(blocks or [nothing]), *said(self.lost)])

    def _block(self, run: str, owner: str) -> str:
        seats = [seat for seat in self._found if (seat.run, seat.owner) == (run, owner)]
        rows = ((seat.host, seat.name, seat.state, seat.arm) for seat in seats)
        return f"run {run} of {owner}\n" + ui.table_text(("host", "seat", "state", "arm"), rows)


class Deployment:
    """What runs now: `deployment.decode[0]`, `deployment["router"]`, `deployment.seats`; hosts are asked each time."""

    def __init__(self, opened: Opener) -> None:
        self._opened = opened

    @property
    def seats(self) -> Seats:
        return seats(self._opened())

    @property
    def prefill(self) -> Seats:
        return self.seats._of("prefill")

    @property
    def decode(self) -> Seats:
        return self.seats._of("decode")

    @property
    def server(self) -> Seats:
        return self.seats._of("server")

    @property
    def router(self) -> Seat:
        return self.seats["router"]

    @property
    def client(self) -> Seat:
        return self.seats["client"]

    def __getitem__(self, wanted: int | str) -> Seat:
        return self.seats[wanted]

    def __iter__(self) -> Iterator[Seat]:
        return iter(self.seats)

    def __len__(self) -> int:
        return len(self.seats)

    def __repr__(self) -> str:
        try:
            return repr(self.seats)
        except FleetError as error:
            return str(error)


def seats(session: Session, *, timeout: float = 0, **labels: str) -> Seats:
    """Our containers with these labels on all hosts of a session. timeout: seconds for all of them together."""

    def act(machine: Machine) -> list[Seat]:
        found = sorted(teardown.ours(machine, **labels), key=seat_of)
        return [Seat(session.machine(machine.name), one) for one in found]

    answers = session.each(session.names, act, timeout=timeout)
    lost = [answer for answer in answers.values() if isinstance(answer, FleetError)]
    return Seats([seat for answer in answers.values() if isinstance(answer, list) for seat in answer], lost)
