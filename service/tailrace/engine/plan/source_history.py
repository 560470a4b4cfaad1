"""Notices a source that was restored from a backup: it lacks the last change that was read.

Asked for a stream from the time of that change on, the server returns the change first, whatever
the scope's pipeline. Streams return only what a majority has. If the server returns something later
instead, its history is another one. So no election and no rollback looks like a restore, no further
right is needed, and a sharded cluster answers, too.
"""

from collections.abc import Awaitable, Callable

import structlog
from bson.timestamp import Timestamp

from tailrace.errors import CommandFailed, SourceRestored, describe
from tailrace.model import Scope, StartPoint
from tailrace.model.time_text import utc_text
from tailrace.stream import ChangeStream, ChangeStreamOptions, Driver
from tailrace.stream.resumable import is_retryable

Behind = Callable[[], None]
"""Called while the history of the member that is read has not reached the time."""
HasChange = Callable[[Driver, Scope, ChangeStreamOptions, Timestamp, Behind], Awaitable[bool]]
"""Whether the server has a change of the scope at this time."""

# Only what the reader of a reply needs: a document may be large.
_FIELDS = {"$project": dict.fromkeys(("_id", "operationType", "clusterTime"), 1)}


async def trusted(
    driver: Driver, scope: Scope, options: ChangeStreamOptions, time: Timestamp, behind: Behind
) -> bool:
    """For sources that are never restored."""
    return True


async def has_change(
    driver: Driver, scope: Scope, options: ChangeStreamOptions, time: Timestamp, behind: Behind
) -> bool:
    """Waits until the history of the member that is read has reached the time.

    True, too, if the server does not tell, as when its oplog begins later. Raises
    :class:`tailrace.errors.DriverError` if asking again may help.
    """
    plain = ChangeStreamOptions(
        pipeline=(_FIELDS,),
        show_expanded_events=options.show_expanded_events,
        batch_size=1,
        max_await_time_ms=options.max_await_time_ms,
        read_preference=options.read_preference,
        comment=options.comment,
    )
    waited = False
    try:
        async with ChangeStream(driver, scope, plain, StartPoint(at_operation_time=time)) as stream:
            while True:
                batch = await stream.next_batch()
                if len(batch):
                    first = batch.part(0, 1).last().time
                    return first is None or first <= time
                if batch.token is None or (reached := batch.token.cluster_time) is None:
                    return True
                if reached > time:
                    return False
                if waited:
                    behind()
                waited = True
    except CommandFailed as error:
        if is_retryable(error):
            raise
        log = structlog.get_logger().bind(scope=scope.name)
        log.debug("source.history_unknown", error=describe(error))
        return True


def awaited(time: Timestamp) -> str:
    """Why a scope waits, for people."""
    return (
        f"waits until the member that is read has the change of {utc_text(time)}, which was read "
        "before: the member lags behind, or the source was restored from a backup"
    )


def restored(scope: str, time: Timestamp) -> SourceRestored:
    """The error for a source without the change of this time."""
    return SourceRestored(
        f"scope {scope!r}: the source does not have the change of {utc_text(time)} any more, which "
        "was read, and its history goes on without it: the source was restored from a backup. What "
        "the restore took back is still in the destinations, and no other position helps: only a "
        "snapshot makes them equal to the source. Set on_history_lost: snapshot, then restart; or "
        f"'tailrace checkpoints reset {scope}', 'tailrace scopes restart {scope}', then 'tailrace "
        f"snapshot start {scope}'"
    )
