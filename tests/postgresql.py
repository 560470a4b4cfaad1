"""A PostgreSQL server of a test's own, which can be stopped and started again."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg

from tailrace.demo.destinations.postgresql import programs
from tests.machine import free_port


class PostgreSQL:
    """Its data is in a directory of its own, which the server's user may enter."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._data = directory / "data"
        self._log = directory / "log"
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._programs, self._user = programs(directory)
        self._run("initdb", "--pgdata", str(self._data), "--username=postgres", "--auth=trust")
        self.start()

    @property
    def dsn(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self._port}/postgres?connect_timeout=2"

    def own(self, directory: Path) -> None:
        """Lets only the server's user enter the directory."""
        directory.chmod(0o700)
        if self._user is not None:
            shutil.chown(directory, self._user)

    def start(self) -> None:
        """Starts the server, unless it runs; lets a paused one go on."""
        if self._process is not None:
            self._signal_each(signal.SIGCONT)
            return
        self._process = self._started()
        end = time.monotonic() + 60
        while True:
            try:
                with psycopg.connect(self.dsn):
                    return
            except psycopg.OperationalError:
                assert time.monotonic() < end, self._log.read_text()
            if self._process.poll() is not None:  # a killed one still has the memory that it shared
                self._process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        options = ("-h", "127.0.0.1", "-k", "", "-p", str(self._port), "-c", "fsync=off")
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [self._program("postgres"), "-D", str(self._data), *options],
                user=self._user,
                stdout=log,
                stderr=log,
            )

    def stop(self, number: signal.Signals = signal.SIGQUIT) -> None:
        """Ends it at once, with every connection, and without losing what is committed.

        SIGKILL ends each of its processes.
        """
        if self._process is None:
            return
        if number is signal.SIGKILL:
            self._signal_each(number)
        else:
            self._signal_each(signal.SIGCONT)
            self._process.send_signal(number)
        self._process.wait()
        self._process = None

    def pause(self) -> None:
        """Stops each of its processes: it accepts connections, and is silent."""
        self._signal_each(signal.SIGSTOP)

    def _signal_each(self, number: signal.Signals) -> None:
        assert self._process is not None
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        if number is not signal.SIGCONT:
            os.kill(self._process.pid, signal.SIGSTOP)  # it starts no other process meanwhile
        for pid in [*map(int, children.read_text().split()), self._process.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [self._program(program), *arguments], user=self._user, check=True, capture_output=True
        )

    def _program(self, name: str) -> str:
        return str(self._programs / name)


@contextmanager
def postgresql() -> Iterator[PostgreSQL]:
    directory = Path(tempfile.mkdtemp(prefix="tailrace-postgresql-"))
    try:
        server = PostgreSQL(directory)
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(directory)
