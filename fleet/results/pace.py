"""How long services took to get ready, kept from run to run: JSON Lines, read from the end. Pure."""

from __future__ import annotations

from pydantic import ValidationError

from fleet.model.base import Model


class Pace(Model):
    """A service got ready on a host. seconds: from the start of the wait."""

    host: str
    image: str
    model: str
    role: str
    seconds: float
    at: str

    def like(self, other: Pace) -> bool:
        """Whether the two can be compared."""
        return (self.host, self.image, self.model, self.role) == (other.host, other.image, other.model, other.role)


def line(pace: Pace) -> str:
    return pace.model_dump_json() + "\n"


def last(text: str, wanted: Pace) -> float | None:
    """Seconds that it took the last time; None if there was none. A line that cannot be read is passed over."""
    for written in reversed(text.splitlines()):
        try:
            found = Pace.model_validate_json(written)
        except ValidationError:
            continue
        if found.like(wanted):
            return found.seconds
    return None


def spoken(seconds: float) -> str:
    """`42 s`, `3 m 10 s`, `1 h 2 m`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} m {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} m"
