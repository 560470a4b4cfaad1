"""Faults of the service and its servers, which happen before it is killed or stopped.

Each fault is a context manager. It enters its block once the service has noticed the fault, and
leaving the block repairs the fault. The service may be ended inside the block or after it.
"""

import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypeVar

from tests.daemon import until
from tests.faults.chaos.checkpoints import truncate_log
from tests.faults.chaos.service import PATIENCE_SECONDS, Service
from tests.faults.disk import fill
from tests.faults.network import Network, Read
from tests.load import until_noticed
from tests.mongod import ReplicaSet

_FOREIGN = 8000  # a code after which no driver resumes
MISSED_SECONDS = 45.0
"""After this time without a recovery, a fault has not met the stream."""


@dataclass(frozen=True, slots=True)
class Ground:
    """Where a fault happens. If ``disks``, ``store`` and ``file`` are small disks."""

    server: ReplicaSet
    network: Network
    service: Service
    store: Path
    file: Path
    database: str
    disks: bool
    draw: random.Random

    @property
    def read(self) -> Read:
        """The last read of the service: its member and cursor."""
        return until(lambda: self.network.read, "a read")  # type: ignore[no-any-return]

    def fail(self, *commands: str, times: int = 1, **data: object) -> None:
        """Makes the service's next such commands fail, on the member from which it reads."""
        more = {"failCommands": list(commands), "appName": "tailrace", **data}
        self.server.fail_point("failCommand", times, member=self.read.member, **more)


T = TypeVar("T")
Fault: TypeAlias = Callable[[Ground], AbstractContextManager[None]]


@contextmanager
def nothing(_ground: Ground) -> Iterator[None]:
    """No fault: only the end."""
    yield


def noticed(act: Callable[[Ground], T], mend: Callable[[Ground, T], object]) -> Fault:
    """A fault from which the service recovers before the repair."""

    @contextmanager
    def fault(ground: Ground) -> Iterator[None]:
        before = ground.service.recoveries
        done = act(ground)
        _until_goes_on(ground, before)
        try:
            yield
        finally:
            mend(ground, done)

    return fault


# --- between the service and its servers -------------------------------------------------


@contextmanager
def connections_cut(ground: Ground) -> Iterator[None]:
    """Resets every connection, including that of the read."""
    until_noticed(ground.network.cut, lambda: ground.service.recoveries)
    yield


@contextmanager
def network_gone(ground: Ground) -> Iterator[None]:
    """Resets every connection, and accepts no new one."""
    before = ground.service.recoveries
    ground.network.refuse()
    try:
        until(lambda: not ground.service.ready, "that it notices", seconds=PATIENCE_SECONDS)
        yield
    finally:
        ground.network.heal()
    _until_goes_on(ground, before)


# --- the servers -------------------------------------------------------------------------


@contextmanager
def cursor_killed(ground: Ground) -> Iterator[None]:
    """An operator's killCursors, or the server's own error for a cursor that it forgot."""
    if ground.draw.random() < 0.5:

        def kill() -> None:
            # Before a process's first getMore, the known cursor is that of the previous process.
            _, member, cursor = ground.read
            with ground.server.direct(member) as client:
                client[ground.database].command({"killCursors": "counters", "cursors": [cursor]})

        until_noticed(kill, lambda: ground.service.recoveries)
    else:
        _fail_until_noticed(ground, "getMore", code=43)
    yield


@contextmanager
def read_failed(ground: Ground) -> Iterator[None]:
    """A read fails with an error after which no stream resumes; so do the next two starts."""
    _fail_until_noticed(ground, "getMore", "aggregate", times=3, code=_FOREIGN)
    yield


@contextmanager
def primary_stepped_down(ground: Ground) -> Iterator[None]:
    """Another member is elected; the connections stay open."""
    ground.server.step_down()
    if ground.draw.random() < 0.5:
        ground.service.until_more(1)
    yield


@contextmanager
def primary_killed(ground: Ground) -> Iterator[None]:
    """Kills the primary; another member is elected before it is back."""
    member = ground.server.primary()
    ground.server.stop_member(member, signal.SIGKILL)
    try:
        ground.server.primary()
        ground.service.until_more(1)
        yield
    finally:
        ground.server.start_member(member)


@contextmanager
def majority_killed(ground: Ground) -> Iterator[None]:
    """Kills the member that is read from and another one: no primary until they are back."""
    first = ground.read.member
    second = ground.draw.choice([n for n in range(len(ground.server.ports)) if n != first])
    before = ground.service.recoveries
    for member in (first, second):
        ground.server.stop_member(member, signal.SIGKILL)
    try:
        yield
    finally:
        for member in (first, second):
            ground.server.start_member(member)
        ground.server.primary()
    _until_goes_on(ground, before)


# --- disks -------------------------------------------------------------------------------


@contextmanager
def store_full(ground: Ground) -> Iterator[None]:
    """The checkpoint store's disk is full: no position can be saved."""
    truncate_log(ground.service.store)
    with _full(ground.store, lambda: ground.service.said.count("disk is full")):
        yield


@contextmanager
def file_full(ground: Ground) -> Iterator[None]:
    """The disk of a handler's file is full: none of its events can be handled."""
    with _full(ground.file, lambda: ground.service.said.count("No space left on device")):
        yield


FAULTS: dict[str, Fault] = {
    "the end alone": nothing,
    "connections cut": connections_cut,
    # Half-open: nothing passes and none is closed, but new connections are served.
    "connections silent": noticed(
        lambda ground: ground.network.hold("present"), lambda ground, _: ground.network.heal()
    ),
    "network gone": network_gone,
    "cursor killed": cursor_killed,
    "read failed": read_failed,
    "primary stepped down": primary_stepped_down,
    # The member that is read from; it is restarted later.
    "member killed": noticed(
        lambda ground: _signal(ground, signal.SIGKILL),
        lambda ground, member: ground.server.start_member(member),
    ),
    "primary killed": primary_killed,
    "majority killed": majority_killed,
    # It answers nothing, but its connections stay open.
    "member frozen": noticed(
        lambda ground: _signal(ground, signal.SIGSTOP),
        lambda ground, member: ground.server.signal_member(member, signal.SIGCONT),
    ),
    "store's disk full": store_full,
    "file's disk full": file_full,
}
KEEPS_FROM_SAVING = "store's disk full"
NEED_A_DISK = (KEEPS_FROM_SAVING, "file's disk full")


def _fail_until_noticed(ground: Ground, *commands: str, times: int = 1, code: int) -> None:
    """Repeats the fault if the stream has moved to another member meanwhile."""
    until_noticed(
        lambda: ground.fail(*commands, times=times, errorCode=code),
        lambda: ground.service.recoveries,
    )


def _signal(ground: Ground, number: signal.Signals) -> int:
    """Kills or suspends the member that is read from; returns its number."""
    member = ground.read.member
    if number is signal.SIGKILL:
        ground.server.stop_member(member, number)
    else:
        ground.server.signal_member(member, number)
    return member


def _until_goes_on(ground: Ground, before: int) -> None:
    """Waits until the service has recovered once more, or has ended.

    A fault may also miss the stream, as when only a snapshot reads there: then it reads on.
    """
    service = ground.service
    end = time.monotonic() + MISSED_SECONDS
    while not service.ended and service.recoveries == before and time.monotonic() < end:
        time.sleep(0.1)
    if not service.ended and service.recoveries == before:
        service.until_more(1)


@contextmanager
def _full(disk: Path, failures: Callable[[], int]) -> Iterator[None]:
    before = failures()
    ballast = fill(disk)
    try:
        until(lambda: failures() > before, "that it fails", seconds=PATIENCE_SECONDS)
        yield
    finally:
        ballast.unlink()
