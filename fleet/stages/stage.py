"""Images on every host: one that lacks an image gets it from one that has it, through this machine, and is verified."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress

from fleet import docker
from fleet.docker import Image
from fleet.errors import HostError
from fleet.session import Machine, Session
from fleet.stages.launch import image_on
from fleet.stages.pipe import Broken, Pipe

ENDING_SECONDS = 5.0
"""How long `docker save` may take to end after its last byte has arrived."""


def stage(session: Session, tag: str, hosts: Sequence[str]) -> dict[str, Image]:
    """Have the same image behind `tag` on all hosts; those that have it do nothing. Images by host.

    Raises HostError if no host has it, hosts have different ones, or a transfer did not work.
    """
    found = session.all(hosts, lambda machine: image_on(machine, tag))
    wanted = _wanted(tag, found)
    source = next(host for host, image in found.items() if image and image.id == wanted.id)
    lacking = [host for host, image in found.items() if image is None or image.id != wanted.id]
    for host in [host for host in found if host not in lacking]:
        session.progress.host("stage", host, f"has {tag} ({short(wanted.id)})", done=True)
    for host in lacking:
        if not _tagged(session, tag, wanted, session.machine(host)):
            _send(session, tag, wanted, session.machine(source), session.machine(host))
    return dict.fromkeys(hosts, wanted)


def _wanted(tag: str, found: dict[str, Image | None]) -> Image:
    there = {host: image for host, image in found.items() if image}
    if not there:
        raise HostError(f"image {tag} is on none of {', '.join(found)}", hint=f"type: docker pull {tag} on one of them")
    ids = {image.id for image in there.values()}
    if len(ids) > 1:
        told = "\n".join(f"  {host}  {image.id}" for host, image in there.items())
        raise HostError(
            f"image {tag} is not the same on all hosts:\n{told}", hint=f"remove the wrong one: docker rmi {tag}"
        )
    return next(iter(there.values()))


def _tagged(session: Session, tag: str, wanted: Image, target: Machine) -> bool:
    """Whether the host had the image under another name; then it now has it under this one, too."""
    if image_on(target, wanted.id) is None:
        return False
    target.docker(["docker", "tag", wanted.id, tag])
    session.progress.host("stage", target.name, f"had {short(wanted.id)}, now also as {tag}", done=True)
    return True


def _send(session: Session, tag: str, image: Image, source: Machine, target: Machine) -> None:
    """One transfer, timed and verified by the image's ID on the other side."""
    began = time.monotonic()
    sent = _transfer(session, tag, image, source, target)
    arrived = image_on(target, tag)
    if arrived is None or arrived.id != image.id:
        got = arrived.id if arrived else "nothing"
        raise HostError(f"after the transfer {tag} is {got} instead of {image.id}", where=target.name)
    spent = time.monotonic() - began
    told = f"{tag}: {sent / 1e6:.0f} MB from {source.name} in {spent:.1f} s, same image ID ({short(image.id)})"
    session.progress.host("stage", target.name, told, done=True)


def _transfer(session: Session, tag: str, image: Image, source: Machine, target: Machine) -> int:
    """`docker save` there into `docker load` here, chunk by chunk through this machine. Bytes sent.

    Raises what failed first: when one side fails, the other is ended with `Broken`, which says nothing of its own.
    """
    limit = session.settings.timeouts.stage_within
    pipe = Pipe(lambda sent: _tell(session, target.name, source.name, sent, image.size))
    sending: Future[None] = Future()

    def save() -> None:
        try:
            source.docker_stream(docker.save_argv([tag]), timeout=limit, sink=pipe.put)
            pipe.end()
            sending.set_result(None)
        except BaseException as problem:
            pipe.fail()
            sending.set_exception(problem)

    threading.Thread(target=save, name=f"fleet-save-{target.name}", daemon=True).start()
    try:
        with suppress(Broken):
            target.docker_stream(docker.load_argv(), timeout=limit, source=pipe)
    finally:
        pipe.abandon()
    try:
        sending.result(ENDING_SECONDS)
    except (Broken, TimeoutError):
        raise HostError(f"docker load ended before all of {tag} had come", where=target.name) from None
    return pipe.sent


def _tell(session: Session, host: str, source: str, sent: int, size: int) -> None:
    session.progress.host("stage", host, f"{sent / 1e6:.0f} of about {size / 1e6:.0f} MB from {source}")


def short(image_id: str) -> str:
    return image_id.removeprefix("sha256:")[:12]
