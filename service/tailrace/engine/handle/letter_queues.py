"""Hands dead letters to their handlers again, in order, and resolves the handled ones.

The letters of one scope, handler and key form a queue. Only the first of a queue may be handled.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cmp_to_key

import bson
from bson.errors import BSONError
from bson.timestamp import Timestamp

from tailrace.engine.ports import DeadLetterStore
from tailrace.errors import (
    CheckpointFenced,
    DeliveryInterrupted,
    TailraceError,
    describe,
)
from tailrace.event.change_event import ChangeEvent
from tailrace.event.codec import CODEC
from tailrace.model.dead_letter import DeadLetter, LetterHead, LetterQueue, LetterUnreadable
from tailrace.model.token import ResumeToken

ROUNDS = 1000
"""How often to look for dead letters that joined meanwhile: they may join as quickly as they are
replayed, and the replay must end."""

HandOver = Callable[[ChangeEvent], Awaitable[BaseException | None]]
"""Hands a change to the handler once, and waits out an outage; returns the handler's error."""

Report = Callable[[DeadLetter | LetterHead, str], None]
"""Called with each dead letter and its outcome."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """How many dead letters were handled, failed again, and are left in the queues that were begun.

    ``rest``: the queues that were not begun, or not ended, when the time was over; ``waits``: for
    what the handler waited then, if its destination was down.
    """

    replayed: int
    failed: int
    left: int
    rest: Sequence[LetterQueue] = ()
    waits: str = ""


async def replay_letters(
    store: DeadLetterStore,
    chosen: Iterable[LetterHead],
    hand_over: HandOver,
    report: Report,
    require: Callable[[], None],
    more: Callable[[], bool],
) -> Replayed:
    """Replays the whole queues of the chosen letters, all of one scope and handler: a single letter
    would break the order.

    A letter is resolved when its handler has returned. If the handler fails, the letter and all
    letters after it stay. Letters that join these queues meanwhile are replayed as well. One event
    is in memory at a time. ``require`` raises if another process may replay: it is called before a
    letter is handed over, and before it is resolved. No letter is begun once ``more`` says no.
    """
    names = list(dict.fromkeys(each.queue for each in chosen))
    replayed, failed, begun, waits = 0, 0, 0, ""

    async def replay(name: LetterQueue) -> bool:
        """Replays a queue; returns whether the time is over before its end."""
        nonlocal replayed, failed, waits
        for _ in range(ROUNDS):
            heads = await in_order(store, await store.queue(name))
            for head in heads:
                if not more():
                    return True
                require()
                try:
                    letter = await store.read(head)
                    error = await _failure(letter, hand_over) if letter is not None else ""
                except LetterUnreadable as unreadable:
                    letter, error = None, str(unreadable)
                except DeliveryInterrupted as interrupted:
                    waits = str(interrupted)
                    return True
                if error:
                    failed += 1
                    report(letter or head, f"failed: {error}")
                    return False
                if letter is not None:
                    require()
                    await store.resolve(letter, "replayed")
                    replayed += 1
                    report(letter, "replayed")
            if not heads:
                break
        return False

    for begun, name in enumerate(names):  # noqa: B007 - where it ended
        if await replay(name):
            break
    else:
        begun = len(names)
    left = [len(await store.queue(name)) for name in names[: begun + 1]]
    return Replayed(replayed, failed, sum(left), tuple(names[begun:]), waits)


async def in_order(store: DeadLetterStore, queue: Sequence[LetterHead]) -> Sequence[LetterHead]:
    """The dead letters of a queue in the order of their events, as far as these say so.

    If a scope restarts from an older checkpoint, earlier events of the same key come again and are
    stored last. Replayed last, they would undo the later events.
    """
    if len(queue) < 2:
        return queue
    timed = list[tuple[ResumeToken, Timestamp, LetterHead]]()
    for head in queue:
        try:
            letter = await store.read(head)
        except LetterUnreadable:
            return queue
        event = event_of(letter) if letter is not None else None
        if event is None or event.cluster_time is None:
            return queue
        timed.append((event.token, event.cluster_time, head))
    return [head for _, _, head in sorted(timed, key=cmp_to_key(_compare))]


async def _failure(letter: DeadLetter, hand_over: HandOver) -> str:
    """Hands the dead letter's event over once; returns the error, or an empty string."""
    event = event_of(letter)
    if event is None:
        return "its event cannot be read: restore the store from a backup, or discard it"
    try:
        error = await hand_over(event)
    except (CheckpointFenced, DeliveryInterrupted):
        raise
    except TailraceError as failure:
        error = failure
    return describe(error) if error is not None else ""


def event_of(letter: DeadLetter) -> ChangeEvent | None:
    """The dead letter's event; ``None`` if its bytes are not BSON, as in a damaged store."""
    try:
        bson.decode(letter.raw, CODEC)
    except (BSONError, ArithmeticError, LookupError, RecursionError, TypeError, ValueError):
        return None
    return ChangeEvent.from_raw(letter.raw)


def _compare(
    one: tuple[ResumeToken, Timestamp, object], other: tuple[ResumeToken, Timestamp, object]
) -> int:
    """Compares cluster times, which never decrease for a document; if equal, tokens if possible."""
    if one[1] != other[1]:
        return -1 if one[1] < other[1] else 1
    return int(other[0].precedes(one[0])) - int(one[0].precedes(other[0]))
