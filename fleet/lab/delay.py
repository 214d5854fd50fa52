"""A delay line between two network interfaces, for kernels without sch_netem: every frame leaves `ms` later.

    python delay.py RECORD INTERFACE INTERFACE MS

A program of its own, started in the switch's network namespace. It writes its identity (see process.py) to RECORD once
both interfaces are open.
"""

from __future__ import annotations

import collections
import select
import socket
import sys
import time
from pathlib import Path

ETH_P_ALL = 3
SOL_PACKET, PACKET_VNET_HDR, PACKET_OUTGOING = 263, 15, 4  # linux/if_packet.h
SO_RCVBUFFORCE = 33
BURST = 64


def port(interface: str) -> socket.socket:
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    opened.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 25)
    opened.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)  # keeps checksum and segmentation state
    opened.bind((interface, ETH_P_ALL))
    opened.setblocking(False)
    return opened


def frames(source: socket.socket) -> list[bytes]:
    """What has come in, at most BURST frames; not what this program itself sent out there."""
    found = []
    for _ in range(BURST):
        try:
            frame, address = source.recvfrom(70000)
        except BlockingIOError:
            break
        if address[2] != PACKET_OUTGOING:
            found.append(frame)
    return found


def main(record: str, first: str, second: str, ms: str) -> None:
    late = float(ms) / 1000
    one, two = port(first), port(second)
    other = {one: two, two: one}
    line: collections.deque[tuple[float, socket.socket, bytes]] = collections.deque()
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    Path(record).write_text(f"{boot} {Path('/proc/self/stat').read_text()}")
    while True:
        patience = max(0.0, line[0][0] - time.monotonic()) if line else None
        for source in select.select([one, two], [], [], patience)[0]:
            due = time.monotonic() + late
            line.extend((due, other[source], frame) for frame in frames(source))
        while line and line[0][0] <= time.monotonic():
            _, target, frame = line.popleft()
            try:
                target.send(frame)
            except OSError:  # the queue is full, or the port went down: a lost frame, as on a real wire
                continue


if __name__ == "__main__":
    main(*sys.argv[1:])
