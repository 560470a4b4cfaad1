"""The embedded server as a process of its own: what integration tests talk to."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pymongo

from tests.daemon import until

_LISTENING = re.compile(r"secantus listening on ([\d.]+):(\d+)")


class Embedded:
    """A SecantusDB process on a directory; :meth:`restart` keeps the data and the port."""

    def __init__(self, directory: Path, *flags: str) -> None:
        self._directory = directory
        self._flags = flags
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0
        self.start()

    @property
    def uri(self) -> str:
        return f"mongodb://127.0.0.1:{self.port}/?replicaSet=secantus"

    def client(self, **options: Any) -> pymongo.MongoClient[dict[str, Any]]:
        return pymongo.MongoClient(self.uri, **options)

    def start(self) -> None:
        program = Path(sys.executable).with_name("secantusd-py")
        log = self._directory.with_name(self._directory.name + ".log")
        with open(log, "wb") as output:
            self._process = subprocess.Popen(
                [
                    str(program if program.exists() else shutil.which("secantusd-py")),
                    *("--host", "127.0.0.1", "--port", str(self.port)),
                    *("--storage-path", str(self._directory)),
                    *("--sync-on-commit", "--oplog-max-entries", "5000000"),
                    *("--noop-heartbeat-seconds", "1", "--enable-test-commands"),
                    *self._flags,
                ],
                stderr=output,
                stdout=subprocess.DEVNULL,
            )
        match = until(lambda: _LISTENING.search(log.read_text()), "the embedded server's start")
        self.port = int(match[2])

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        assert self._process is not None
        self._process.send_signal(how)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)

    def fail(self, command: str, times: int | str = 1, **data: Any) -> None:
        """Arms failCommand, or disarms it with ``times="off"``."""
        mode: Any = "off" if times == "off" else {"times": times}
        with self.client() as client:
            client.admin.command(
                {
                    "configureFailPoint": "failCommand",
                    "mode": mode,
                    "data": {"failCommands": [command], **data},
                }
            )
