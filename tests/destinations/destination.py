"""What the contract suite of the destinations knows about each of them."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
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
    below ``handlers.NAME``. ``refused``: a document that it refuses, if there is any.
    """

    name: str
    once: bool
    handler: Mapping[str, Any]
    refused: Mapping[str, Any] | None

    def start(self) -> None:
        """Starts the server, unless it runs."""

    def stop(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Ends the server at once; what it has confirmed stays."""

    def sent(self) -> Sequence[Sent] | None:
        """Every message in order of arrival; ``None`` if it keeps only the last state."""

    def documents(self, database: str, collection: str) -> Mapping[str, Mapping[str, Any]]:
        """The documents that it has now, or that its messages amount to, by canonical key."""
