"""How a destination is asked for the rows that it holds, to compare them with the source.

A destination that keeps a row of each document has ``comparison(scope)``: an async context, open
while it is compared. Its calls run beside those that write and never block them, so it has a
connection of its own. They come one after another, and may raise
:class:`tailrace.errors.Unavailable`: then the context is left, and another one entered.

One that compares by itself, so that equal rows need not come here, has a method more, ``suspects``:
see :data:`Suspects`.
"""

import json
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from bson.timestamp import Timestamp

from tailrace.event import ChangeEvent, Namespace
from tailrace.model import SinkPosition
from tailrace.model.snapshot import DocumentId

Row: TypeAlias = Mapping[str, Hashable]
"""A row by field or column. Two values are equal only if the destination holds the same: bytes or
text as it stores them, rather than numbers, because ``1 == 1.0 == True`` and ``0.0 == -0.0``.
"""

ROWS_BYTES = 4 * 1024 * 1024
"""Rows of this size are enough for one call of ``stored``: the others may be left out."""
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class HeldRows:
    """Rows, in the order of the keys that were asked for; ``None`` for a key without a row.

    ``position_text``: the position that a destination with ``begin`` has stored, as of the same
    moment; ``None`` if there is none yet. ``position`` is made of it. ``expires``: rows go after a
    time, so one that is not there is not missing. ``whole`` is false if some rows, after at least
    one, were not read because the others are large: then ``None`` may stand for one of them, too.
    ``since``: changes from this time on may be missing in the rows, though they were handled:
    others write them later. ``note``: which rows these are, for people.
    """

    rows: Sequence[Row | None]
    position_text: str | None = None
    position: SinkPosition | None = None
    expires: bool = False
    whole: bool = True
    since: Timestamp | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class HeldKey:
    """The key of a row. ``text`` is shown; ``id`` is ``None`` if no document can have this key."""

    text: str
    id: DocumentId | None


@dataclass(frozen=True, slots=True)
class HeldKeys:
    """A page of keys. ``after``: where the next page begins; ``None`` if this is the last one."""

    keys: Sequence[HeldKey]
    after: str | None = None


class Comparison(Protocol):
    """What the destination holds of one scope, and what it should hold."""

    async def expected(self, documents: Sequence[ChangeEvent]) -> Sequence[Row | None]:
        """The row of each document, made as ``write`` makes it: events ``read`` of one collection.

        ``None`` for a document of which there must be no row.
        A field that tells when a document was written is left out. Raises
        :class:`tailrace.errors.Refused` for documents of which there is no row, by their indices.
        """

    async def stored(self, collection: Namespace, keys: Sequence[DocumentId]) -> HeldRows:
        """The rows of a collection's documents, with the position, in one consistent read."""

    async def stored_keys(self, collection: Namespace, after: str | None, most: int) -> HeldKeys:
        """About the next ``most`` keys of a collection's rows, in any lasting order.

        It starts with ``after`` ``None``. A row that is only marked as deleted is none.
        """


class ReadDocuments(Protocol):
    """Gives documents of a collection (BSON), as of the moment of a consistent read, which it gets
    without rows. Raises :class:`tailrace.errors.DriverError`, too."""

    def __call__(self, held: HeldRows, /) -> Awaitable[Sequence[bytes]]: ...


Suspects: TypeAlias = Callable[[Namespace, ReadDocuments], Awaitable[Sequence[int]]]
"""Begins a consistent read of a collection's rows and the position, and asks once for documents.

Returns the indices of those whose rows in this read are not there, or not those that ``expected``
makes of them. More than these do no harm, such as all if any is refused: ``stored`` and
``expected`` are asked for what it returns.
"""


def suspects_of(comparison: Comparison) -> Suspects | None:
    """How a comparison compares by itself; ``None`` if it does not."""
    suspects: Suspects | None = getattr(comparison, "suspects", None)
    return suspects


def differing_fields(expected: Row, held: Row) -> list[str]:
    """The fields in which two rows differ. Of a JSON document ``d`` it is ``d.name``, by field."""
    found: list[str] = []
    for name in _differing(expected, held):
        ours, theirs = _json_fields(expected.get(name)), _json_fields(held.get(name))
        parts = _differing(ours, theirs) if ours and theirs else []
        found += [f"{name}.{part}" for part in parts] or [name]
    return found


def _differing(one: Mapping[str, object], other: Mapping[str, object]) -> list[str]:
    return [each for each in {**one, **other} if one.get(each, _ABSENT) != other.get(each, _ABSENT)]


def _json_fields(value: Hashable) -> Mapping[str, object]:
    """The fields of a JSON document; empty for another value. Numbers that are written differently
    are different."""
    if not isinstance(value, str | bytes) or value[:1] not in ("{", b"{"):
        return {}
    try:
        fields = json.loads(value, parse_int=str.encode, parse_float=str.encode)
    except (ValueError, RecursionError):
        return {}
    # A name with a dollar sign is that of a type: {"$numberInt": "1"}.
    return {} if not isinstance(fields, dict) or any(each[:1] == "$" for each in fields) else fields
