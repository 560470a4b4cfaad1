"""What the contract suite of the destinations knows about each of them.

Each module ``tests/destinations/NAME.py`` has a function ``serve() -> Served``. The fixture
``served`` enters it once per process and gives what it yields: ``served("postgresql")(name)`` is a
destination for one test. The tests of what is special about it (``test_NAME.py``) do the same, and
run in the same process, so that each server is started once.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Sent:
    """One message that a destination got, in its order.

    ``key`` is the document key as canonical Extended JSON, ``None`` for an event that is not about
    a document. ``operation`` is the operation type (``delete`` for a tombstone), ``document`` the
    document after the change, as plain data.
    """

    key: str | None
    operation: str
    document: Mapping[str, Any] | None = None


class Destination(Protocol):
    """One type of destination with its real server, for one test: nothing is in it at first.

    ``once``: it promises each change once, not only at least once. ``handler``: its configuration
    below ``handlers.NAME``. ``refused``: a document that it refuses, if there is any; the suite
    gives it an ``_id``.
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


class Guarded(Destination, Protocol):
    """A destination whose handler has credentials, in a file."""

    def expire(self) -> None:
        """From now on the server refuses these credentials, also on open connections."""

    def renew(self) -> None:
        """Writes others to the file, which the server accepts."""


class Make(Protocol):
    def __call__(self, name: str, *, log: bool = False) -> Destination:
        """A destination for one test, on the server that runs.

        ``name``: of letters and digits, of this test only, for what it makes on the server.
        ``log``: in the form that keeps each message (``sent`` is not ``None``), if there are two:
        a log instead of a table, an outbox instead of a mirror, a stream instead of keys.
        """


Served = AbstractContextManager[Make]
"""Runs the server of a type while its block lasts."""
