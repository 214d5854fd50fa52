"""fleet's front door: one verb a task, `invoke --list` shows them. What they do is in fleet/verbs.py."""

from __future__ import annotations

from typing import Any

from invoke.collection import Collection

from fleet.front import numbers, settings, verb, words
from fleet.guard import guard

Many = list[str] | None

FLAGS = {
    "config": "config key: the name of a file in recipes/ without .yaml (needed)",
    "arm": "only this arm, plan shows the names (default: all)",
    "conc": "only these concurrencies, repeat it or use commas (default: all)",
    "limit": "only these hosts or groups: a,b  a:&b  a:!b  node[1-3]  n*  @last-failed (default: all)",
    "inventory": "inventory file (default: fleet.inventory of invoke.yaml)",
    "trial": "a small load that proves the chain works, never a measurement (default: off; in the lab: always)",
    "fail_fast": "stop at the first invalid point (default: off)",
    "resume": "run what is missing of this run: its name or its beginning, or latest (default: a new run)",
    "rerun": "with --resume: failed (all that is not valid) or all run again, too (default: incomplete)",
    "new": "start a new run though an earlier one of this plan has crashed and can be resumed (default: off)",
    "keep_going": "go on after an invalid point or a dead service (this is the default)",
    "watch": "ask again every second and show it live, until ^C (default: ask once)",
    "json": "print JSON for scripts (default: text for eyes)",
    "run": "a run's name or its beginning, or latest (default: what runs, else the latest)",
    "host": "only this host (default: all)",
    "role": "only this role or seat: prefill, decode0, router, client … (default: all)",
    "tail": "so many last lines of each service, 0 is all",
    "follow": "go on with what is written from now on, all services on one timeline, until ^C (default: off)",
    "from": "read the config from this master file (default: from recipes/)",
    "diff": "tell only what would run otherwise than in this run: its name, or latest (default: the plan as a whole)",
    "cmd": "a shell command, in quotes (needed)",
    "source": "a file here (needed)",
    "target": "where it goes on the hosts: a whole path, or a folder that ends in / (needed)",
    "timeout": "how long a host may take: seconds, or 90s, 5m (default: timeouts.command of invoke.yaml)",
    "evals": "which evaluation entries: default, none, only or all (default: default, the marked ones)",
    "nodes": "how many nodes",
    "shell": "bash or zsh (needed)",
    "group": "the group to add them to, made where it is missing (default: none)",
    "runner": "runner label that they answer to, repeat it or use commas (default: the one that names their GPUs)",
    "models": "folder of their model weights (default: looked for)",
    "fabric": "which address peers use: an interface, RDMA device or network (default: the only one there is)",
    "dry_run": "print the diff and write nothing (default: off)",
    "accept": "fingerprint of a key to believe, as SHA256:…, also of one that has changed; repeat it (default: none)",
    "yes": "believe every key that nothing is on record for, never a changed one (default: ask on a terminal)",
    "repeats": "run each point so often; every round has all points, in an order of its own",
    "order_seed": "what the order of repeated points is shuffled with (default: 0)",
    "restart_between": "start the servers anew for each round of repeats (default: off, they serve all of them)",
    "a": "a run's name or its beginning, latest, or the file of a public aggregate (needed)",
    "b": "what is set against it: a run or a file like --a (needed)",
    "across": "what may differ besides: mtp (speculation, depth, framing, image) or image (default: nothing)",
    "wait": "wait until nobody else has the nodes, ^C leaves (default: exit 5 where somebody has)",
    "tar": "an image archive here, as docker save writes it, for hosts that lack the image (default: from a host)",
    "allow_strangers": "start though others hold GPU memory there; the summary tells (default: a reason not to start)",
    "full_hash": "compare model files by every byte, not by samples (default: full_hash of invoke.yaml)",
    "steal": "take the nodes: who has them is stopped and keeps finished points (default: exit 5 where somebody has)",
    "allow_drift": "with --resume: go on though a tag names another image than then; it is noted (default: exit 3)",
    "look": "tell what would be done and do nothing (default: off)",
    "html": "write one page with plots, verdicts, evidence and provenance to this file (default: none)",
    "svg": "write each plot as a file of its own into this folder (default: none)",
    "csv": "print CSV, a line a point (default: text for eyes)",
    "format": "the public format",
    "to": "folder for the files, made where it is missing (default: export/ in the run's folder)",
    "include_invalid": "points that are not valid, too, marked in name and content (default: left out and told)",
    "update": "hosts that are there already get what was found (default: off)",
}
KEY = "config key: the name of a file in recipes/ without .yaml"


def but(**texts: str) -> dict[str, str]:
    """The flags with other texts for some."""
    return {**FLAGS, **texts}


@verb(but(config=f"{KEY} (needed, but with --diff: that of the run)"), many=["conc", "limit"])
def plan(
    c: Any,
    config: str = "",
    arm: str = "",
    conc: Many = None,
    limit: Many = None,
    inventory: str = "",
    trial: bool = False,
    repeats: int = 1,
    order_seed: int = 0,
    restart_between: bool = False,
    diff: str = "",
    json: bool = False,
) -> int | None:
    """Print each step of a sweep as the exact argv for one host; no host is asked."""
    from fleet import resumes, verbs

    return verbs.plan(
        settings(c, inventory),
        config=config,
        arm=arm,
        conc=numbers("--conc", conc),
        limit=words(limit),
        trial=trial,
        repeats=resumes.repeats(repeats, order_seed, restarts=restart_between),
        diff=diff,
        json=json,
    )


@verb(but(config=f"{KEY} (needed, but with --resume: that of the run)"), many=["conc", "limit"])
def sweep(
    c: Any,
    config: str = "",
    arm: str = "",
    conc: Many = None,
    limit: Many = None,
    inventory: str = "",
    trial: bool = False,
    repeats: int = 1,
    order_seed: int = 0,
    restart_between: bool = False,
    fail_fast: bool = False,
    keep_going: bool = False,
    resume: str = "",
    rerun: str = "",
    new: bool = False,
    wait: bool = False,
    steal: bool = False,
    allow_strangers: bool = False,
    allow_drift: bool = False,
    tar: str = "",
    full_hash: bool = False,
    json: bool = False,
) -> int | None:
    """From a config key to a run folder of judged results: the whole chain."""
    from fleet import resumes, verbs

    return verbs.sweep(
        settings(c, inventory),
        config=config,
        arm=arm,
        conc=numbers("--conc", conc),
        limit=words(limit),
        trial=trial,
        repeats=resumes.repeats(repeats, order_seed, restarts=restart_between),
        fail_fast=fail_fast,
        keep_going=keep_going,
        resume=resume,
        rerun=rerun,
        new=new,
        wait=wait,
        steal=steal,
        allow_strangers=allow_strangers,
        allow_drift=allow_drift,
        tar=tar,
        full_hash=full_hash,
        json=json,
    )


@verb(but(config=f"{KEY}: asks for its image and model, too (default: none)"), many=["limit"])
def health(
    c: Any, config: str = "", limit: Many = None, inventory: str = "", watch: bool = False, json: bool = False
) -> int | None:
    """Ask each host and each running service how it is; 0 only if all is well."""
    from fleet import verbs

    return verbs.health(settings(c, inventory), config=config, limit=words(limit), watch=watch, json=json)


@verb(FLAGS, many=["limit"])
def ps(c: Any, limit: Many = None, inventory: str = "", json: bool = False) -> int | None:
    """List the containers on the hosts: ours by run and seat, strangers' by name."""
    from fleet import verbs

    return verbs.ps(settings(c, inventory), limit=words(limit), json=json)


@verb(FLAGS)
def logs(
    c: Any,
    run: str = "",
    host: str = "",
    role: str = "",
    tail: int = 100,
    follow: bool = False,
    inventory: str = "",
) -> int | None:
    """Show the logs of a run's services, from the hosts or from the run folder."""
    from fleet import verbs

    return verbs.logs(settings(c, inventory), run=run, host=host, role=role, tail=tail, follow=follow)


@verb(
    but(run="a run's name or its beginning, or latest (default: all runs of yours)", config=f"{KEY} (default: all)"),
    many=["limit"],
)
def down(c: Any, run: str = "", limit: Many = None, inventory: str = "", config: str = "") -> int | None:
    """Save the logs of our containers, stop and remove them.

    Strangers' are not touched.
    """
    from fleet import verbs

    return verbs.down(settings(c, inventory), run=run, limit=words(limit), config=config)


@verb(but(run="a run's name or its beginning, or latest; repeat it or use commas (default: latest)"), many=["run"])
def report(
    c: Any, run: Many = None, html: str = "", svg: str = "", json: bool = False, csv: bool = False
) -> int | None:
    """Show what runs found: a table per arm, verdicts, or a page with plots."""
    from fleet import reports

    return reports.report(settings(c), runs=words(run), html=html, svg=svg, json=json, csv=csv)


@verb(
    but(
        run="a run's name or its beginning, or latest (default: latest)",
        runner="the runner's name in the files' names (default: the recipe's label)",
    )
)
def export(
    c: Any,
    run: str = "",
    format_: str = "inferencex",
    to: str = "",
    runner: str = "",
    include_invalid: bool = False,
) -> int | None:
    """Write a run's results under the public benchmark's names."""
    from fleet import reports

    return reports.export(settings(c), run=run, form=format_, to=to, runner=runner, include_invalid=include_invalid)


@verb(FLAGS, many=["limit"])
def leases(c: Any, limit: Many = None, inventory: str = "", json: bool = False) -> int | None:
    """Who has which node, for which run, since when and until when."""
    from fleet import verbs

    return verbs.leases(settings(c, inventory), limit=words(limit), json=json)


@verb(FLAGS, many=["limit"])
def reap(c: Any, limit: Many = None, inventory: str = "", look: bool = False, json: bool = False) -> int | None:
    """Clean up after dead runs on all hosts: logs home, then all of theirs goes.

    Runs that live and strangers are left alone.
    """
    from fleet import verbs

    return verbs.reap(settings(c, inventory), limit=words(limit), look=look, json=json)


@verb(FLAGS, many=["limit"], name="exec")
def execute(
    c: Any, cmd: str = "", limit: Many = None, inventory: str = "", timeout: str = "", json: bool = False
) -> int | None:
    """Run a shell command on all hosts at once; equal answers are shown once.

    The worst exit code is returned.
    """
    from fleet import verbs

    return verbs.execute(settings(c, inventory), cmd=cmd, limit=words(limit), timeout=timeout, json=json)


@verb(FLAGS, many=["limit"])
def cp(c: Any, source: str = "", target: str = "", limit: Many = None, inventory: str = "") -> int | None:
    """Copy a file to all hosts at once, whole or not at all."""
    from fleet import verbs

    return verbs.cp(settings(c, inventory), source=source, target=target, limit=words(limit))


@verb(FLAGS, many=["limit"])
def image(c: Any, config: str = "", limit: Many = None, inventory: str = "", tar: str = "") -> int | None:
    """Bring a config's images to the hosts that lack them (also: invoke stage)."""
    from fleet import verbs

    return verbs.stage(settings(c, inventory), config=config, limit=words(limit), tar=tar)


@verb(FLAGS, many=["limit"])
def verify_image(
    c: Any, config: str = "", arm: str = "", limit: Many = None, inventory: str = "", json: bool = False
) -> int | None:
    """Prove a plan's images on its hosts, and compare every flag with their --help.

    Each image is started once on each host, and has to have what the engine needs.
    """
    from fleet import verbs

    return verbs.verify_image(settings(c, inventory), config=config, arm=arm, limit=words(limit), json=json)


@verb(but(**{"from": "the host whose model is right (default: the one that has it whole)"}), many=["limit"])
def model(
    c: Any, config: str = "", limit: Many = None, from_: str = "", full_hash: bool = False, inventory: str = ""
) -> int | None:
    """Copy a config's model, peer to peer, to the hosts that lack files of it."""
    from fleet import verbs

    return verbs.stage_model(
        settings(c, inventory), config=config, limit=words(limit), source=from_, full_hash=full_hash
    )


@verb(but(config=f"{KEY}: for verbs that are given none (default: none)"))
def shell(c: Any, inventory: str = "", config: str = "") -> int | None:
    """A Python console with the hosts, what runs on them, the runs and all verbs.

    It is IPython's where IPython is installed.
    """
    from fleet.shell import calls, console

    return console.run(settings(c, inventory), calls.Tasks(ns, c), config=config)


@verb(but(config=f"{KEY}: only runs of it (default: all)"))
def results(c: Any, config: str = "", json: bool = False) -> int | None:
    """What is in results/: each run by config and date, with its verdicts and image."""
    from fleet import compares

    return compares.results(settings(c), config=config, json=json)


@verb(FLAGS)
def compare(c: Any, a: str = "", b: str = "", across: str = "", json: bool = False) -> int | None:
    """Set two runs against each other: points that are alike, differences beyond noise."""
    from fleet import compares

    return compares.compare(settings(c), a=a, b=b, across=across, json=json)


@verb(
    but(
        config=f"{KEY}: sweep one point of it with repeats; this or --run is needed (default: none)",
        run="a run with repeats: its name or its beginning, or latest (default: none)",
        conc="only these concurrencies, repeat it or use commas (default: the smallest of the arm)",
        arm="only this arm, plan shows the names (default: the first)",
    ),
    many=["conc", "limit"],
)
def noise(
    c: Any,
    config: str = "",
    run: str = "",
    arm: str = "",
    conc: Many = None,
    limit: Many = None,
    inventory: str = "",
    trial: bool = False,
    repeats: int = 5,
    restart_between: bool = False,
    json: bool = False,
) -> int | None:
    """How much repeats of the same point differ: the noise floor, kept for compare."""
    from fleet import compares, resumes

    return compares.noise(
        settings(c, inventory),
        config=config,
        run=run,
        arm=arm,
        conc=numbers("--conc", conc),
        limit=words(limit),
        trial=trial,
        repeats=resumes.repeats(repeats, 0, restarts=restart_between),
        json=json,
    )


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
    """Tell faults and oddities of the inventory, and which recipes its hosts can run.

    No host is asked.
    """
    from fleet import verbs

    return verbs.check_inventory(settings(c, inventory), limit=words(limit))


@verb(
    FLAGS | {"host": "alias of ~/.ssh/config, name, address or range; repeat it or use commas (needed)"},
    many=["host", "runner"],
)
def add(
    c: Any,
    host: Many = None,
    inventory: str = "",
    group: str = "",
    runner: Many = None,
    models: str = "",
    fabric: str = "",
    dry_run: bool = False,
    update: bool = False,
) -> int | None:
    """Look at hosts over SSH and write them into the inventory."""
    from fleet import enrol

    return enrol.run(
        settings(c, inventory),
        hosts=words(host),
        group=group,
        runners=words(runner),
        models=models,
        fabric=fabric,
        dry_run=dry_run,
        update=update,
    )


@verb(
    FLAGS | {"host": "hosts that need not be in the inventory yet; repeat it or use commas (default: none)"},
    many=["limit", "host", "accept"],
)
def trust(
    c: Any,
    limit: Many = None,
    host: Many = None,
    accept: Many = None,
    yes: bool = False,
    inventory: str = "",
    json: bool = False,
) -> int | None:
    """Show the hosts' keys beside those on record, and write down those you accept."""
    from fleet import trust as trusting

    return trusting.run(
        settings(c, inventory), limit=words(limit), hosts=words(host), accept=words(accept), yes=yes, json=json
    )


@verb(FLAGS)
def install(c: Any) -> int | None:
    """Install the Debian packages the lab needs, where they are missing (Debian, root)."""
    from fleet import verbs

    return verbs.lab_install(settings(c))


@verb(FLAGS)
def up(c: Any, nodes: int = 3) -> int | None:
    """Bring up a lab of real nodes here, or mend the one that is up (Linux, root)."""
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


DAY = {
    "look": ["health", "ps", "leases"],
    "plan": ["plan", "config.expand", "inventory.check", "inventory.add"],
    "run": ["stage.image", "stage.model", "verify-image", "sweep"],
    "watch": ["logs", "shell"],
    "judge": ["results", "report", "compare", "noise", "export"],
    "fix": ["exec", "cp", "down", "reap", "trust"],
    "lab": ["lab.install", "lab.up", "lab.status", "lab.down"],
    "your shell": ["completion"],
}
"""The verbs as a day needs them."""

ns = Collection(
    plan,
    sweep,
    health,
    ps,
    logs,
    leases,
    down,
    reap,
    execute,
    cp,
    trust,
    verify_image,
    results,
    compare,
    noise,
    shell,
    completion,
    report,
    export,
    _group("stage", {"image": image, "model": model}, default="image"),
    _group("inventory", {"add": add, "check": check_inventory}),
    _group("config", {"expand": expand}),
    _group("lab", {"install": install, "up": up, "down": lab_down, "status": status}),
)

guard(ns, DAY)
