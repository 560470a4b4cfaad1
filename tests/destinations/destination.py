"""What the contract suite of the destinations knows about each of them.

Each module ``tests/destinations/NAME.py`` has a function ``serve() -> Served``. The fixture
``served`` enters it once per process and gives what it yields: ``served("postgresql")(name)`` is a
destination for one test. The tests of what is special about it (``test_NAME.py``) do the same, and
run in the same process, so that each server is started once.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

NAMES = ("postgresql", "mongodb", "redis", "nats", "http", "kafka", "kafka_once")
"""Modules beside this one. Kafka, whose server takes longest, comes last."""


@dataclass(frozen=True, slots=True)
class Sent:
    """One message that a destination got, in its order.

    ``key`` is the document key as canonical Extended JSON, ``None`` for an event that is not about
    a document. ``operation`` is the operation type (``delete`` for a tombstone), ``document`` the
    document after the change, as plain data. ``id`` is that of the event.
    """

    key: str | None
    operation: str
    document: Mapping[str, Any] | None = None
    id: Any = None


def last_states(sent: Iterable[Sent]) -> dict[str, Mapping[str, Any]]:
    """The documents of a collection by key, to which its messages amount."""
    found: dict[str, Mapping[str, Any]] = {}
    for each in sent:
        if each.operation == "drop":
            found.clear()
        elif each.key is not None and each.document is not None:
            found[each.key] = each.document
        elif each.key is not None and each.operation == "delete":
            found.pop(each.key, None)
    return found


class Destination(Protocol):
    """One type of destination with its real server, for one test: nothing is in it at first.

    ``once``: it promises each change once, not only at least once. ``handler``: its configuration
    below ``handlers.NAME``. ``refused``: a document that it refuses, if there is any; the suite
    gives it an ``_id``. Where a file has the credentials, ``expire()`` makes the server refuse
    them, also on open connections, and ``renew()`` writes others to the file.
    """

    name: str
    once: bool
    handler: Mapping[str, Any]
    refused: Mapping[str, Any] | None

    def start(self) -> None:
        """Starts the server, unless it runs; lets a paused one go on. The address stays."""

    def stop(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Ends the server at once, unless it is stopped; what it has confirmed stays."""

    def pause(self) -> None:
        """Stops every process of the server with SIGSTOP: it accepts connections, and is silent."""

    def sent(self) -> Sequence[Sent] | None:
        """Every message in order of arrival; ``None`` if it keeps only the last state."""

    def documents(self, database: str, collection: str) -> Mapping[str, Mapping[str, Any]]:
        """The documents that it has now, or that its messages amount to, by canonical key."""


class Make(Protocol):
    def __call__(self, name: str, *, log: bool = False) -> Destination:
        """A destination for one test, on the server that runs.

        ``name``: of letters and digits, of this test only, for what it makes on the server.
        ``log``: in the form that keeps each message (``sent`` is not ``None``), if there are two:
        a log instead of a table, an outbox instead of a mirror, a stream instead of keys.
        """


Served = AbstractContextManager[Make]
"""Runs the server of a type while its block lasts."""
