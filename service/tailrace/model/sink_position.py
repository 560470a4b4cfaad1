"""The position of a destination that stores it together with its data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import bson
from bson.timestamp import Timestamp

from tailrace.errors import InvalidPosition, describe
from tailrace.model.snapshot import StoredRows
from tailrace.model.token import NOT_A_DOCUMENT, ResumeToken

NO_TOKEN = ResumeToken(bson.encode({}))
"""That of a destination which has rows of a snapshot, and no change."""


@dataclass(frozen=True, slots=True, init=False)
class SinkPosition:
    """The last event that the destination has, as it was stored with its data.

    ``token`` may be the event's ``id``. ``cluster_time`` is that event's; it is needed where a
    scope has several handlers and the token does not contain the time. ``fingerprint`` is that of
    the pipeline and options that the token belongs to; empty means unknown. ``rows`` are those of a
    snapshot that were stored with it; before the first change there is no token beside them.

    Raises :class:`tailrace.errors.InvalidPosition` for anything else.
    """

    token: ResumeToken
    cluster_time: Timestamp | None
    fingerprint: str
    rows: StoredRows | None

    def __init__(
        self,
        token: ResumeToken | Mapping[str, Any] | None,
        cluster_time: Timestamp | None = None,
        fingerprint: str = "",
        rows: StoredRows | None = None,
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

    @classmethod
    def of(cls, said: object) -> SinkPosition | None:
        """What a ``position()`` returned: nothing, an event's id, or a position."""
        if said is None or isinstance(said, SinkPosition):
            return said
        return cls(cast(Any, said))

    @property
    def time(self) -> Timestamp | None:
        """When the event happened, as far as that is known."""
        return self.cluster_time or self.token.cluster_time


def _token(given: object) -> ResumeToken:
    if isinstance(given, ResumeToken):
        return given
    if not isinstance(given, Mapping) or not given:
        raise InvalidPosition(f"an event's id is a dict that is not empty, not {given!r:.60}")
    if "snapshot" in given:
        raise InvalidPosition(
            "it is the id of a document that a snapshot read, which is no position of the stream: "
            "store the id of the last event that is none"
        )
    try:
        return ResumeToken.of(given)
    except (ValueError, *NOT_A_DOCUMENT) as error:
        raise InvalidPosition(f"it is not an event's id: {describe(error)}") from error
