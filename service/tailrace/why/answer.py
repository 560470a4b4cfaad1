"""The answer: plain data, and its JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from enum import StrEnum
from typing import Any

from bson.timestamp import Timestamp

from tailrace.model.time_text import utc_text


class State(StrEnum):
    """What became of one change for one handler."""

    HANDLED = "handled"
    FILTERED = "filtered"
    """A route, or the scope's pipeline, does not let it through."""
    DEAD_LETTER = "dead_letter"
    BEHIND_DEAD_LETTER = "behind_dead_letter"
    """It was not tried: an earlier change of the document is a dead letter."""
    QUEUED = "queued"
    """It is read, and waits for its handler."""
    DELIVERED = "delivered"
    """It is with the handler, and neither handled nor failed."""
    RETRYING = "retrying"
    WAITING = "waiting"
    """For the handler's destination, which does not answer."""
    NOT_READ = "not_read"
    AFTER_CHECKPOINT = "after_checkpoint"
    """It is not read, or in flight: only the process that follows the scope knows."""
    BEFORE_START = "before_start"
    IN_GAP = "in_gap"


@dataclass(frozen=True, slots=True)
class Outcome:
    """``letter``: the id of its dead letter, if there is one."""

    state: State
    detail: str
    letter: str = ""


@dataclass(frozen=True, slots=True)
class ChangeOutcome:
    """One change. ``id``: the digest of its token, as in logs. ``found_in``: ``oplog``,
    ``dead letters``, ``lake``."""

    operation: str
    namespace: str
    cluster_time: Timestamp | None
    id: str
    found_in: Sequence[str]
    handlers: Mapping[str, Outcome]


@dataclass(frozen=True, slots=True)
class Landed:
    """An event of the document in a segment: its path, and its number in the scope."""

    handler: str
    segment: str
    number: int
    ordinal: int
    operation: str
    cluster_time: Timestamp | None
    id: str


@dataclass(frozen=True, slots=True)
class TableState:
    """A table that the pipeline makes of the document's collection.

    ``segment``: the last segment of the scope that is in it, -1 if none is. ``version`` and
    ``published_at`` are those of the table. ``has_document`` is ``None`` if that was not looked up;
    ``unknown`` says why. The rest is of the document's row: its last change.
    """

    table: str
    version: int
    published_at: str | None
    segment: int
    has_document: bool | None = None
    operation: str | None = None
    cluster_time: Timestamp | None = None
    ordinal: int | None = None
    unknown: str = ""


@dataclass(frozen=True, slots=True)
class Repair:
    """What an operator can do, as a command for a shell; ``filter`` is that of a snapshot."""

    reason: str
    command: str
    filter: str = ""


@dataclass(frozen=True, slots=True)
class DocumentOutcome:
    """What became of the last changes of one document.

    ``collection``: its ``database.collection``, if that is known or was found.
    ``exists``: whether the document is there now; ``None`` if unknown. ``searched_since``: the
    oplog was searched from this time on; ``None`` if it was not. ``unknown``: what cannot be known.
    """

    scope: str
    key: str
    collection: str | None
    exists: bool | None
    asked_at: Timestamp | None
    started_at: Timestamp | None
    checkpoint_at: Timestamp | None
    read_to: Timestamp | None
    searched_since: Timestamp | None
    summary: str
    changes: Sequence[ChangeOutcome] = ()
    landed: Sequence[Landed] = ()
    tables: Sequence[TableState] = ()
    repairs: Sequence[Repair] = ()
    unknown: Sequence[str] = field(default=())

    def to_document(self) -> dict[str, Any]:
        """The answer in JSON types. Times are in UTC, to the second."""
        found: dict[str, Any] = plain(self)
        return found


def iso_time(time: Timestamp | None) -> str | None:
    """A cluster time in ISO 8601, to the second."""
    return None if time is None else utc_text(time)


def plain(value: Any) -> Any:
    """A part of an answer in JSON types."""
    match value:
        case Timestamp():
            return iso_time(value)
        case StrEnum():
            return value.value
        case Mapping():
            return {name: plain(each) for name, each in value.items()}
        case tuple() | list():
            return [plain(each) for each in value]
    if is_dataclass(value):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    return value
