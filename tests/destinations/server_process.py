"""A server of a destination: one process, whose address and content stay over kills."""

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.checkout import IMPORTS
from tests.daemon import until
from tests.machine import free_port, suspend


class ServerProcess:
    """Each type of server says how it is started, and when it answers.

    Its files are in ``directory``, which is its working directory, and its output in ``log`` there.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> Sequence[str | Path]:
        raise NotImplementedError

    def answers(self) -> bool:
        raise NotImplementedError

    def start(self) -> None:
        """Starts it, unless it runs; lets a paused one go on."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            return
        environ = {**os.environ, "PYTHONPATH": IMPORTS}
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self.command(), cwd=self.directory, env=environ, stdout=log, stderr=log
            )
        until(self._answers, f"its start, see {self.directory}/log", seconds=120)

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.directory / "log").read_text()[-4000:]
        return self.answers()

    def stop(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Ends it at once. What it has confirmed is in files, and stays."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.send_signal(signal.SIGCONT)
            self._process.wait()
            self._process = None

    def reload(self) -> None:
        """Lets it read its configuration again, if it runs."""
        if self._process is not None:
            self._process.send_signal(signal.SIGHUP)

    def pause(self) -> None:
        """It goes on to accept connections, and says nothing."""
        assert self._process is not None
        suspend(self._process.pid)
