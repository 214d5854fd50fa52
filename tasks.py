"""fleet's front door: one verb a task, `invoke --list` shows them. What they do is in fleet/verbs.py."""

from __future__ import annotations

from typing import Any

from invoke.collection import Collection

from fleet.front import check_settings_file, numbers, settings, verb, words
from fleet.guard import guard

Many = list[str] | None

FLAGS = {
    "config": "config key: the name of a file in recipes/ without .yaml",
    "arm": "only this arm (plan shows the names)",
    "conc": "only these concurrencies; repeat it or use commas",
    "limit": "only these hosts or groups: a,b  a:&b  a:!b  node[1-3]  n*  @last-failed",
    "inventory": "inventory file (default: fleet.inventory of invoke.yaml)",
    "trial": "a small load that proves the chain works, never a measurement (in the lab: always)",
    "fail_fast": "stop at the first invalid point",
    "keep_going": "go on after an invalid point or a dead service (the default)",
    "json": "print JSON for scripts",
    "run": "a run's name or its beginning, or latest (default: logs: what runs; down: all runs of yours)",
    "host": "only this host",
    "role": "only this role or seat: prefill, decode0, router, client …",
    "tail": "so many last lines of each service; 0 is all",
    "from": "read the config from this master file, not from recipes/",
    "diff": "tell only what would run otherwise than in this run: its name, the beginning of it, or latest",
    "cmd": "a shell command, in quotes",
    "source": "a file here",
    "target": "where it goes on the hosts: a whole path, or a folder that ends in /",
    "timeout": "how long a host may take: seconds, or 90s, 5m (default: timeouts.command of invoke.yaml)",
    "evals": "which evaluation entries: default, none, only or all",
    "nodes": "how many nodes",
    "shell": "bash or zsh",
}


@verb(FLAGS, many=["conc", "limit"])
def plan(
    c: Any,
    config: str = "",
    arm: str = "",
    conc: Many = None,
    limit: Many = None,
    inventory: str = "",
    trial: bool = False,
    diff: str = "",
    json: bool = False,
) -> int | None:
    """Print each step of a sweep as the exact argv for one host; no host is asked."""
    from fleet import verbs

    return verbs.plan(
        settings(c, inventory),
        config=config,
        arm=arm,
        conc=numbers("--conc", conc),
        limit=words(limit),
        trial=trial,
        diff=diff,
        json=json,
    )


@verb(FLAGS, many=["conc", "limit"])
def sweep(
    c: Any,
    config: str = "",
    arm: str = "",
    conc: Many = None,
    limit: Many = None,
    inventory: str = "",
    trial: bool = False,
    fail_fast: bool = False,
    keep_going: bool = False,
    json: bool = False,
) -> int | None:
    """From a config key to a run folder of judged results: the whole chain."""
    from fleet import verbs

    return verbs.sweep(
        settings(c, inventory),
        config=config,
        arm=arm,
        conc=numbers("--conc", conc),
        limit=words(limit),
        trial=trial,
        fail_fast=fail_fast,
        keep_going=keep_going,
        json=json,
    )


@verb(FLAGS, many=["limit"])
def health(c: Any, config: str = "", limit: Many = None, inventory: str = "", json: bool = False) -> int | None:
    """Ask each host and each running service how it is; 0 only if all is well."""
    from fleet import verbs

    return verbs.health(settings(c, inventory), config=config, limit=words(limit), json=json)


@verb(FLAGS, many=["limit"])
def ps(c: Any, limit: Many = None, inventory: str = "", json: bool = False) -> int | None:
    """List the containers that run on the hosts: ours by run and seat, strangers' by name."""
    from fleet import verbs

    return verbs.ps(settings(c, inventory), limit=words(limit), json=json)


@verb(FLAGS)
def logs(c: Any, run: str = "", host: str = "", role: str = "", tail: int = 100, inventory: str = "") -> int | None:
    """Show the logs of a run's services, from the hosts or from the run folder."""
    from fleet import verbs

    return verbs.logs(settings(c, inventory), run=run, host=host, role=role, tail=tail)


@verb(FLAGS, many=["limit"])
def down(c: Any, run: str = "", limit: Many = None, inventory: str = "", config: str = "") -> int | None:
    """Save the logs of our containers, then stop and remove them; strangers' are not touched."""
    from fleet import verbs

    return verbs.down(settings(c, inventory), run=run, limit=words(limit), config=config)


@verb(FLAGS, many=["limit"], name="exec")
def execute(
    c: Any, cmd: str = "", limit: Many = None, inventory: str = "", timeout: str = "", json: bool = False
) -> int | None:
    """Run a shell command on all hosts at once; equal answers are shown once, the worst exit code is returned."""
    from fleet import verbs

    return verbs.execute(settings(c, inventory), cmd=cmd, limit=words(limit), timeout=timeout, json=json)


@verb(FLAGS, many=["limit"])
def cp(c: Any, source: str = "", target: str = "", limit: Many = None, inventory: str = "") -> int | None:
    """Copy a file to all hosts at once; it gets its name there only when it is whole."""
    from fleet import verbs

    return verbs.cp(settings(c, inventory), source=source, target=target, limit=words(limit))


@verb(FLAGS, many=["limit"])
def image(c: Any, config: str = "", limit: Many = None, inventory: str = "") -> int | None:
    """Bring a config's images to the hosts that lack them, from a host that has them."""
    from fleet import verbs

    return verbs.stage(settings(c, inventory), config=config, limit=words(limit))


@verb(FLAGS)
def shell(c: Any, inventory: str = "", config: str = "") -> int | None:
    """A Python console with the inventory, the hosts and what runs on them."""
    from fleet import verbs

    return verbs.shell(settings(c, inventory), config=config)


@verb(FLAGS)
def completion(c: Any, shell: str = "") -> None:
    """Print what makes Tab complete verbs, flags, keys, hosts and runs in a shell."""
    from fleet.completion import script

    script(shell)


@verb(FLAGS)
def expand(c: Any, config: str = "", from_: str = "", evals: str = "default", json: bool = False) -> int | None:
    """Show the matrix entries a config expands to, as the public generator writes them."""
    from fleet import verbs

    return verbs.expand(settings(c), config=config, master=from_, evals=evals, json=json)


@verb(FLAGS, many=["limit"])
def check_inventory(c: Any, limit: Many = None, inventory: str = "") -> int | None:
    """Tell all faults of the inventory, what is odd in it, and which recipes its hosts can run; no host is asked."""
    from fleet import verbs

    return verbs.check_inventory(settings(c, inventory), limit=words(limit))


@verb(FLAGS)
def install(c: Any) -> int | None:
    """Install the Debian packages the lab needs, where they are missing (Debian, root)."""
    from fleet import verbs

    return verbs.lab_install(settings(c))


@verb(FLAGS)
def up(c: Any, nodes: int = 3) -> int | None:
    """Bring up a lab of real nodes on this machine (Linux, root), or mend the one that is up."""
    from fleet import verbs

    return verbs.lab_up(settings(c), nodes=nodes)


@verb(FLAGS)
def lab_down(c: Any) -> int | None:
    """Take the lab down and remove all it made."""
    from fleet import verbs

    return verbs.lab_down(settings(c))


@verb(FLAGS)
def status(c: Any, json: bool = False) -> int | None:
    """Show the lab's nodes; 0 only if all of them answer."""
    from fleet import verbs

    return verbs.lab_status(settings(c), json=json)


def _group(name: str, tasks: dict[str, Any], default: str | None = None) -> Collection:
    group = Collection(name)
    for task_name, task in tasks.items():
        group.add_task(task, task_name, default=task_name == default)
    return group


ns = Collection(
    plan,
    sweep,
    health,
    ps,
    logs,
    down,
    execute,
    cp,
    shell,
    completion,
    _group("stage", {"image": image}, default="image"),
    _group("inventory", {"check": check_inventory}),
    _group("config", {"expand": expand}),
    _group("lab", {"install": install, "up": up, "down": lab_down, "status": status}),
)

check_settings_file()
guard(ns)
