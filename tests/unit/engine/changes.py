"""Change events, batches and places, as the packages below the engine create them."""

import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import anyio
from bson.timestamp import Timestamp

from tailrace.engine.handle.commit_delivery import CommitDelivery
from tailrace.engine.handle.delivery import Delivery
from tailrace.engine.handle.retry import Breaker, Retry
from tailrace.engine.plan.loop_share import LoopShare
from tailrace.engine.ports import Handler, RunIdentity
from tailrace.engine.position.place import Place
from tailrace.engine.position.watermark import Watermark
from tailrace.engine.position.watermarks import Watermarks
from tailrace.event import ChangeEvent, RawBatch
from tailrace.event.batch import join
from tailrace.model import Checkpoint, Position, PositionKind, ResumeToken
from tailrace.model.failure_policy import FailurePolicy
from tailrace.observe.handler_recorder import HandlerRecorder
from tailrace.observe.recent_errors import RecentErrors
from tailrace.stores.memory import MemoryDeadLetters
from tailrace.stream import Interrupt
from tests.guards import against_hanging
from tests.handlers import handler
from tests.scripted.wire import in_order

EPOCH = 1_764_500_000
"""The Unix time of event 0; event n happens n seconds later."""

HALT = FailurePolicy(halt=True)

NOTHING = Position(PositionKind.IDLE, None, None, None)

OPAQUE = [ResumeToken.of({"_data": f"opaque-{n}"}) for n in range(10)]
"""Tokens from which no time can be read."""

Document = dict[str, Any]


def time(n: int) -> Timestamp:
    return Timestamp(EPOCH + n, 1)


def token(n: int, more: str = "2B") -> ResumeToken:
    """A token as mongod writes it: it has the time of event ``n``, and tokens sort."""
    return ResumeToken.of({"_data": f"82{EPOCH + n:08X}00000001{more}"})


def change(n: int, key: Any = None, operation: str = "insert", **fields: Any) -> Document:
    """Event ``n``, of the document ``key`` (by default a document of its own)."""
    key = n if key is None else key
    return {
        "_id": token(n).document,
        "operationType": operation,
        "clusterTime": time(n),
        "ns": {"db": "shop", "coll": "orders"},
        "documentKey": {"_id": key},
    } | fields


def changes(first: int, behind: int, key: Any = None) -> list[Document]:
    return [change(n, key) for n in range(first, behind)]


def ddl(n: int, operation: str = "drop") -> Document:
    """An event without a document key: a barrier."""
    document = change(n, operation=operation)
    del document["documentKey"]
    return document


def invalidate(n: int) -> Document:
    document = ddl(n, "invalidate")
    del document["ns"]
    return document


def number(event: ChangeEvent) -> int:
    """The number of an event."""
    assert event.cluster_time is not None
    return event.cluster_time.time - EPOCH


def batch(
    documents: Sequence[Document],
    post_batch: ResumeToken | None = None,
    operation_time: Timestamp | None = None,
) -> RawBatch:
    """A reply as the stream returns it; its token is the post-batch token or the last event's."""
    buffer, bounds = join([in_order(document) for document in documents])
    last = RawBatch(buffer, bounds, None).last
    return RawBatch(buffer, bounds, post_batch or (last.token if last else None), operation_time)


def checkpoint(n: int, **fields: Any) -> Checkpoint:
    """A checkpoint after event ``n``; ``fields`` are its own, or those of its position."""
    own = {each.name for each in dataclasses.fields(Position)} & fields.keys()
    position = Position(PositionKind.EVENT, token(n), token(n), time(n))
    position = dataclasses.replace(position, **{name: fields.pop(name) for name in own})
    saved_at = datetime(2026, 1, 1, tzinfo=UTC)
    return dataclasses.replace(
        Checkpoint("orders", position, "", "f", 1, 1, saved_at=saved_at), **fields
    )


def corrupt(whole: RawBatch, event: int) -> RawBatch:
    """The batch with one event whose bytes are not BSON; the bounds stay unchanged."""
    buffer = bytearray(whole.buffer)
    end = whole.bounds[2 * event + 1]
    buffer[end - 30 : end] = b"\xff" * 30
    return RawBatch(bytes(buffer), whole.bounds, whole.token, whole.operation_time)


def admit(line: Watermark, whole: RawBatch, *, invalidated: bool = False) -> list[Place]:
    """The places of a reply on a watermark."""
    time = Watermarks(None, lambda freed: None).time_after(whole)
    slices, otherwise = list(whole.slices()), whole.operation_time
    return line.admit(slices, whole.token, time, otherwise=otherwise, invalidated=invalidated)


def places(*batches: RawBatch) -> list[Place]:
    """The places of some replies, on a new watermark."""
    line = Watermark(NOTHING)
    return [place for some in batches for place in admit(line, some)]


def line_of(documents: Iterable[Document], batch_size: int = 64) -> list[Place]:
    """The places of events that came in replies of ``batch_size``."""
    every = list(documents)
    cut = [every[at : at + batch_size] for at in range(0, len(every), batch_size)]
    return places(*map(batch, cut))


def delivery_to(
    handler: Handler,
    *,
    letters: MemoryDeadLetters | None = None,
    recorder: HandlerRecorder | None = None,
    errors: RecentErrors | None = None,
    stop: Interrupt | None = None,
    share: LoopShare | None = None,
) -> Delivery:
    """A delivery to a handler on the scope ``orders``, with the handler's failure policy."""
    identity = RunIdentity("orders", "rs0", "", 1)
    retry = Retry(
        identity,
        handler.name,
        letters or MemoryDeadLetters(),
        Breaker(handler.failure, recorder or HandlerRecorder()),
        errors or RecentErrors(),
        stop or Interrupt(),
    )
    kind = Delivery if handler.commit is None else CommitDelivery
    return kind(handler, retry, identity, share or LoopShare())


def delivery(
    on_event: Callable[[ChangeEvent], Awaitable[Any]] | None = None,
    on_events: Callable[[Sequence[ChangeEvent]], Awaitable[Any]] | None = None,
    **more: Any,
) -> Delivery:
    """A delivery to a handler whose first failure ends the run."""
    return delivery_to(handler("probe", on_event, on_events, failure=HALT, **more))


async def set_aside(letters: MemoryDeadLetters) -> list[int]:
    """The numbers of the events that are dead letters."""
    return [number(ChangeEvent.from_raw(letter.raw)) for letter in await letters.letters()]


class Noting(Watermark):
    """A watermark that records which places lanes finish, and the sizes that they hold."""

    def __init__(self) -> None:
        super().__init__(NOTHING)
        self.begun = 0
        self.finished: list[int] = []
        self.taken: list[int] = []
        self.held: list[int] = []

    def begin(self) -> None:
        self.begun += 1

    def finish(self, *places: Place) -> None:
        self.finished += [place.number for place in places]

    def take(self, *places: Place) -> None:
        self.taken += [place.number for place in places]

    def hold(self, size: int) -> None:
        self.held.append(size)


async def settle() -> None:
    """Runs all other tasks until each of them waits for something."""
    for _ in range(100):
        await anyio.lowlevel.checkpoint()


async def until(condition: Callable[[], bool]) -> None:
    """Waits for other tasks; only a failing test reaches the time limit."""
    with against_hanging():
        while not condition():
            await anyio.lowlevel.checkpoint()
