"""The embedded server: SecantusDB as a process of its own, on a port of loopback.

It speaks MongoDB's protocol and its change streams, which is all that the demo and our
integration tests need. It is GPL-2.0: started, spoken to over a socket, never imported.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio

from service.demo.child_process import ChildProcess
from service.errors import ConfigurationError, Problem, StartRefused

REPLICA_SET = "secantus"
"""The only name that the server answers to."""

START_SECONDS = 30.0
"""It is ready in half a second; a machine under load may take many times that."""

_PROGRAM = "secantusd-py"
_LISTENING = re.compile(rb"secantus listening on ([\w.:\[\]-]+):(\d+)")


def find_program() -> Path:
    """The server's program: the one beside this Python, else one on the path."""
    beside = str(Path(sys.executable).parent)
    found = shutil.which(_PROGRAM, path=beside) or shutil.which(_PROGRAM)
    if found is None:
        message = f"the demo needs the extra: pip install 'tailrace[demo]' ({_PROGRAM} not found)"
        raise ConfigurationError(Problem("", message))
    return Path(found)


class EmbeddedServer:
    """A server that lives as long as the block; ``uri`` connects to it.

    ``storage`` keeps its data: the same directory again is the same server after a restart. A
    write that was acknowledged is on disk. ``options`` are more flags of the program, such as
    ``--enable-test-commands`` or ``--auth``.
    """

    def __init__(
        self, storage: Path, *, options: Sequence[str] = (), port: int = 0, log: Path | None = None
    ) -> None:
        self.storage = storage
        self.uri = ""
        self._log = log or storage.with_name(f"{storage.name}.log")
        self._options = [
            *("--host", "127.0.0.1"),
            *("--port", str(port)),
            *("--storage-path", str(storage)),
            "--sync-on-commit",
            # A reader that falls behind a pruned oplog would lose events without an error.
            *("--oplog-max-entries", "5000000"),
            # Without it, the position of an idle stream cannot be resumed after DDL.
            *("--noop-heartbeat-seconds", "1"),
            *options,
        ]
        self._process: ChildProcess | None = None

    def __repr__(self) -> str:
        return f"<EmbeddedServer {self.uri or 'not started'}: {self._process!r}>"

    @property
    def exit_code(self) -> int | None:
        """What it ended with; ``None`` while it runs."""
        return None if self._process is None else self._process.exit_code

    async def __aenter__(self) -> Self:
        program = find_program()
        self.storage.mkdir(parents=True, exist_ok=True)
        printed = self._log.stat().st_size if self._log.exists() else 0
        # Its directory is its own: the program would read a configuration file from here.
        process = ChildProcess(
            "embedded server", [program, *self._options], log=self._log, directory=self.storage
        )
        await process.__aenter__()
        try:
            with anyio.move_on_after(START_SECONDS):
                self.uri = await self._listening(process, printed)
        except BaseException:
            await process.__aexit__(None, None, None)
            raise
        if not self.uri:
            await process.__aexit__(None, None, None)
            raise StartRefused(
                f"the embedded server did not start within {START_SECONDS:.0f} s; it printed:\n"
                f"{process.last_lines()}"
            )
        self._process = process
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None:
            await self._process.__aexit__(kind, error, trace)

    async def _listening(self, process: ChildProcess, printed: int) -> str:
        """Waits for the line that names the port; ``printed`` bytes are of an earlier run."""
        while True:
            match = _LISTENING.search(self._log.read_bytes(), printed)
            if match:
                host, port = match[1].decode(), match[2].decode()
                return f"mongodb://{host}:{port}/?replicaSet={REPLICA_SET}"
            if process.exit_code is not None:
                raise StartRefused(
                    f"the embedded server ended with code {process.exit_code}; it printed:\n"
                    f"{process.last_lines()}"
                )
            await anyio.sleep(0.05)
