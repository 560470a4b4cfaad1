"""Writes the events of each scope to Parquet segments in a lake."""

import errno
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, TypeVar

from anyio import CapacityLimiter, to_thread

from tailrace.destination import (
    Commit,
    Comparison,
    Handler,
    OwnPosition,
    PerBatch,
    RunIdentity,
    raw_documents,
)
from tailrace.destination.log_comparison import log_comparison
from tailrace.destination.tables import OpenTables
from tailrace.destinations.parquet import ParquetHandlerSettings
from tailrace.destinations.parquet.comparison import LandedSegments, row_maker
from tailrace.destinations.parquet.landing import Landing
from tailrace.destinations.parquet.tables_comparison import tables_comparison
from tailrace.errors import (
    ConfigurationError,
    Problem,
    SegmentUnreadable,
    StartRefused,
    TailraceError,
    advice,
)
from tailrace.event import ChangeEvent
from tailrace.event.batch import Events
from tailrace.event.other_id import OtherId
from tailrace.lake.segment import Documents
from tailrace.lake.storage import ObjectStoreError
from tailrace.lake.writable_lake import WritableLake
from tailrace.model import Scope, SinkPosition
from tailrace.model.failure_policy import FailurePolicy
from tailrace.model.gap import Gap

_WRITERS = 4
"""How many scopes are written at the same time: disks and object stores answer slowly."""
_APPENDED_EVENTS = 1024
_APPENDED_BYTES = 1024 * 1024
"""The most events, and bytes of events, that the engine passes in one call."""
_FAULTS = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
"""Errors of the disk. The path may be right."""

T = TypeVar("T")


class LakeWriter:
    """The lake at ``settings.path``, which is created if missing, with a handler for each scope."""

    def __init__(self, name: str, settings: ParquetHandlerSettings) -> None:
        self._name = name
        self._settings = settings
        self._writers = CapacityLimiter(_WRITERS)
        self._lake: WritableLake

    async def __aenter__(self) -> None:
        """Raises :class:`ConfigurationError` if the path is not a lake or cannot be written, and
        :class:`StartRefused` if the disk is full or broken, or an object store does not answer."""
        try:
            self._lake = await self._in_thread(WritableLake.open, self._settings.path)
        except (OSError, ValueError, SegmentUnreadable) as error:
            raise refusal(self._name, self._settings, error) from error

    async def __aexit__(self, *error: object) -> None: ...

    async def _in_thread(self, call: Callable[..., T], *arguments: Any) -> T:
        # The thread is not abandoned: a cancelled caller waits until the segment is complete.
        return await to_thread.run_sync(call, *arguments, limiter=self._writers)

    def handler(self, of: Scope, tables: OpenTables | None) -> Handler:
        """The handler of a scope. ``tables``: opens those that a pipeline makes of a lake."""
        scope = of.name
        settings, in_thread = self._settings, self._in_thread
        documents = Documents(settings.documents)
        # The lake is not open yet.
        landing = cache(lambda: Landing(self._lake, scope, documents))

        async def position(identity: RunIdentity) -> SinkPosition | None:
            return await in_thread(landing().begin, identity)

        async def append(events: Iterable[bytes], identity: RunIdentity) -> None:
            await in_thread(landing().append, events)

        async def commit(identity: RunIdentity) -> None:
            await in_thread(landing().commit)

        async def skipped(identity: RunIdentity, gap: Gap) -> None:
            await in_thread(landing().record, gap)

        @asynccontextmanager
        async def comparison(identity: RunIdentity) -> AsyncIterator[Comparison]:
            made = None if tables is None else await in_thread(tables, self._lake.id)
            if made is not None and await in_thread(made.published, scope) >= 0:
                opened = tables_comparison(made, of, self._lake)
            else:
                make = row_maker(documents)
                opened = log_comparison(lambda: LandedSegments(self._lake, scope), make)
            async with opened as comparison:
                yield comparison

        return Handler(
            self._name,
            PerBatch(
                append,
                _with_positions,
                events=min(_APPENDED_EVENTS, settings.segment_rows),
                bytes=min(_APPENDED_BYTES, settings.segment_bytes),
                whole_transactions=True,
            ),
            OwnPosition(position, skipped),
            commit=Commit(
                commit,
                held=lambda identity: landing().held,
                events=settings.segment_rows,
                bytes=settings.segment_bytes,
                seconds=settings.segment_seconds,
            ),
            # A failure is the lake's, never an event's. So there are no dead letters, and the
            # watcher restarts until the lake works again.
            failure=FailurePolicy(halt=True),
            comparison=comparison,
            is_log=True,
        )


def _with_positions(events: Sequence[ChangeEvent]) -> Iterator[bytes]:
    """The events' BSON. Raises ``ValueError`` for one whose ``_id`` is no position."""
    if not isinstance(events, Events) and any(_is_hashed(event) for event in events):
        raise ValueError(
            "fields hashes or masks a field of the collection's shard key, which the id of each "
            "event holds, and a lake's position is the id of its last event"
        )
    yield from raw_documents(events)


def _is_hashed(event: ChangeEvent) -> bool:
    return isinstance(event, OtherId) and event.id != event.token.document


def refusal(name: str, settings: ParquetHandlerSettings, error: Exception) -> TailraceError:
    """The error to raise for a lake that cannot be opened."""
    if isinstance(error, SegmentUnreadable):
        return ConfigurationError(Problem(f"handlers.{name}.path", str(error)))
    reason = (isinstance(error, OSError) and error.strerror) or str(error)
    failed = f"no lake can be opened at {settings.path}: {reason}"
    if isinstance(error, OSError) and error.errno in _FAULTS:
        return StartRefused(f"handlers.{name}: {failed}: {advice(error)}", may_pass=True)
    message = (
        f"{failed}. Choose a directory that this process may write, or a bucket that "
        "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL lead to"
    )
    if isinstance(error, ObjectStoreError):
        return StartRefused(f"handlers.{name}: {message}", may_pass=True)
    return ConfigurationError(Problem(f"handlers.{name}.path", message))
