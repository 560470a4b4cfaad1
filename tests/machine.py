"""The machine that several test processes share: commands, ports, and one lock."""

import contextlib
import fcntl
import itertools
import os
import random
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

SECONDS = 600
"""The time limit of a command, long enough to install 100 MB over a slow line."""

_PORTS = itertools.cycle(random.SystemRandom().sample(range(12_000, 32_000), 20_000))
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


def free_port() -> int:
    """A port of loopback on which nobody listens."""
    for port in _PORTS:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("the ports are a circle")


@contextlib.contextmanager
def exclusive() -> Iterator[None]:
    """Lets only one test process of this user run the block at a time."""
    path = Path(tempfile.gettempdir(), f"tailrace-tests-{os.getuid()}.lock")
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
