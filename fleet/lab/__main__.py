"""python -m fleet.lab up|down|status|inside|docker|FAULT|heal: the lab by hand."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from fleet.errors import FleetError
from fleet.lab.faults import VERBS
from fleet.lab.lab import Lab
from fleet.lab.node import NodeStatus


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m fleet.lab", description="Real nodes on this machine.")
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")
    up = verbs.add_parser("up", help="start or mend the nodes")
    up.add_argument("--nodes", type=int, default=3)
    verbs.add_parser("down", help="stop the nodes and remove every trace")
    verbs.add_parser("status", help="one line per node")
    verbs.add_parser("ssh-config", help="print where the ssh_config is")
    for name, about in (("inside", "run as root in a node"), ("docker", "talk to a node's engine")):
        verb = verbs.add_parser(name, help=f"{about}, without ssh")
        verb.add_argument("node")
        verb.add_argument("argv", nargs=argparse.REMAINDER)
    heal = verbs.add_parser("heal", help="end all faults of a node")
    heal.add_argument("node")
    for name, fault in VERBS.items():
        verb = verbs.add_parser(name, help=f"fault: {fault.arguments or 'no arguments'}")
        verb.add_argument("node")
        verb.add_argument("argv", nargs="*", metavar=fault.arguments or "ARGUMENT")
    return top


def table(nodes: Sequence[NodeStatus]) -> str:
    rows = [("NODE", "ADDRESS", "STATE", "SSHD", "DOCKER", "CONTAINERS", "MEMORY", "DISK", "FAULTS")]
    for node in nodes:
        disk = "-" if node.disk is None else f"{node.disk_used}/{node.disk} MB"
        memory = "-" if node.memory is None else f"{node.memory} MB"
        answers = ("yes" if node.sshd else "no", "yes" if node.docker else "no")
        containers = "-" if node.containers is None else str(node.containers)
        faults = ", ".join(node.faults) or "-"
        rows.append((node.name, node.address, node.state, *answers, containers, memory, disk, faults))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def say(line: str) -> None:
    print(f"lab: {line}", file=sys.stderr)


def main(words: Sequence[str] | None = None) -> int:
    asked = parser().parse_args(words)
    lab = Lab()
    try:
        match asked.verb:
            case "up":
                lab.up(asked.nodes, say=say)
            case "down":
                lab.down(say=say)
            case "status":
                print(table(lab.status()))
            case "ssh-config":
                print(lab.ssh_config)
            case "inside" | "docker":
                act = lab.inside if asked.verb == "inside" else lab.docker
                done = act(asked.node, asked.argv, timeout=600)
                sys.stdout.buffer.write(done.stdout)
                sys.stderr.buffer.write(done.stderr)
                return done.returncode
            case "heal":
                lab.heal(asked.node)
            case verb:
                lab.fault(verb, asked.node, *asked.argv)
    except FleetError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
