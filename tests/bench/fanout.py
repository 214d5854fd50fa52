"""`true` on 100 sshd addresses, cold and warm: fleet's fan-out, bare paramiko, OpenSSH under xargs, Ansible.

    python tests/bench/fanout.py [--rounds N] [--hosts N] [--ansible]        (Linux, root)

The addresses, the user and the sshd live in namespaces of this program's own and end with it. All tools run by turns,
each in a process of its own; its imports are not counted. Exits with 1 past a limit. docs/bench.md has figures.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

PARAMIKO = 1.15
"""How many times bare paramiko's wall time fleet may take, cold."""

OPENSSH = 4.0
"""How many times faster than OpenSSH fleet must be, cold."""

AT_ONCE = 50
WARM = 5
"""Warm rounds on the connections of one cold round."""

LOGIN = "fleetbench"
SSHD = "/usr/sbin/sshd"
NAMESPACES = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]

Sample = dict[str, list[float]]
"""By "cold" and "warm": wall seconds and client CPU seconds."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="cold rounds of each tool (default: 5)")
    parser.add_argument("--hosts", type=int, default=100, help="addresses, up to 250 (default: 100)")
    parser.add_argument("--ansible", action="store_true", help="compare ansible-core, too; pip installs it aside")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(MEASURES[options.measure](Path(options.inside), options.hosts)))
        return 0
    if options.inside:
        return inside(Path(options.inside), options)
    if os.geteuid() or not os.path.exists(SSHD):
        print("fanout.py makes namespaces and starts an sshd: it needs Linux, root and openssh-server", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="fleet-bench-") as made:
        if options.ansible:
            install_ansible(Path(made))
        return subprocess.run([*NAMESPACES, sys.executable, *sys.argv, "--inside", made]).returncode


def install_ansible(folder: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    pip = [str(folder / "venv/bin/pip"), "install", "--quiet", "--disable-pip-version-check", "ansible-core"]
    subprocess.run(pip, check=True, timeout=600)


# ---------------------------------------------------------------------- in the namespaces


def inside(folder: Path, options: Any) -> int:
    tools = [tool for tool in MEASURES if tool != "ansible" or options.ansible]
    samples: dict[str, list[Sample]] = {tool: [] for tool in tools}
    with hosts(folder, options.hosts):
        measure(folder, "paramiko", options.hosts)  # sshd's pages are read in
        for number in range(options.rounds):
            for tool in tools if number % 2 else reversed(tools):
                samples[tool].append(measure(folder, tool, options.hosts))
    return told(samples, options.hosts)


@contextlib.contextmanager
def hosts(folder: Path, count: int) -> Iterator[None]:
    """One sshd on `count` addresses, and a user without start-up files, on mounts that only this process sees."""
    run("ip", "link", "set", "lo", "up")
    for number in range(1, count + 1):
        run("ip", "address", "add", f"{address(number)}/32", "dev", "lo")
    home = folder / "home"
    home.mkdir()
    for file, line in (("passwd", f"{LOGIN}:x:64999:64999::{home}:/bin/bash"), ("shadow", f"{LOGIN}:*:1:0:9:7:::")):
        shadowed(folder / file, f"/etc/{file}", line)
    folder.chmod(0o755)
    for key in ("hostkey", "key"):
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key))
    public = " ".join((folder / "hostkey.pub").read_text().split()[:2])
    (folder / "known_hosts").write_text("".join(f"{ip} {public}\n" for ip in addresses(count)))
    (folder / "ssh_config").write_text(
        f"User {LOGIN}\nIdentityFile {folder}/key\nIdentitiesOnly yes\nBatchMode yes\n"
        f"StrictHostKeyChecking yes\nUserKnownHostsFile {folder}/known_hosts\n"
    )
    (folder / "sshd_config").write_text(
        f"ListenAddress 0.0.0.0:22\nHostKey {folder}/hostkey\nAuthorizedKeysFile {folder}/key.pub\nStrictModes no\n"
        f"PidFile none\nUsePAM no\nUseDNS no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
        f"MaxStartups 1000:30:2000\n"
    )
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    with (folder / "log").open("wb") as log:
        sshd = subprocess.Popen([SSHD, "-D", "-e", "-f", str(folder / "sshd_config")], stderr=log)
    try:
        wait_for_banner()
        yield
    finally:
        sshd.kill()
        sshd.wait(5)


def shadowed(copy: Path, path: str, line: str) -> None:
    """A line more in a file of /etc, for this mount namespace only."""
    shutil.copy2(path, copy)
    with copy.open("a") as file:
        file.write(f"{line}\n")
    run("mount", "--bind", str(copy), path)


def wait_for_banner() -> None:
    end = time.monotonic() + 10
    while time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection((address(1), 22), 1) as probe:
            probe.settimeout(1)
            if probe.recv(3) == b"SSH":
                return
        time.sleep(0.02)
    raise SystemExit("sshd did not start")


def measure(folder: Path, tool: str, count: int) -> Sample:
    argv = [sys.executable, __file__, "--inside", str(folder), "--hosts", str(count), "--measure", tool]
    ran = subprocess.run(argv, stdout=subprocess.PIPE, timeout=180, check=True, env=environment(folder))
    sample: Sample = json.loads(ran.stdout)
    return sample


def environment(folder: Path) -> dict[str, str]:
    """No agent: its keys would be tried first, by some of the tools."""
    kept = {name: value for name, value in os.environ.items() if name != "SSH_AUTH_SOCK"}
    return {**kept, "ANSIBLE_HOME": str(folder / "ansible"), "PYTHONPATH": str(Path(__file__).parents[2])}


def address(number: int) -> str:
    return f"10.79.0.{number}"


def addresses(count: int) -> list[str]:
    return [address(number) for number in range(1, count + 1)]


def run(*argv: str) -> None:
    subprocess.run(argv, check=True, timeout=20)


# ---------------------------------------------------------------------- the tools, each in a process of its own


def clocked(work: Callable[[], object]) -> list[float]:
    """Wall seconds and CPU seconds of this process and the children it has waited for."""
    wall, cpu = time.perf_counter(), used()
    work()
    return [time.perf_counter() - wall, used() - cpu]


def used() -> float:
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in spent)


def sampled(work: Callable[[], object]) -> Sample:
    """The first time opens the connections, the others find them open."""
    cold = clocked(work)
    warm = [clocked(work) for _ in range(WARM)]
    return {"cold": cold, "warm": [statistics.median(column) for column in zip(*warm, strict=True)]}


def fleet(folder: Path, count: int) -> Sample:
    from fleet.hosts.base import Outcome
    from fleet.hosts.fan import each
    from fleet.hosts.ssh import SSH

    config = str(folder / "ssh_config")
    known = str(folder / "known_hosts")
    machines = [SSH(ip, ssh_config=config, known_hosts=known) for ip in addresses(count)]

    def work() -> None:
        answers = each(machines, lambda host: host.run(["true"]), timeout=60)
        wrong = {name: str(answer) for name, answer in answers.items() if not isinstance(answer, Outcome)}
        assert not wrong, wrong

    return sampled(work)


def paramiko(folder: Path, count: int) -> Sample:
    """No host key is checked and nothing bounds a command: the least there is to do."""
    from paramiko import AutoAddPolicy, Ed25519Key, SSHClient

    key = Ed25519Key.from_private_key_file(str(folder / "key"))
    open_ones: dict[str, SSHClient] = {}

    def one(ip: str) -> None:
        if ip not in open_ones:
            client = SSHClient()
            client.set_missing_host_key_policy(AutoAddPolicy())
            client.connect(ip, username=LOGIN, pkey=key, look_for_keys=False, allow_agent=False)
            open_ones[ip] = client
        _, out, _ = open_ones[ip].exec_command("true")
        assert out.channel.recv_exit_status() == 0

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return sampled(lambda: list(pool.map(one, addresses(count))))


def openssh(folder: Path, count: int) -> Sample:
    argv = ["xargs", f"-P{AT_ONCE}", "-I{}", "ssh", "-F", str(folder / "ssh_config"), "-n", "{}", "true"]
    names = "\n".join(addresses(count)).encode()
    return {"cold": clocked(lambda: subprocess.run(argv, input=names, check=True, timeout=120))}


def ansible(folder: Path, count: int) -> Sample:
    """Its `raw` module needs no Python on the hosts. Warm is OpenSSH's ControlPersist, a process per call."""
    (folder / "ansible-hosts").write_text("\n".join(addresses(count)) + "\n")
    share = f"-o ControlMaster=auto -o ControlPersist=60 -o ControlPath={tempfile.mkdtemp(dir=folder)}/%C"
    argv = [str(folder / "venv/bin/ansible"), "all", "-i", str(folder / "ansible-hosts"), "-f", str(AT_ONCE)]
    argv += ["-m", "raw", "-a", "true", "--ssh-common-args", f"-F {folder}/ssh_config {share}"]
    return sampled(lambda: subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, timeout=120))


MEASURES: dict[str, Callable[[Path, int], Sample]] = {
    "fleet": fleet,
    "paramiko": paramiko,
    "openssh": openssh,
    "ansible": ansible,
}


# ---------------------------------------------------------------------- the table


def told(samples: dict[str, list[Sample]], count: int) -> int:
    rounds = len(samples["fleet"])
    print(f"true on {count} addresses, medians of {rounds} rounds by turns: wall seconds / client CPU seconds")
    print(f"  {'':10} {'cold':>15} {'warm':>15} {'cold, fleet = 1':>18}")
    base = middle(samples["fleet"], "cold")[0]
    for tool, found in samples.items():
        cells = [pair(middle(found, state)) for state in ("cold", "warm")]
        print(f"  {tool:10} {cells[0]:>15} {cells[1]:>15} {middle(found, 'cold')[0] / base:18.2f}")
    slower = base / middle(samples["paramiko"], "cold")[0]
    faster = middle(samples["openssh"], "cold")[0] / base
    print(f"  fleet takes {slower:.2f} × paramiko's time (limit {PARAMIKO})")
    print(f"  fleet is {faster:.1f} × faster than OpenSSH (limit {OPENSSH:g})")
    return 0 if slower <= PARAMIKO and faster >= OPENSSH else 1


def middle(found: list[Sample], state: str) -> list[float]:
    rows = [sample[state] for sample in found if state in sample]
    return [statistics.median(column) for column in zip(*rows, strict=True)]


def pair(values: list[float]) -> str:
    return " / ".join(f"{value:.2f}" for value in values) or "-"


if __name__ == "__main__":
    sys.exit(main())
