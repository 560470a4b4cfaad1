"""Compares rows with what their documents make. Nothing here asks a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import anyio.lowlevel

from tailrace.engine import Comparison, HeldRows, Row, differing_fields
from tailrace.errors import Refused
from tailrace.event import ChangeEvent
from tailrace.model.snapshot import DocumentId
from tailrace.model.verification import Kind

_AT_ONCE = 256
"""After so many documents, the stream may go on."""
_MOST_SHOWN = 1000
"""Characters or bytes of a value that is told."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """A row that is not what its document makes, or one of both that is not there.

    ``fields``: those that differ. ``expected`` and ``stored``: the rows. ``left_out``: there is a
    document, of which there must be no row.
    """

    id: DocumentId
    kind: Kind
    fields: tuple[str, ...] = ()
    expected: Row | None = None
    stored: Row | None = None
    left_out: bool = False

    @property
    def has_no_document(self) -> bool:
        """Whether the row stands for no document."""
        return self.kind is Kind.TOO_MANY and not self.left_out


@dataclass(slots=True)
class Compared:
    """The result for some keys. ``refused``: those of which the destination makes no row, with its
    reason. ``unread``: those whose documents were not read, because the others were large. A key
    without a document and without a row is in none of these. ``note``: that of the rows."""

    equal: int = 0
    suspects: list[Suspect] = field(default_factory=list)
    refused: dict[DocumentId, str] = field(default_factory=dict)
    unread: list[DocumentId] = field(default_factory=list)
    note: str = ""


@dataclass(frozen=True, slots=True)
class ExpectedRows:
    """By event, its row; ``None`` where it has a reason in ``refused``, or must have none."""

    rows: Sequence[Row | None]
    refused: Mapping[int, str]


async def expected_rows(comparison: Comparison, events: Sequence[ChangeEvent]) -> ExpectedRows:
    """The rows that the destination makes of documents."""
    rows: list[Row | None] = []
    refused: dict[int, str] = {}
    for first in range(0, len(events), _AT_ONCE):
        part = list(enumerate(events[first : first + _AT_ONCE], first))
        reasons: Mapping[int, str] = {}
        made: Sequence[Row | None] = ()
        while part:
            try:
                made = await comparison.expected([event for _, event in part])
                break
            except Refused as error:
                if not (reasons := error.of(len(part))):
                    raise
                refused |= {part[at][0]: why for at, why in reasons.items()}
                part = [one for at, one in enumerate(part) if at not in reasons]
        by_event = {at: row for (at, _), row in zip(part, made, strict=True)}
        rows += [by_event.get(at) for at in range(first, min(first + _AT_ONCE, len(events)))]
        await anyio.lowlevel.checkpoint()
    return ExpectedRows(rows, refused)


def compared(
    keys: Sequence[DocumentId],
    indices: Sequence[int | None],
    expected: ExpectedRows,
    held: HeldRows,
    *,
    whole: bool = True,
) -> Compared:
    """Compares the rows of keys that are ``held`` with the ``expected`` ones.

    ``indices``: of each key, the index of its document's row; ``None`` if there is no document, or
    if it was not read, unless these are ``whole``.
    """
    result = Compared(note=held.note)
    for key, index, row in zip(keys, indices, held.rows, strict=True):
        wanted = None if index is None else expected.rows[index]
        if index is not None and index in expected.refused:
            result.refused[key] = expected.refused[index]
        elif wanted is None:
            if index is None and not whole:
                result.unread.append(key)
            elif row is not None:
                left_out = index is not None
                result.suspects.append(Suspect(key, Kind.TOO_MANY, (), None, row, left_out))
        elif row is None:
            if not held.expires:  # else it cannot be told from one that has expired
                result.suspects.append(Suspect(key, Kind.MISSING, (), wanted, None))
        elif row == wanted:
            result.equal += 1
        else:
            fields = tuple(differing_fields(wanted, row))
            result.suspects.append(Suspect(key, Kind.DIFFERENT, fields, wanted, row))
    return result


def value_text(row: Row | None, name: str) -> str:
    """A value for people, as Python writes it; the beginning of a long one."""
    if row is None or name not in row:
        return ""
    value = row[name]
    if isinstance(value, bytes):
        return value[:_MOST_SHOWN].decode("utf-8", "backslashreplace")
    return str(value)[:_MOST_SHOWN]
