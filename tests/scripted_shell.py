"""`invoke shell` on the scripted hosts of a world whose deployment runs: a program, for tests that type into it.

python -m tests.scripted_shell FOLDER [FLAG…]. On the hosts `uname -r` answers, and `sleep` goes on until it is ended.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from invoke.main import program

from fleet import provision
from fleet.hosts.fake import Fake
from fleet.session import owner
from tests.world import World


def asleep(fake: Fake) -> Any:
    def answer(argv: list[str], stdin: bytes) -> int:
        sys.stdout.write("asleep\n")
        sys.stdout.flush()
        while not fake.cancelled:
            time.sleep(0.02)
        fake.cancelled = 0
        return 130

    return answer


def scripted(folder: Path) -> World:
    world = World()
    world.running(folder)
    for node in world.nodes.values():
        node.first = [("uname -r", "6.8.0\n"), ("sleep", asleep(node.fake))]
        for box in node.boxes.values():
            box.labels["owner"] = owner()
            box.log = f"a line of {box.name}\n"
    return world


def main() -> None:
    world = scripted(Path(sys.argv[1]))
    fakes = {name: node.fake for name, node in world.nodes.items()}
    provision.PROVISIONERS["static"] = lambda inventory, _: {host.name: fakes[host.name] for host in inventory.hosts}
    sys.argv = ["invoke", "shell", "--inventory", "inventories/example-mi355x.yaml", *sys.argv[2:]]
    program.run()


if __name__ == "__main__":
    main()
