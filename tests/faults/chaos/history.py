"""What was written, what each handler got, and in which process: the material of an account.

Pure: it knows neither server nor service. What must be true of it all is in ``account``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Change(NamedTuple):
    """A change to a document; each, deletes included, adds one to its counter."""

    operation: str
    number: int


class Arrival(NamedTuple):
    """A change as a handler got it. A delete does not say its ``number``.

    Tokens sort as the stream does, those of changes and those of positions without one alike. An
    event of a snapshot has the snapshot's id instead; a barrier has no document (-1).
    """

    token: str
    document: int
    operation: str
    number: int | None

    @property
    def of_snapshot(self) -> bool:
        """Whether it is a row of a snapshot, or a barrier. The tokens of mongod begin with 82."""
        return not self.token.startswith("82")


@dataclass(frozen=True, slots=True)
class Recipient:
    """A handler. In ``sequence``: it gets the stream's order, else each document's.

    One that ``owns`` its position stores it together with what it got.
    """

    name: str
    sequence: bool
    owns: bool = False


@dataclass(frozen=True, slots=True)
class Process:
    """What one process of the service handed to each handler, and what it left behind.

    ``checkpoint`` is the token of the stored position. ``starts`` says how often a watcher began
    in it, ``clean`` that it ended by itself when asked to, and every position was saved. The
    ``arrivals`` are the changes of ``everything``.
    """

    arrivals: Mapping[str, Sequence[Arrival]]
    checkpoint: str | None
    starts: int
    clean: bool = False
    everything: Mapping[str, Sequence[Arrival]] = field(default_factory=dict)
