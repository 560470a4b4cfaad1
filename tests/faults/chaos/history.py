"""What was written, and what each handler received in which process: the input of an account.

Pure: it knows neither server nor service. ``account`` states what must be true of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Change(NamedTuple):
    """A change to a document. Each one, even a delete, increments the document's counter."""

    operation: str
    number: int


class Arrival(NamedTuple):
    """A change as a handler received it. A delete has no ``number``.

    Tokens sort in stream order, both those of changes and those of checkpoints. An event of a
    snapshot has the snapshot's id instead. A barrier has no document (-1).
    """

    token: str
    document: int
    operation: str
    number: int | None

    @property
    def of_snapshot(self) -> bool:
        """Whether it is a row or a barrier of a snapshot. The tokens of mongod begin with 82."""
        return not self.token.startswith("82")


@dataclass(frozen=True, slots=True)
class Recipient:
    """A handler. With ``sequence`` it gets the stream's order, else the order of each document.

    A handler that ``owns`` its position stores the position together with the events.
    """

    name: str
    sequence: bool
    owns: bool = False


@dataclass(frozen=True, slots=True)
class Process:
    """What one process of the service handed to each handler, and its final position.

    ``checkpoint`` is the token of the stored position. ``starts`` counts the starts of a watcher.
    ``clean`` is true if the process stopped on request and had saved every position. The
    ``arrivals`` are the changes among ``everything``.
    """

    arrivals: Mapping[str, Sequence[Arrival]]
    checkpoint: str | None
    starts: int
    clean: bool = False
    everything: Mapping[str, Sequence[Arrival]] = field(default_factory=dict)
