"""What else happens to the service between two kills.

Each fault is a context manager: entering it is the fault, noticed by the service by the time the
block begins; leaving it is the repair. The service may be killed within the block or behind it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pymongo
from pymongo.errors import AutoReconnect

from tests.daemon import until
from tests.embedded import Embedded
from tests.faults.chaos.disk import fill
from tests.faults.chaos.service import Service, truncate_log
from tests.faults.load import until_noticed
from tests.faults.proxy import Proxy

RESUMABLE = ["ResumableChangeStreamError"]
_FOREIGN = 8000  # a code that no driver resumes after


@dataclass(frozen=True, slots=True)
class Ground:
    """Where a fault happens. ``disk`` is that of the store, where there is one of its own."""

    server: Embedded
    proxy: Proxy
    service: Service
    store: Path
    database: str
    disk: bool
    draw: random.Random

    def fail(self, command: str, **data: object) -> None:
        """Makes the service's next such commands fail (or the next few: ``times``)."""
        self.server.fail(command, appName="tailrace", **data)  # type: ignore[arg-type]


Fault: TypeAlias = Callable[[Ground], AbstractContextManager[None]]


@contextmanager
def nothing(_ground: Ground) -> Iterator[None]:
    """The kill alone."""
    yield


@contextmanager
def connections_cut(ground: Ground) -> Iterator[None]:
    """Every connection is reset, that of the read among them."""
    until_noticed(ground.proxy.cut, lambda: ground.service.recoveries)
    yield


@contextmanager
def network_gone(ground: Ground) -> Iterator[None]:
    """Every connection is reset, and no new one is taken."""
    before = ground.service.recoveries
    ground.proxy.refuse()
    try:
        until(lambda: not ground.service.ready, "that the service notices")
        yield
    finally:
        ground.proxy.heal()
    if not ground.service.ended:
        until(lambda: ground.service.recoveries > before, "that the service goes on")


@contextmanager
def cursor_killed(ground: Ground) -> Iterator[None]:
    """An operator's killCursors; or the server's own error for a cursor that it forgot."""
    if ground.draw.random() < 0.5:
        with ground.server.client() as client:
            # Before the first getMore of a life, the number that we know is the last one's.
            until_noticed(
                lambda: client[ground.database].command(
                    {"killCursors": "counters", "cursors": [ground.proxy.cursor]}
                ),
                lambda: ground.service.recoveries,
            )
    else:
        with _noticed(ground):
            ground.fail("getMore", errorCode=43)
    yield


@contextmanager
def primary_stepped_down(ground: Ground) -> Iterator[None]:
    """Reads fail as they do in an election, and there is no primary for a second."""
    with _noticed(ground):
        _step_down(ground.server)
        code = ground.draw.choice((10107, 91, 11602))
        ground.fail("getMore", errorCode=code, errorLabels=RESUMABLE)
    yield


@contextmanager
def stream_failed(ground: Ground) -> Iterator[None]:
    """A read fails in a way that no stream resumes after, and so do the next two beginnings."""
    with _noticed(ground):
        ground.fail("getMore", failCommands=["getMore", "aggregate"], times=3, errorCode=_FOREIGN)
    yield


@contextmanager
def disk_full(ground: Ground) -> Iterator[None]:
    """The checkpoint store's disk is full: no position can be saved."""
    before = ground.service.failed_saves
    truncate_log(ground.store)
    ballast = fill(ground.store)
    try:
        until(lambda: ground.service.failed_saves > before, "a save that fails")
        yield
    finally:
        ballast.unlink()


@contextmanager
def started_on_a_full_disk(ground: Ground) -> Iterator[None]:
    """Killed while the disk is full, and started before it is freed."""
    with disk_full(ground):
        ground.service.kill()
        ground.service.start_anyway()
        yield


@contextmanager
def clean_stop(ground: Ground) -> Iterator[None]:
    """SIGTERM in place of SIGKILL: nothing may come again behind it."""
    assert ground.service.stop() == 0
    yield


FAULTS: dict[str, Fault] = {
    "the kill alone": nothing,
    "connections cut": connections_cut,
    "network gone": network_gone,
    "cursor killed": cursor_killed,
    "primary stepped down": primary_stepped_down,
    "stream failed": stream_failed,
    "disk full": disk_full,
    "started on a full disk": started_on_a_full_disk,
    "clean stop": clean_stop,
}
NEED_A_DISK = ("disk full", "started on a full disk")


@contextmanager
def _noticed(ground: Ground) -> Iterator[None]:
    before = ground.service.recoveries
    yield
    until(lambda: ground.service.recoveries > before, "that the service notices")


def _step_down(server: Embedded) -> None:
    with server.client() as client:
        try:
            client.admin.command({"replSetStepDown": 1, "force": True})
        except AutoReconnect:
            pass  # it may close the connection in place of an answer
        except pymongo.errors.OperationFailure as error:
            if error.code != 10107:  # stepped down already
                raise
