"""What lock.json says of a run: which image stands behind each tag, so that no later process of it runs another one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from fleet.docker import Image
from fleet.model.base import Model


class Locked(Model):
    """id: the image's. digests: `repository@sha256:…`, of all hosts. proven: by host, the seconds that its first
    container there took.
    """

    id: str
    digests: tuple[str, ...] = ()
    proven: dict[str, float] = {}


class Drift(Model):
    """A tag that had come to another image when the run went on, which was allowed. at: UTC, ISO 8601."""

    image: str
    was: str
    now: str
    hosts: tuple[str, ...]
    at: str

    def __str__(self) -> str:
        hosts = ", ".join(self.hosts)
        return f"image {self.image} was {self.was}, and is {self.now} on {hosts} since {self.at} (--allow-drift)"


class Lock(Model):
    """images: by tag, as the plan names them. drifts: oldest first."""

    schema_version: Literal["1"] = "1"
    images: dict[str, Locked] = {}
    drifts: tuple[Drift, ...] = ()

    def strange(self, image: str, found: Mapping[str, str]) -> dict[str, str]:
        """Hosts that have another image than the run's behind a tag, with its ID. found: IDs by host."""
        own = self.images.get(image)
        return {host: id for host, id in found.items() if own and id != own.id}

    def moved(self, image: str, now: str, hosts: tuple[str, ...], at: str) -> Lock:
        """A tag that may be another image from now on."""
        drift = Drift(image=image, was=self.images[image].id, now=now, hosts=hosts, at=at)
        images = {**self.images, image: Locked(id=now)}
        return self.model_copy(update={"images": images, "drifts": (*self.drifts, drift)})

    def proven(self, id: str) -> set[str]:
        """Hosts where a container of this image has run, under whatever tag."""
        return {host for one in self.images.values() if one.id == id for host in one.proven}

    def with_image(self, image: str, found: Mapping[str, Image], seconds: Mapping[str, float]) -> Lock:
        """What is on the hosts, and how long the first container took where one was started. found: by host."""
        (id,) = {one.id for one in found.values()}
        known = self.images.get(image)
        before = known if known and known.id == id else Locked(id=id)
        digests = {*before.digests, *(digest for one in found.values() for digest in one.digests)}
        locked = Locked(id=id, digests=tuple(sorted(digests)), proven={**before.proven, **seconds})
        return self.model_copy(update={"images": {**self.images, image: locked}})


def of_facts(facts: Mapping[str, object]) -> Lock:
    """The lock of a run that has none, as of one begun by an earlier version: from what its facts.json says."""
    told, images = facts.get("images"), {}
    for image, hosts in told.items() if isinstance(told, Mapping) else ():
        found = list(hosts.values()) if isinstance(hosts, Mapping) else []
        ids = {one.get("id") if isinstance(one, Mapping) else None for one in found}
        if len(ids) == 1 and isinstance(id := ids.pop(), str):
            images[str(image)] = Locked(id=id)
    return Lock(images=images)
