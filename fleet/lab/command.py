"""Running this machine's programs: argv lists, a deadline, and an environment that carries nothing of the caller's."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence

from fleet.errors import LabError

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ENVIRONMENT: Mapping[str, str] = {"PATH": PATH, "HOME": "/root", "LANG": "C.UTF-8"}


class Completed(subprocess.CompletedProcess[bytes]):
    """A finished command; `out` and `err` are its output as text."""

    @property
    def out(self) -> str:
        return self.stdout.decode("utf-8", "replace")

    @property
    def err(self) -> str:
        return self.stderr.decode("utf-8", "replace")


def run(
    argv: Sequence[str],
    *,
    stdin: bytes | str | None = None,
    timeout: float = 30.0,
    check: bool = True,
    extra: Mapping[str, str] | None = None,
) -> Completed:
    """Run a command to its end.

    stdin: what to feed; None is an immediate end of file. extra: variables beside PATH, HOME and LANG.
    Raises LabError when it does not end within `timeout` seconds, cannot be started, or (with check) ends non-zero.
    """
    fed = stdin.encode() if isinstance(stdin, str) else stdin or b""
    line = " ".join(argv)
    try:
        done = subprocess.run(
            list(argv), input=fed, capture_output=True, timeout=timeout, env={**ENVIRONMENT, **(extra or {})}, cwd="/"
        )
    except subprocess.TimeoutExpired:
        raise LabError(f"`{line}` did not end within {timeout:g} s") from None
    except OSError as error:
        raise LabError(f"`{line}` could not be started: {error.strerror}") from None
    result = Completed(done.args, done.returncode, done.stdout, done.stderr)
    if check and result.returncode != 0:
        raise LabError(f"`{line}` ended with {result.returncode}: {(result.err or result.out).strip()[-600:]}")
    return result


def attempt(argv: Sequence[str], *, timeout: float = 30.0) -> bool:
    """Run a command whose failure means that there was nothing to do."""
    return run(argv, timeout=timeout, check=False).returncode == 0


def launch(argv: Sequence[str], *, log: str, extra: Mapping[str, str] | None = None) -> None:
    """Start a process that outlives the caller, its terminal and its session; output goes to the file `log`.

    It is nobody's child, so its pid is not known here: the process records itself (see process.py).
    """
    with open(log, "ab") as output:
        subprocess.run(
            ["setsid", "--fork", *argv],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**ENVIRONMENT, **(extra or {})},
            cwd="/",
            check=True,
            timeout=30,
        )
