"""Open cursors, each owned by one member, and how a cursor advances along the oplog."""

import asyncio
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import bson
from bson.timestamp import Timestamp

from tailrace.testing.tokens import invalidate_token

from .errors import ServerError
from .oplog import Oplog, encoded_high_water
from .scopes import Entry, Scope


@dataclass(slots=True)
class Cursor:
    """A change stream's cursor: its position, and the token of its next reply."""

    id: int
    member: int
    scope: Scope
    session: Any
    index: int
    token: bytes
    token_time: Timestamp
    not_before: Timestamp | None = None
    """Events before this time are skipped."""

    ending: Entry | None = None
    """The drop or rename whose invalidate is not delivered yet."""

    exhausted: bool = False
    in_use: bool = False
    scan_seconds: float = 0.0
    """How long its first scan takes."""

    failure: ServerError | None = None
    """The error for the waiting getMore, or else for the next one."""

    async def scan(self) -> None:
        """The first scan of the oplog, which may take a while."""
        seconds, self.scan_seconds = self.scan_seconds, 0.0
        if seconds:
            await asyncio.sleep(seconds)

    def take(self, oplog: Oplog, limit: int, limit_bytes: int) -> list[bytes]:
        """Returns the scope's next events and advances; an invalidate exhausts the cursor."""
        batch: list[bytes] = []
        size = 0
        while len(batch) < limit and not self.exhausted:
            if self.ending is not None:
                batch.append(self._invalidate(oplog, self.ending))
                break
            if self.index == oplog.end:
                break
            entry = oplog.entries[self.index]
            is_later = self.not_before is None or entry.time >= self.not_before
            if is_later and self.scope.sees(entry):
                size += len(entry.raw)
                if batch and size > limit_bytes:
                    break  # a reply has at least one event, however big
                batch.append(entry.raw)
                self.token, self.token_time = entry.token, entry.time
                self.exhausted = entry.operation == "invalidate"
            if is_later and self.scope.invalidated_by(entry):
                self.ending = entry
            self.index += 1
        caught_up = self.index == oplog.end and self.ending is None and not self.exhausted
        if caught_up and oplog.now > self.token_time:
            # No event is left, but time has passed: the position is the current time.
            self.token, self.token_time = encoded_high_water(oplog.now), oplog.now
        return batch

    def _invalidate(self, oplog: Oplog, source: Entry) -> bytes:
        token = invalidate_token(bson.decode(source.token))
        self.token, self.token_time = bson.encode(token), source.time
        self.ending, self.exhausted = None, True
        oplog.remember_invalidate(self.token, self.index, source)
        return bson.encode(
            {"_id": token, "operationType": "invalidate", "clusterTime": source.time}
        )


class Cursors(dict[int, Cursor]):
    """The cursors of all members. Whoever removes one wakes the oplog's readers afterwards."""

    def __init__(self) -> None:
        self.ids = itertools.count(7_000_000_001)

    def find(self, cursor_id: int, member: int, session: Any) -> Cursor:
        """The member's own cursor; error 43 for any other: cursors never move between members."""
        cursor = self.get(cursor_id)
        if cursor is None or cursor.member != member:
            raise _not_found(cursor_id)
        if cursor.in_use:
            raise ServerError(12051, f"cursor id {cursor_id} is already in use")
        if cursor.session != session:
            raise ServerError(
                50738, f"Cannot run getMore on cursor {cursor_id}, created in another session"
            )
        return cursor

    def kill(self, ids: Iterable[int], member: int) -> Mapping[str, list[bson.Int64]]:
        """The killCursors command: the fields of its reply."""
        killed = [each for each in ids if each in self and self[each].member == member]
        for cursor_id in killed:
            self._drop(self[cursor_id])
        return {
            "cursorsKilled": [bson.Int64(each) for each in killed],
            "cursorsNotFound": [bson.Int64(each) for each in ids if each not in killed],
            "cursorsAlive": [],
            "cursorsUnknown": [],
        }

    def kill_all(self, member: int) -> None:
        """Removes the cursors of a member."""
        for cursor in [each for each in self.values() if each.member == member]:
            self._drop(cursor)

    def _drop(self, cursor: Cursor) -> None:
        cursor.failure = _not_found(cursor.id)
        del self[cursor.id]


def _not_found(cursor_id: int) -> ServerError:
    return ServerError(43, f"cursor id {cursor_id} not found")
