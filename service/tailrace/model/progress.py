"""What a handler has of the stream."""

from dataclasses import dataclass

from bson.timestamp import Timestamp

from tailrace.model.token import ResumeToken


@dataclass(frozen=True, slots=True)
class Progress:
    """What a handler has: every event up to ``token``, and some later events.

    ``cluster_time`` is the token's time. Without a token the handler has every event before that
    time; without both it has none. ``handled`` holds the token digests of single later events, and
    ``until`` is the time of the last of these.
    """

    token: ResumeToken | None = None
    cluster_time: Timestamp | None = None
    handled: frozenset[str] = frozenset()
    until: Timestamp | None = None

    def covers(self, token: ResumeToken | None, time: Timestamp | None) -> bool | None:
        """Whether a position is at or before ``token``; ``None`` if that is unknown.

        ``handled`` does not count. If the times differ, they decide. If they are equal (a
        transaction), the tokens decide if both are mongod's. A position without a token lies before
        all events of its time.
        """
        mine, at = self.token, self.cluster_time
        if mine is None:
            return at is not None and time is not None and time < at
        if mine.is_at(token):
            return True
        if at is not None and time is not None and (at != time or token is None):
            return time <= at
        if token is None:
            return None
        return True if token.precedes(mine) else False if mine.precedes(token) else None


NOTHING = Progress()
