"""A process that the demo starts, watches and always ends.

What it prints goes straight into a file, so nobody has to keep reading a pipe, and the file is
there to look at when something went wrong. It stands below the embedded server and the service
process, which know what their programs say and mean.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import anyio
from anyio.abc import Process

import tailrace
from tailrace.file_mode import PRIVATE

CHECKOUT = Path(tailrace.__file__).parents[2]
"""The checkout, where the package is not installed from a wheel."""

KILL_SECONDS = 5.0
"""How long to wait for a killed process: longer means that the kernel cannot end it."""


def own_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment for one of our own commands in another directory: it must find us."""
    found = dict(environment)
    if (CHECKOUT / "pyproject.toml").exists():
        paths = [str(CHECKOUT / "service"), found.get("PYTHONPATH", "")]
        found["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return found


class ChildProcess:
    """One process, from entering the block to leaving it; it may end earlier by itself.

    It leads a session of its own: Ctrl-C reaches the demo alone, which then ends its processes in
    order, instead of all of them at once.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        log: Path,
        directory: Path,
        environment: Mapping[str, str] | None = None,
        grace_seconds: float = 10.0,
    ) -> None:
        self.name = name
        self.log = log
        self._command = [*_tied_to_us(), *map(str, command)]
        self._directory = directory
        self._environment = environment
        self._grace_seconds = grace_seconds
        self._process: Process | None = None

    def __repr__(self) -> str:
        process = self._process
        if process is None:
            return f"<{self.name}: not started>"
        return f"<{self.name}: pid {process.pid}, exit code {process.returncode}>"

    async def __aenter__(self) -> Self:
        with _appending(self.log) as log:
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

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with anyio.CancelScope(shield=True):  # bounded: see stop
            await self.stop()

    @property
    def exit_code(self) -> int | None:
        """What it ended with; ``None`` while it runs or before it was started."""
        return None if self._process is None else self._process.returncode

    async def wait(self) -> int:
        """Until it has ended by itself; says what it ended with."""
        assert self._process is not None, "wait() inside the block"  # noqa: S101
        return await self._process.wait()

    async def stop(self) -> int | None:
        """SIGTERM, then after the grace SIGKILL; says what it ended with. Twice is no error."""
        process = self._process
        if process is None:
            return None
        with suppress(ProcessLookupError):
            process.terminate()
        with anyio.move_on_after(self._grace_seconds):
            return await process.wait()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # what it has started as well: Spark's Java
        with anyio.move_on_after(KILL_SECONDS):
            await process.wait()
        return process.returncode

    def last_lines(self, count: int = 15) -> str:
        """The end of what it printed, for an error message."""
        try:
            text = self.log.read_text("utf-8", "replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-count:])


def _tied_to_us() -> list[str]:
    """Where util-linux is there, a demo that is killed outright takes its processes with it."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "TERM", "--"] if setpriv else []


def _appending(path: Path) -> BinaryIO:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, PRIVATE), "ab")
