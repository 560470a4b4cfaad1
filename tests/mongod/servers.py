"""The mongod processes: start, stop, kill and restart them, and connect to each of them."""

import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pymongo
from pymongo.errors import PyMongoError

from tailrace.demo.server import options
from tests.daemon import until
from tests.machine import free_port

from .program import program

START_SECONDS = 60.0

_TEST_PARAMETERS = {
    "enableTestCommands": "1",
    # The position of an idle stream advances with each no-op of the primary.
    "periodicNoopIntervalSecs": "1",
    "transactionLifetimeLimitSeconds": "300",
    # Expired pre- and post-images are removed soon; the default interval is ten seconds.
    "expiredChangeStreamPreImageRemovalJobSleepSecs": "1",
    # Otherwise a primary that is told to stop keeps its clients for 15 s.
    "shutdownTimeoutMillisForSignaledShutdown": "100",
}

Client = pymongo.MongoClient[dict[str, Any]]


class Servers:
    """mongod processes below a directory, each with a port, data and a log of its own.

    ``flags`` override and extend the default flags. ``query`` holds the URI options that clients
    need, for example for TLS.
    """

    def __init__(
        self,
        directory: Path,
        count: int,
        *,
        flags: Mapping[str, str | None] | None = None,
        query: str = "",
    ) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.ports = [free_port() for _ in range(count)]
        self.flags = dict(flags or {})
        """Those of the next start, with their values if they have one."""
        self._query = query
        self._credentials: dict[str, str] = {}
        self._processes: list[subprocess.Popen[bytes] | None] = [None] * count

    @property
    def hosts(self) -> list[str]:
        """The address of each member."""
        return [f"127.0.0.1:{port}" for port in self.ports]

    @property
    def running(self) -> list[int]:
        """The numbers of the members that are not stopped."""
        return [number for number, process in enumerate(self._processes) if process]

    def direct(self, member: int, **more: Any) -> Client:
        """A direct client of one member, whatever its state."""
        return self.stranger(member, **{**self._credentials, **more})

    def stranger(self, member: int, **more: Any) -> Client:
        """A direct client of one member, without credentials."""
        uri = f"mongodb://{self.hosts[member]}/?directConnection=true{self._query}"
        return pymongo.MongoClient(uri, **{"serverSelectionTimeoutMS": 2000, **more})

    def log(self, member: int = 0) -> Path:
        """What the member printed."""
        return self.directory / f"member{member}.log"

    # --- start and stop ------------------------------------------------------------------------

    def start(self) -> None:
        """Starts every member that does not run, and continues suspended ones."""
        for member in self.running:
            self.signal_member(member, signal.SIGCONT)
        self._start(set(range(len(self.ports))) - set(self.running))

    def start_member(self, member: int) -> None:
        """Starts one member, and waits until it answers."""
        self._start([member])

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Stops every member."""
        for member in self.running:
            self.signal_member(member, signal.SIGCONT)
            self.signal_member(member, how)
        for member in self.running:
            self._wait(member)

    def stop_member(self, member: int, how: signal.Signals = signal.SIGTERM) -> None:
        """Kills one member with SIGKILL."""
        self.signal_member(member, how)
        self._wait(member)

    def signal_member(self, member: int, number: signal.Signals) -> None:
        """Sends SIGSTOP, SIGCONT or another signal, and does not wait."""
        process = self._processes[member]
        assert process is not None, f"member {member} does not run"
        process.send_signal(number)

    def _start(self, members: Iterable[int]) -> None:
        for member in members:
            storage = self.directory / f"member{member}"
            storage.mkdir(parents=True, exist_ok=True)
            flags = self._flags(options(storage, self.ports[member]))
            with open(self.log(member), "ab") as output:
                self._processes[member] = subprocess.Popen(
                    [str(program()), *flags],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                )
        for member in members:
            until(lambda m=member: self._answers(m), f"an answer of member {member}", START_SECONDS)

    def _flags(self, defaults: Sequence[str]) -> list[str]:
        flags = list(defaults)
        for name, value in _TEST_PARAMETERS.items():
            flags += ("--setParameter", f"{name}={value}")
        for name, value in self.flags.items():
            if name in flags:
                at = flags.index(name)
                del flags[at : at + 2]
            flags += (name,) if value is None else (name, value)
        return flags

    def _wait(self, member: int) -> None:
        process, self._processes[member] = self._processes[member], None
        assert process is not None
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(20)

    def _answers(self, member: int) -> bool:
        process = self._processes[member]
        assert process is not None
        code = process.poll()
        assert code is None, f"member {member} ended with {code}:\n{self.log(member).read_text()}"
        try:
            with self.stranger(member, serverSelectionTimeoutMS=200) as client:
                client.admin.command("ping")
        except PyMongoError:
            return False
        return True


class Standalone(Servers):
    """A server outside any replica set: it has no oplog, and so no change streams."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, 1)
        self.start()

    @property
    def uri(self) -> str:
        return f"mongodb://{self.hosts[0]}/"

    def _flags(self, defaults: Sequence[str]) -> list[str]:
        flags = super()._flags(defaults)
        at = flags.index("--replSet")
        return flags[:at] + flags[at + 2 :]
