"""The commands of a change stream: aggregate with `$changeStream`, getMore, killCursors.

Stages after `$changeStream` are recorded and otherwise ignored: they neither filter nor change
events. Script the events as the pipeline would have left them.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import bson

from tailrace.testing.tokens import token_time

from . import wire
from .behaviour import Behaviour
from .cursors import Cursor, Cursors
from .errors import ServerError
from .journal import Command
from .oplog import Oplog, Place, encoded_high_water
from .scopes import Scope

_FIRST_BATCH = 101  # mongod's default number of documents in a first batch
_NO_LIMIT = 1 << 31
_START_OPTIONS = ("resumeAfter", "startAfter", "startAtOperationTime")


@dataclass(frozen=True, slots=True)
class CursorReply:
    """An encoded batch, and the other fields of the reply."""

    batch_name: Literal["firstBatch", "nextBatch"]
    batch: list[bytes]
    cursor: Cursor
    with_token: bool

    def encode(self, stamps: Mapping[str, Any]) -> bytes:
        """The whole reply; `stamps` are the fields that every reply has."""
        cursor_id = bson.Int64(0 if self.cursor.exhausted else self.cursor.id)
        parts = [wire.subarray(self.batch_name, wire.array(self.batch))]
        if self.with_token:
            parts.append(wire.subdocument("postBatchResumeToken", self.cursor.token))
        parts.append(wire.elements({"id": cursor_id, "ns": self.cursor.scope.cursor_namespace}))
        cursor = wire.subdocument("cursor", wire.document(parts))
        return wire.document((cursor, wire.elements({"ok": 1.0, **stamps})))


async def open_stream(
    command: Command, oplog: Oplog, cursors: Cursors, behaviour: Behaviour
) -> CursorReply:
    """`aggregate`: opens a cursor and returns the available events, without waiting.

    With a batchSize of 0 nothing is read: the position is the start position, and an error of that
    position shows on the first getMore.
    """
    scope, stage = _scope_and_stage(command)
    cursor = _cursor_at_start(command, stage, scope, oplog, cursors)
    if any(option in stage for option in _START_OPTIONS):
        cursor.scan_seconds = behaviour.scan_seconds
    limit = command.document.get("cursor", {}).get("batchSize", _FIRST_BATCH)
    if limit:
        if cursor.failure is not None:
            raise cursor.failure
        await cursor.scan()
    lost = oplog.is_lost(cursor.index)
    if lost and (limit or behaviour.history_lost_on == "aggregate"):
        raise _history_lost()
    batch = cursor.take(oplog, limit, behaviour.reply_bytes) if limit and not lost else []
    if not cursor.exhausted:
        cursors[cursor.id] = cursor
    return CursorReply("firstBatch", batch, cursor, behaviour.post_batch_tokens)


async def get_more(
    command: Command, oplog: Oplog, cursors: Cursors, behaviour: Behaviour
) -> CursorReply:
    """`getMore`: returns the available events, or waits for events until maxTimeMS has passed."""
    document = command.document
    cursor = cursors.find(document["getMore"], command.member, document.get("lsid"))
    milliseconds = document.get("maxTimeMS") or 1000
    limit = document.get("batchSize") or _NO_LIMIT
    cursor.in_use = True
    try:
        await cursor.scan()
        async with asyncio.timeout(milliseconds / 1000) as patience:
            batch = await _await_batch(cursor, oplog, limit, behaviour.reply_bytes)
    except TimeoutError:
        if not patience.expired():
            raise
        batch = cursor.take(oplog, limit, behaviour.reply_bytes)
    except (ServerError, asyncio.CancelledError):
        # As in mongod, an interrupted getMore also removes its cursor.
        cursors.pop(cursor.id, None)
        raise
    finally:
        cursor.in_use = False
    if cursor.exhausted:
        cursors.pop(cursor.id, None)
    return CursorReply("nextBatch", batch, cursor, behaviour.post_batch_tokens)


def current_operations(command: Command, cursors: Cursors) -> Mapping[str, Any]:
    """An aggregate of `$currentOp`: the getMores in progress.

    `$match` supports only `command.getMore`.
    """
    wanted = [
        stage["$match"]["command.getMore"]
        for stage in command.document["pipeline"]
        if "$match" in stage
    ]
    found = [
        {"type": "op", "op": "getmore", "command": {"getMore": bson.Int64(each.id)}}
        for each in cursors.values()
        if each.member == command.member and each.in_use and (not wanted or each.id in wanted)
    ]
    return {"cursor": {"firstBatch": found, "id": bson.Int64(0), "ns": "admin.$cmd.aggregate"}}


async def _await_batch(cursor: Cursor, oplog: Oplog, limit: int, limit_bytes: int) -> list[bytes]:
    while True:
        if cursor.failure is not None:
            raise cursor.failure
        if oplog.is_lost(cursor.index):
            raise _history_lost()
        batch = cursor.take(oplog, limit, limit_bytes)
        if batch or cursor.exhausted:
            return batch
        await oplog.changed.wait()


def _scope_and_stage(command: Command) -> tuple[Scope, Mapping[str, Any]]:
    pipeline = command.document.get("pipeline") or [{}]
    if "$changeStream" not in pipeline[0]:
        raise ServerError(40324, "the scripted server aggregates nothing but change streams")
    stage: Mapping[str, Any] = pipeline[0]["$changeStream"]
    # mongod, src/mongo/db/pipeline/document_source_change_stream.cpp, assertIsLegalSpecification
    if "resumeAfter" in stage and "startAfter" in stage:
        raise ServerError(
            50865,
            "Do not specify both 'resumeAfter' and 'startAfter' in a $changeStream stage",
        )
    if sum(option in stage for option in _START_OPTIONS) > 1:
        raise ServerError(
            40674, "Only one type of resume option is allowed, but multiple were found"
        )
    target = command.document["aggregate"]
    if stage.get("allChangesForCluster"):
        if command.database != "admin" or target != 1:
            raise ServerError(
                72, "A $changeStream with 'allChangesForCluster:true' may only be opened on admin"
            )
        return Scope(), stage
    if command.database in ("admin", "config", "local"):
        raise ServerError(
            73, f"$changeStream may not be opened on the internal {command.database} database"
        )
    return Scope(command.database, None if target == 1 else target), stage


def _cursor_at_start(
    command: Command, stage: Mapping[str, Any], scope: Scope, oplog: Oplog, cursors: Cursors
) -> Cursor:
    token = stage.get("resumeAfter", stage.get("startAfter"))
    failure = None
    if token is not None:
        try:
            place = oplog.place_of_token(token)
        except ServerError as error:
            place, failure = Place(oplog.end), error
        if place.of_invalidate and "resumeAfter" in stage:
            raise ServerError(
                260,
                "Attempting to resume a change stream using 'resumeAfter' is not allowed "
                "from an invalidate notification",
            )
        raw_token = bson.encode(token)
        time = place.source.time if place.source else token_time(token) or oplog.now
    elif "startAtOperationTime" in stage:
        time = stage["startAtOperationTime"]
        place = oplog.place_of_time(time)
        raw_token = encoded_high_water(time)
    else:
        # "From now" excludes the last written entry, so the stream starts at the next possible
        # time.
        time, place = oplog.next_time, Place(oplog.end)
        raw_token = encoded_high_water(time)
    ending = place.source if place.source and not place.of_invalidate else None
    if ending is not None and not scope.invalidated_by(ending):
        ending = None
    return Cursor(
        id=next(cursors.ids),
        member=command.member,
        scope=scope,
        session=command.document.get("lsid"),
        index=place.index,
        token=raw_token,
        token_time=time,
        not_before=time if time > oplog.next_time else None,
        ending=ending,
        failure=failure,
    )


def _history_lost() -> ServerError:
    return ServerError(
        286,
        "Resume of change stream was not possible, as the resume point may no longer be in "
        "the oplog.",
    )
