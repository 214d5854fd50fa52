"""paramiko's transport with two habits changed: it tells of a death by a signal, and asks for the cheap first."""

from __future__ import annotations

import signal
from typing import Any

import paramiko
from paramiko.common import MSG_CHANNEL_REQUEST


class Wire(paramiko.Transport):  # type: ignore[misc]
    """A transport for `transport_factory` of paramiko's client."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        offered = self.get_security_options()
        # With GCM the library checks each packet; with CTR paramiko does, byte by byte, in Python.
        offered.ciphers = sorted(offered.ciphers, key=lambda name: "-gcm@" not in name)
        # OpenSSH multiplies on curve25519 in plain C, on P-256 with its library's assembler.
        offered.kex = sorted(offered.kex, key=lambda name: 2 - ("nistp256" in name) - 2 * ("mlkem" in name))


def heard(channel: paramiko.Channel, message: paramiko.Message) -> None:
    """What the server says of a channel. paramiko drops `exit-signal` (RFC 4254, 6.10): here it becomes 128 + n."""
    code = code_of(message)
    if code is None:
        channel._handle_request(message)
        return
    channel.exit_status = code
    channel.status_event.set()


def code_of(message: paramiko.Message) -> int | None:
    """The code a shell gives for the signal that a channel request tells of; None where it is another request."""
    begun = message.packet.tell()
    name = message.get_text()
    if name != "exit-signal":
        message.packet.seek(begun)
        return None
    message.get_boolean()
    number = getattr(signal, f"SIG{message.get_text()}", 0)
    return 128 + int(number)


Wire._channel_handler_table = {**paramiko.Transport._channel_handler_table, MSG_CHANNEL_REQUEST: heard}
