"""A writer in a thread, and the check that the service handled each of its changes once."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Self

from pymongo import WriteConcern
from pymongo.errors import AutoReconnect, OperationFailure

from tests.daemon import Daemon, until
from tests.mongod import ReplicaSet


class Load:
    """Writes numbered changes while its block runs; ``write`` is called with the next few numbers.

    The numbers below ``written`` have been written, each exactly once.
    """

    def __init__(self, write: Callable[[list[int]], Any], every_seconds: float = 0.01) -> None:
        self._write = write
        self._every_seconds = every_seconds
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._error: BaseException | None = None
        self.written = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        self._over.set()
        self._thread.join(20)
        if error is None and self._error is not None:
            raise self._error

    def more(self, count: int = 10) -> None:
        """Waits until ``count`` more changes are written."""
        wanted = self.written + count
        until(lambda: self.written >= wanted or self._error, f"{count} more changes")

    def _run(self) -> None:
        try:
            while not self._over.wait(self._every_seconds):
                numbers = list(range(self.written, self.written + 3))
                self._write(numbers)
                self.written += 3
        except BaseException as error:  # noqa: BLE001 - raised where the block ends
            self._error = error


@contextlib.contextmanager
def real_load(server: ReplicaSet, database: str, every_seconds: float = 0.01) -> Iterator[Load]:
    """Inserts into ``orders`` of a database, each document exactly once, even if the primary dies.

    An upsert that is repeated waits for the majority, as the first attempt did.
    """
    with server.client(heartbeatFrequencyMS=500) as client:
        majority = WriteConcern("majority")
        orders = client[database].get_collection("orders", write_concern=majority)

        def write(numbers: list[int]) -> None:
            for number in numbers:
                until(lambda n=number: written(n), f"change {number}")  # type: ignore[misc]

        def written(number: int) -> bool:
            update = {"$setOnInsert": {"number": number}}
            with contextlib.suppress(AutoReconnect, OperationFailure):
                orders.update_one({"_id": number}, update, upsert=True)
                return True
            return False

        with Load(write, every_seconds) as load:
            yield load


def until_resumed(run: Daemon, count: int) -> None:
    """Waits until the stream has resumed ``count`` times."""
    until(lambda: run.status()["resumes"] >= count, f"resume {count}")


def until_noticed(act: Callable[[], object], count: Callable[[], int]) -> None:
    """Repeats ``act`` every second until ``count`` has grown.

    One cut of all connections may go unnoticed: if none is in use, the driver's pool repairs
    itself.
    """
    before = count()

    def noticed() -> bool:
        act()
        again = time.monotonic() + 1
        while count() == before and time.monotonic() < again:
            time.sleep(0.02)
        return count() > before

    until(noticed, "that the service notices")


def assert_whole(run: Daemon, count: int) -> None:
    """Waits for the last change; each came once and in order, and the service exits with 0."""
    until(lambda: run.ids()[-1:] == [count - 1], f"change {count - 1} of {run.directory.name}")
    assert run.stop() == 0, run.log
    assert run.ids() == list(range(count))
    assert "Traceback" not in run.log
