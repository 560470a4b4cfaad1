"""Finds the event that the server cannot send: the first one after a position that fails.

A server makes an event when it sends it: it looks up its images and runs the pipeline. If that
fails, the whole reply fails, and the error names no event. Here the stream's commands are sent with
an end, a token, until it is known which token is the first with which they fail.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import anyio

from tailrace.errors import CommandFailed, StreamError
from tailrace.event import ChangeEvent
from tailrace.model import Scope, StartPoint
from tailrace.stream.aggregate import ChangeStreamOptions, between
from tailrace.stream.change_stream import ChangeStream
from tailrace.stream.driver_port import Driver
from tailrace.stream.resumable import may_be_of_event

MOST_EVENTS = 1000
"""Among so many events, before the scope's pipeline, the one is looked for."""
_PROBE_SECONDS = 20.0
_SMALL: Mapping[str, Any] = {
    "$project": {"operationType": 1, "ns": 1, "documentKey": 1, "clusterTime": 1}
}


@dataclass(frozen=True, slots=True)
class UnsentEvent:
    """``event`` has a token, a type, a namespace and a key; ``error``: why it cannot be sent."""

    event: ChangeEvent
    error: CommandFailed


async def find_unsent(
    driver: Driver, scope: Scope, options: ChangeStreamOptions, start: StartPoint
) -> UnsentEvent | None:
    """The event after ``start`` that cannot be sent; ``None`` if the next one can, or if it is not
    among the next ``MOST_EVENTS``. Raises :class:`tailrace.errors.DriverError`."""
    start = start.past_token
    options = replace(options, batch_size=1, comment="tailrace: which event cannot be sent")
    error = await _failure(driver, scope, options, start)
    if error is None:
        return None
    candidates = await _events(driver, scope, options, start)

    async def fails(count: int) -> bool:
        until = between(through=candidates[count - 1].token)
        bounded = replace(options, pipeline=(until, *options.pipeline))
        return await _failure(driver, scope, bounded, start) is not None

    below, count = 0, 1
    while not (candidates and await fails(count)):
        if count >= len(candidates):
            return None
        below, count = count, min(2 * count, len(candidates))
    while count - below > 1:
        middle = (below + count) // 2
        below, count = (below, middle) if await fails(middle) else (middle, count)
    return UnsentEvent(candidates[count - 1], error)


async def _failure(
    driver: Driver, scope: Scope, options: ChangeStreamOptions, start: StartPoint
) -> CommandFailed | None:
    """Why the next event cannot be sent; ``None`` if it can, or there is none."""
    try:
        await _read(driver, scope, options, start)
    except CommandFailed as error:
        if not may_be_of_event(error):
            raise
        return error
    return None


async def _events(
    driver: Driver, scope: Scope, options: ChangeStreamOptions, start: StartPoint
) -> list[ChangeEvent]:
    """The next events without images, and without the scope's pipeline."""
    plain = ChangeStreamOptions(
        pipeline=(_SMALL,),
        show_expanded_events=options.show_expanded_events,
        batch_size=MOST_EVENTS,
        comment=options.comment,
        read_preference=options.read_preference,
    )
    return [
        event
        for event in await _read(driver, scope, plain, _by_time(start))
        if event.token.cluster_time is not None
    ]


def _by_time(start: StartPoint) -> StartPoint:
    """A start point that does not depend on the pipeline."""
    token = start.token
    if token is None or token.cluster_time is None:
        return start
    return StartPoint(at_operation_time=token.cluster_time, past=token)


async def _read(
    driver: Driver, scope: Scope, options: ChangeStreamOptions, start: StartPoint
) -> list[ChangeEvent]:
    """The events of the first reply that may have some."""
    stream = ChangeStream(driver, scope, options, start)
    with anyio.move_on_after(_PROBE_SECONDS):
        try:
            await stream.open()
            for _ in range(2):  # the first reply is the aggregate's
                if len(batch := await stream.next_batch(wait=False)):
                    return list(batch.events())
        except StreamError:
            return []
        finally:
            with anyio.move_on_after(1, shield=True):
                await stream.aclose()
    return []
