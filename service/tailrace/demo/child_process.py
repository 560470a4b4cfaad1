"""A child process of the demo: it ends with its block, and prints into a file."""

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

import anyio
from anyio.abc import Process

import tailrace
from tailrace.file_mode import PRIVATE

CHECKOUT = Path(tailrace.__file__).parents[2]
"""The checkout, where the package is not installed from a wheel."""

KILL_SECONDS = 5.0
"""How long to wait for a killed process: longer means that the kernel cannot end it."""


def own_environment(**variables: str) -> dict[str, str]:
    """The environment for one of our own commands, which must find this package."""
    found = {**os.environ, **variables}
    if (CHECKOUT / "pyproject.toml").exists():
        paths = [str(CHECKOUT / "service"), found.get("PYTHONPATH", "")]
        found["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return found


class ChildProcess:
    """One process, stopped at the end of the block unless it has ended by itself.

    It leads a session of its own: Ctrl-C reaches only the demo, which stops its processes in order.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        log: Path,
        directory: Path,
        environment: Mapping[str, str] | None = None,
        grace_seconds: float = 10.0,
    ) -> None:
        self.log = log
        # Where util-linux is installed, a demo that is killed takes its processes with it.
        setpriv = shutil.which("setpriv")
        tied = [setpriv, "--pdeathsig", "TERM", "--"] if setpriv else []
        self._command = [*tied, *map(str, command)]
        self._directory = directory
        self._environment = environment
        self._grace_seconds = grace_seconds
        self._process: Process | None = None

    async def __aenter__(self) -> Self:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        with os.fdopen(os.open(self.log, flags, PRIVATE), "ab") as log:
            self._process = await anyio.open_process(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._directory,
                env=self._environment,
                start_new_session=True,
            )
        return self

    async def __aexit__(self, *_: object) -> None:
        with anyio.CancelScope(shield=True):  # bounded: see stop
            await self.stop()

    @property
    def exit_code(self) -> int | None:
        """The exit code; ``None`` while the process runs."""
        return None if self._process is None else self._process.returncode

    async def wait(self) -> int:
        """Waits until the process has ended by itself, and returns its exit code."""
        assert self._process is not None, "wait() inside the block"  # noqa: S101
        return await self._process.wait()

    async def stop(self) -> int | None:
        """SIGTERM, and SIGKILL after the grace; returns the exit code."""
        process = self._process
        if process is None:
            return None
        with suppress(ProcessLookupError):
            process.terminate()
        with anyio.move_on_after(self._grace_seconds):
            return await process.wait()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its children too: Spark's Java
        with anyio.move_on_after(KILL_SECONDS):
            await process.wait()
        return process.returncode

    def last_lines(self, count: int = 15) -> str:
        """The end of what it printed, for an error message."""
        text = self.log.read_text("utf-8", "replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-count:])
