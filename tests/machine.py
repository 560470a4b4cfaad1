"""The machine that several test processes share: its commands, its ports and one lock."""

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
"""For a command, such as the installation of 100 MB over a slow line."""

_PORTS = itertools.cycle(random.SystemRandom().sample(range(12_000, 32_000), 20_000))
"""Below the ports that Linux gives to connections: no client takes the port of a server that is
being started, or that is down for a moment. A process repeats none soon."""


class CheckFailed(Exception):
    """A step did not do what it must; the message says what was seen."""


def run(command: Sequence[str], *, seconds: float = SECONDS, **options: object) -> str:
    """What a command wrote to its standard output; with both outputs in the error if it fails."""
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
    """A port of loopback that nobody listens on."""
    for port in _PORTS:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("the ports are a circle")


@contextlib.contextmanager
def exclusive() -> Iterator[None]:
    """No two test processes of this user are inside at once."""
    path = Path(tempfile.gettempdir(), f"tailrace-tests-{os.getuid()}.lock")
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
