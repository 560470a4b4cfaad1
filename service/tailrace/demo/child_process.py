"""A child process of the demo, which ends with its block and prints to a file."""

import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import anyio
from anyio.abc import Process

from tailrace.durable_files import PRIVATE

KILL_SECONDS = 5.0
"""How long to wait for a killed process. After this time, the kernel cannot end the process."""


@dataclass(frozen=True, slots=True)
class ChildProcess:
    process: Process
    log: Path
    grace_seconds: float

    async def stop(self) -> int | None:
        """Sends SIGTERM, and SIGKILL after the grace period; returns the exit code."""
        with suppress(ProcessLookupError):
            self.process.terminate()
        with anyio.move_on_after(self.grace_seconds):
            return await self.process.wait()
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # its children too: Spark's Java
        with anyio.move_on_after(KILL_SECONDS):
            await self.process.wait()
        return self.process.returncode


@asynccontextmanager
async def child_process(
    command: Sequence[str | Path],
    *,
    log: Path,
    environment: Mapping[str, str] | None = None,
    grace_seconds: float = 10.0,
    user: int | None = None,
) -> AsyncIterator[ChildProcess]:
    """Runs a process in the directory of its log, as ``user``; stops it at the end of the block.

    The process has its own session: Ctrl-C reaches only the demo, which stops its processes in
    order.
    """
    # If util-linux is installed, the processes of a killed demo end as well.
    setpriv = shutil.which("setpriv")
    tied = [setpriv, "--pdeathsig", "TERM", "--"] if setpriv else []
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    with os.fdopen(os.open(log, flags, PRIVATE), "ab") as output:
        process = await anyio.open_process(
            [*tied, *map(str, command)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=log.parent,
            env=environment,
            user=user,
            start_new_session=True,
        )
    child = ChildProcess(process, log, grace_seconds)
    try:
        yield child
    finally:
        with anyio.CancelScope(shield=True):  # stop() has time limits
            await child.stop()


async def failure_of(
    command: Sequence[str | Path],
    *,
    seconds: float,
    log: Path,
    environment: Mapping[str, str],
) -> str | None:
    """Runs a process to its end; returns how it failed, or ``None``."""
    with anyio.move_on_after(seconds):
        # A short grace: after SIGTERM, Spark would finish a batch that nobody needs.
        async with child_process(
            command, log=log, environment=environment, grace_seconds=1.0
        ) as child:
            code = await child.process.wait()
        return f"ended with code {code}" if code else None
    return f"did not end within {seconds:.0f} s"


def last_lines(log: Path, count: int = 15) -> str:
    """The last lines that a process printed, for an error message."""
    text = log.read_text("utf-8", "replace") if log.exists() else ""
    return "\n".join(text.splitlines()[-count:])
