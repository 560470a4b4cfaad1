"""The position of a destination that stores its position together with its data."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import bson
from bson.timestamp import Timestamp

from tailrace.errors import InvalidPosition, describe
from tailrace.model.record_codec import document, instance
from tailrace.model.snapshot import StoredRows
from tailrace.model.token import NOT_A_DOCUMENT, ResumeToken

NO_TOKEN = ResumeToken(bson.encode({}))
"""The token of a destination that has rows of a snapshot, but no change yet."""


class PositionedEvent(Protocol):
    """The attributes of an event that a position uses."""

    @property
    def token(self) -> ResumeToken: ...
    @property
    def cluster_time(self) -> Timestamp | None: ...


@dataclass(frozen=True, slots=True, init=False)
class SinkPosition:
    """The last event that the destination has, as stored with its data.

    ``token`` may be the event's ``id``. ``cluster_time`` is that event's; it is required if a scope
    has several handlers and the token does not contain the time. ``fingerprint``: of the pipeline
    and options to which the token belongs; empty means unknown. ``rows``: the rows of a snapshot
    that the destination has; before the first change there are only rows and no token.
    ``observed_generation``: the last one of the desired state whose position the handler had taken.
    :meth:`after` makes the position for a destination that takes rows, and :meth:`to_text` the text
    to store.

    Raises :class:`tailrace.errors.InvalidPosition` for anything else.
    """

    token: ResumeToken
    cluster_time: Timestamp | None
    fingerprint: str
    rows: StoredRows | None
    observed_generation: int

    def __init__(
        self,
        token: ResumeToken | Mapping[str, Any] | None,
        cluster_time: Timestamp | None = None,
        fingerprint: str = "",
        rows: StoredRows | None = None,
        observed_generation: int = 0,
    ) -> None:
        if cluster_time is not None and not isinstance(cluster_time, Timestamp):
            kind = type(cluster_time).__name__
            raise InvalidPosition(f"a cluster time is a bson.Timestamp, not {kind}")
        if token is None and rows is not None:
            token = NO_TOKEN
        object.__setattr__(self, "token", _token(token))
        object.__setattr__(self, "rows", rows)
        object.__setattr__(self, "cluster_time", cluster_time)
        object.__setattr__(self, "fingerprint", fingerprint)
        object.__setattr__(self, "observed_generation", observed_generation)

    @classmethod
    def after(
        cls, events: Iterable[PositionedEvent], before: SinkPosition | None = None
    ) -> SinkPosition:
        """The position of a destination at ``before`` when it has stored ``events``."""
        token = before.token if before is not None else NO_TOKEN
        time = before.cluster_time if before is not None else None
        rows = before.rows if before is not None else None
        for event in events:
            of_snapshot = StoredRows.up_to(event.token.raw)
            if of_snapshot is not None:
                rows = of_snapshot.merged(rows)
            else:
                token, time = event.token, event.cluster_time
        return cls(token, time, rows=rows)

    @classmethod
    def after_batch(
        cls, events: Sequence[PositionedEvent], before: SinkPosition | None = None
    ) -> SinkPosition:
        """As :meth:`after`, for a call, which has only rows or only changes: the last change tells
        enough then."""
        rows = StoredRows.up_to(events[-1].token.raw) is not None
        return cls.after(events if rows else events[-1:], before)

    def of_run(self, fingerprint: str, observed_generation: int) -> SinkPosition:
        """The same position, in a stream whose pipeline and options have this fingerprint, and
        after that generation of the desired state."""
        return SinkPosition(
            self.token, self.cluster_time, fingerprint, self.rows, observed_generation
        )

    @property
    def before_move(self) -> str:
        """How a checkpoint notes it that an operator has moved: the handler may come to the same
        change again, with a greater ``observed_generation``."""
        return f"{self.token.digest} before a move after {self.observed_generation}"

    def to_text(self) -> str:
        """The text that a destination stores with its data."""
        return json.dumps(document(self))

    @classmethod
    def from_text(cls, text: str) -> SinkPosition:
        """Reads what :meth:`to_text` wrote."""
        try:
            return instance(cls, json.loads(text))
        except (ValueError, RecursionError) as error:
            raise InvalidPosition(f"it is not the text of a position: {error}") from error

    def is_at(self, event: PositionedEvent) -> bool:
        """Whether the event is one of the last that the destination has."""
        of_snapshot = StoredRows.up_to(event.token.raw)
        if of_snapshot is None:
            return event.token == self.token
        return self.rows is not None and self.rows.has_last(of_snapshot)

    @classmethod
    def of(cls, said: object) -> SinkPosition | None:
        """Converts what a ``position()`` returned: nothing, an event's id, or a position."""
        if said is None or isinstance(said, SinkPosition):
            return said
        return cls(cast(Any, said))

    @property
    def time(self) -> Timestamp | None:
        """When the event happened; ``None`` if unknown."""
        return self.cluster_time or self.token.cluster_time


def _token(id: object) -> ResumeToken:
    if isinstance(id, ResumeToken):
        return id
    if not isinstance(id, Mapping) or not id:
        raise InvalidPosition(f"an event's id is a dict that is not empty, not {id!r:.60}")
    if "snapshot" in id:
        raise InvalidPosition(
            "it is the id of an event of a snapshot, which alone is not a position of the stream: "
            "store SinkPosition.after(events, the position before).to_text()"
        )
    try:
        return ResumeToken.of(id)
    except (ValueError, *NOT_A_DOCUMENT) as error:
        raise InvalidPosition(f"it is not an event's id: {describe(error)}") from error
