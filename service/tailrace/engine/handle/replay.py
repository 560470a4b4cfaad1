"""Hands dead letters to their handlers again, in order, and resolves the handled ones.

The letters of one scope, handler and key form a queue. Only the first of a queue may be handled.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import cmp_to_key

import anyio
import bson
from bson.errors import BSONError
from bson.timestamp import Timestamp

from tailrace.engine.handle.isolation import apart
from tailrace.engine.handle.time_limit import require_done
from tailrace.engine.ports import DeadLetterStore, Handler, RunIdentity, called_with
from tailrace.errors import describe
from tailrace.event.change_event import ChangeEvent
from tailrace.event.codec import CODEC
from tailrace.model.dead_letter import DeadLetter, LetterHead, LetterQueue, LetterUnreadable
from tailrace.model.token import ResumeToken

ROUNDS = 1000
"""How often to look for letters that joined meanwhile: they may join as quickly as they are
replayed, and the replay must end."""

Turn = Callable[[str], AbstractAsyncContextManager[object]]
"""Waits until a handler, by its name, has no other call that it must not get beside."""

Report = Callable[[DeadLetter | LetterHead, str], None]
"""Called with each letter and its outcome."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """How many letters were handled, failed again, and are left in the queues that were begun.

    ``rest``: the queues that were not begun, or not ended, when the time was over.
    """

    replayed: int
    failed: int
    left: int
    rest: Sequence[LetterQueue] = ()


async def replay_letters(
    store: DeadLetterStore,
    handler: Handler,
    chosen: Iterable[LetterHead],
    report: Report,
    epoch: int,
    require: Callable[[], None],
    turn: Turn,
    more: Callable[[], bool],
) -> Replayed:
    """Replays the whole queues of the chosen letters, all of one scope and ``handler``: a single
    letter would break the order.

    A letter is resolved when its handler has returned. If the handler fails, the letter and all
    letters after it stay. Letters that join these queues meanwhile are replayed as well. One event
    is in memory at a time. ``epoch`` is that of the scope's checkpoint, which the handler may
    take. ``require`` raises if another process may replay: it is called before a letter is handed
    over, and before it is resolved. No letter is begun once ``more`` says no.
    """
    names = list(dict.fromkeys(each.queue for each in chosen))
    replayed, failed, begun = 0, 0, 0

    async def replay(name: LetterQueue) -> bool:
        """Replays a queue; returns whether the time is over before its end."""
        nonlocal replayed, failed
        identity = RunIdentity(name[0], "", "", epoch)
        for _ in range(ROUNDS):
            heads = await in_order(store, await store.queue(name))
            for head in heads:
                if not more():
                    return True
                require()
                try:
                    letter = await store.read(head)
                    error = ""
                except LetterUnreadable as unreadable:
                    letter, error = None, str(unreadable)
                if letter is not None:
                    async with turn(handler.name):
                        error = await _failure(handler, letter, identity)
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
    return Replayed(replayed, failed, sum(left), tuple(names[begun:]))


async def in_order(store: DeadLetterStore, queue: Sequence[LetterHead]) -> Sequence[LetterHead]:
    """The letters of a queue in the order of their events, as far as these say so.

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


def refusal(handler: Handler) -> str:
    """Why no change can be handed to this handler again; empty if one can."""
    if handler.position is not None:
        return (
            "this handler stores its own position, which an earlier change would set back: take a "
            "snapshot of the documents instead ('tailrace snapshot start')"
        )
    return ""


async def _failure(handler: Handler, letter: DeadLetter, identity: RunIdentity) -> str:
    """Hands the letter's event over once; returns the error, or an empty string."""
    event = event_of(letter)
    if event is None:
        return "its event cannot be read: restore the store from a backup, or discard it"
    return await hand_over(handler, [event], identity)


async def hand_over(handler: Handler, events: Sequence[ChangeEvent], identity: RunIdentity) -> str:
    """Calls the handler once with these events (one, unless it takes batches), and commits them.

    Returns the error, or an empty string.
    """
    try:
        with anyio.fail_after(handler.failure.timeout_seconds):
            call, payload = called_with(handler.calls, events)
            require_done(await apart(call, handler.name)(payload, identity))
            if handler.commit is not None:
                require_done(await apart(handler.commit.call, handler.name)(identity))
    except anyio.get_cancelled_exc_class():
        raise
    except BaseException as error:  # noqa: BLE001 - a handler may raise anything; it is reported
        return describe(error)
    return ""


def event_of(letter: DeadLetter) -> ChangeEvent | None:
    """The letter's event; ``None`` if its bytes are not BSON, as in a damaged store."""
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
