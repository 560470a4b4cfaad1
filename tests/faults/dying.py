"""Handlers of a process that ends at one step of a snapshot's chunk; a module beside a daemon.

``ENDS_AT`` names the step and the number of the chunk in this process, for example ``read 3``.
Handled events are appended to the file ``handled``, as the server's BSON.
"""

import os
import signal
from collections.abc import Sequence
from typing import Any

import anyio

from tailrace.event import ChangeEvent
from tailrace.model import Checkpoint
from tailrace.snapshot import reading
from tailrace.stores.sqlite import SqliteCheckpoints

_CHECKPOINTS_SECONDS = 0.3

_step, _, _number = os.environ.get("ENDS_AT", "").rpartition(" ")
_chunks = _saved = 0
_ends = False
_read_chunk = reading.read_chunk
_load, _save = SqliteCheckpoints.load, SqliteCheckpoints.save


def _is_due(step: str) -> bool:
    return step == _step and _chunks >= int(_number)


async def _at_last(step: str) -> None:
    """Waits past the next checkpoint: if it were ahead of the handler, rows would be lost."""
    if _is_due(step):
        await anyio.sleep(_CHECKPOINTS_SECONDS)
        _at(step)


def _at(step: str) -> None:
    global _ends
    if _is_due(step) and not _ends:
        _ends = True
        os.kill(os.getpid(), signal.SIGTERM if step == "stopped" else signal.SIGKILL)


async def _counted(*arguments: Any, **keywords: Any) -> Any:
    global _chunks
    _chunks += 1
    _at("unread")
    chunk = await _read_chunk(*arguments, **keywords)
    _at("read")
    return chunk


async def _loaded(store: SqliteCheckpoints, scope: str) -> Checkpoint | None:
    """What an earlier process has saved is no progress of this one."""
    global _saved
    checkpoint = await _load(store, scope)
    _saved = _documents(checkpoint) if checkpoint is not None else 0
    return checkpoint


async def _watched(store: SqliteCheckpoints, checkpoint: Checkpoint) -> None:
    global _saved
    documents = _documents(checkpoint)
    more, _saved = documents > _saved and _chunks > 0, documents
    if more:
        _at("handled")
    await _save(store, checkpoint)
    if more:
        _at("saved")


def _documents(checkpoint: Checkpoint) -> int:
    snapshot = checkpoint.position.snapshot
    return sum(each.documents for each in snapshot.ranges.values()) if snapshot else 0


reading.read_chunk = _counted  # type: ignore[assignment]
SqliteCheckpoints.load = _loaded  # type: ignore[method-assign]
SqliteCheckpoints.save = _watched  # type: ignore[method-assign]


async def together(events: Sequence[ChangeEvent]) -> None:
    """A handler that gets the stream's order."""
    if any(event.operation_type == "read" for event in events):
        await _at_last("placed")
    half = len(events) // 2
    _keep(events[:half])
    if any(event.operation_type == "read" for event in events[:half]):
        await _at_last("handled in part")
        _at("stopped")
    _keep(events[half:])


async def each(event: ChangeEvent) -> None:
    """A handler that gets the order of each document."""
    _keep([event])
    if event.operation_type == "read":
        await _at_last("handled in part")
        _at("stopped")


def _keep(events: Sequence[ChangeEvent]) -> None:
    with open("handled", "ab") as file:
        file.write(b"".join(event.raw for event in events))
