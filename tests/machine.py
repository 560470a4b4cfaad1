"""The machine that several test processes share: commands, ports, and one lock."""

import contextlib
import fcntl
import itertools
import os
import random
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

SECONDS = 600
"""The time limit of a command, long enough to install 100 MB over a slow line."""

_LAST_PORT = 32_000
_PORTS = itertools.cycle(random.SystemRandom().sample(range(12_000, _LAST_PORT), 20_000))
"""Ports below the range that Linux gives to outgoing connections, so that no client takes the port
of a server that is starting or temporarily down. A process does not reuse a port soon."""


class CheckFailed(Exception):
    """A step failed; the message says what was seen."""


def run(command: Sequence[str], *, seconds: float = SECONDS, **options: object) -> str:
    """Runs a command and returns its standard output. If it fails, the error has both outputs."""
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
        **options,  # type: ignore[call-overload]
    )
    if done.returncode:
        shown = " ".join(command)
        raise CheckFailed(f"{shown}\nended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return str(done.stdout)


def suspend(pid: int) -> None:
    """Stops a process with SIGSTOP, and returns when each of its threads has stopped.

    Until then it may still answer.
    """
    os.kill(pid, signal.SIGSTOP)
    end = time.monotonic() + 30
    while not all(_is_stopped(thread) for thread in Path(f"/proc/{pid}/task").iterdir()):
        if time.monotonic() > end:
            raise CheckFailed(f"process {pid} has not stopped")
        time.sleep(0.001)


def _is_stopped(thread: Path) -> bool:
    try:
        return (thread / "stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:  # it has ended
        return True


def free_port(beside: int = 0) -> int:
    """A port of loopback on which nobody listens, nor on that so far ``beside`` it."""
    return next(
        port
        for port in _PORTS
        if port + beside <= _LAST_PORT and all(map(_is_free, (port, port + beside)))
    )


def _is_free(port: int) -> bool:
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.bind(("127.0.0.1", port))
        return True
    return False


@contextlib.contextmanager
def exclusive() -> Iterator[None]:
    """Lets only one test process of this user run the block at a time."""
    path = Path(tempfile.gettempdir(), f"tailrace-tests-{os.getuid()}.lock")
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
