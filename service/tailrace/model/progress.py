"""How far one handler has come along a stream, where that differs from the scope's checkpoint."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bson.timestamp import Timestamp

from tailrace.model import record_fields
from tailrace.model.token import DIGEST, ResumeToken

_DIGESTS = re.compile(rf"(?:[0-9a-f]{{{DIGEST}}})*\Z")


@dataclass(frozen=True, slots=True)
class Progress:
    """What a handler has: every event up to ``token``, and some of those that follow.

    ``cluster_time`` is that of the token. Without a token it is every event before that time;
    without both it is none. ``handled`` are the digests of the tokens of single events behind it,
    and ``until`` is the time of the last of those.
    """

    token: ResumeToken | None = None
    cluster_time: Timestamp | None = None
    handled: frozenset[str] = frozenset()
    until: Timestamp | None = None

    def covers(self, token: ResumeToken | None, time: Timestamp | None) -> bool | None:
        """Whether a position lies up to ``token``; ``None`` where that cannot be known.

        Single events behind it do not count. Times decide where they differ. Of equal times (a
        transaction) tokens decide, if both are mongod's. A position without a token lies before all
        events of its time.
        """
        mine, at = self.token, self.cluster_time
        if mine is None:
            return at is not None and time is not None and time < at
        if token == mine:
            return True
        if at is not None and time is not None and (at != time or token is None):
            return time <= at
        if token is None:
            return None
        return True if token.precedes(mine) else False if mine.precedes(token) else None

    def is_passed_by(self, token: ResumeToken | None, time: Timestamp | None) -> bool:
        """Whether everything that it holds is known to lie up to a position."""
        if self.handled and (self.until is None or time is None or time <= self.until):
            return False
        if self.token is None:
            return self.cluster_time is None or (time is not None and time >= self.cluster_time)
        return token == self.token or self.covers(token, time) is False

    def to_document(self) -> dict[str, Any]:
        """The record as a part of the checkpoint's; JSON types only."""
        return {
            "token": self.token and self.token.to_json(),
            "cluster_time": record_fields.time_parts(self.cluster_time),
            "handled": "".join(sorted(self.handled)),
            "until": record_fields.time_parts(self.until),
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Progress:
        """Reads what :meth:`to_document` wrote; raises ``KeyError`` or ``ValueError`` otherwise."""
        digests = record_fields.typed(document, "handled", str)
        if not _DIGESTS.match(digests):
            raise ValueError("handled is not a row of digests")
        return cls(
            token=record_fields.token(document, "token"),
            cluster_time=record_fields.time(document, "cluster_time"),
            handled=frozenset(digests[at : at + DIGEST] for at in range(0, len(digests), DIGEST)),
            until=record_fields.time(document, "until"),
        )


NOTHING = Progress()
