"""Hands dead letters to their handlers again, in order, and resolves the handled ones.

The letters of one scope, handler and key form a queue. Only the first of a queue may be handled.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from functools import cmp_to_key

import anyio
import bson
from bson.errors import BSONError

from tailrace.engine.handle.isolation import apart
from tailrace.engine.handle.time_limit import require_done
from tailrace.engine.ports import DeadLetterStore, Handler, RunIdentity, called_with
from tailrace.errors import describe
from tailrace.event.change_event import CODEC, ChangeEvent
from tailrace.model.dead_letter import DeadLetter

ROUNDS = 1000
"""How often to look for letters that joined meanwhile: a daemon may add letters as quickly as the
command replays them, and the command must end."""

_Queue = tuple[str, str, bytes | None]
"""Scope, handler and key."""

Turn = Callable[[str], AbstractAsyncContextManager[object]]
"""Waits until a handler, by its name, has no other call that it must not get beside."""

Report = Callable[[DeadLetter, str], None]
"""Called with each letter and its outcome."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """How many letters were handled, failed again, and are left (including the failed ones)."""

    replayed: int
    failed: int
    left: int


async def replay_letters(
    store: DeadLetterStore,
    handlers: Mapping[str, Handler],
    chosen: Collection[DeadLetter],
    report: Report,
    epochs: Mapping[str, int],
    require: Callable[[], None],
    turn: Turn = lambda handler: nullcontext(),
    more: Callable[[], bool] = lambda: True,
) -> Replayed:
    """Replays the whole queues of the chosen letters: a single letter would break the order.

    A letter is resolved when its handler has returned. If the handler fails, the letter and all
    letters after it stay. Letters that join these queues meanwhile are replayed as well. ``epochs``
    are the epochs of the scopes' checkpoints, which handlers may take. ``require`` raises if
    another process may replay: it is called before a letter is handed over, and before it is
    resolved. No letter is begun once ``more`` says no.
    """
    replayed, stuck = 0, set[_Queue]()
    for _ in range(ROUNDS):
        before = replayed
        for name, queue in queues(await store.letters(), chosen).items():
            if name in stuck:
                continue
            handler = handlers[queue[0].handler]
            identity = RunIdentity(queue[0].scope, "", "", epochs.get(queue[0].scope, 0))
            for letter in queue:
                if not more():
                    break
                require()
                async with turn(handler.name):
                    error = await _failure(handler, letter, identity)
                if error:
                    stuck.add(name)
                    report(letter, f"failed: {error}")
                    break
                require()
                await store.resolve(letter, "replayed")
                replayed += 1
                report(letter, "replayed")
        if replayed == before:
            break
    left = queues(await store.letters(), chosen).values()
    return Replayed(replayed, len(stuck), sum(map(len, left)))


def refusal(handler: Handler) -> str:
    """Why no letter can be replayed to this handler; empty if letters can."""
    if handler.commit is not None and handler.position is not None:
        return "this handler takes events from a running scope only: discard the dead letter"
    if handler.position is not None:
        return (
            "this handler stores its own position, which an earlier change would set back: apply "
            "the change by hand, then discard the dead letter"
        )
    return ""


async def _failure(handler: Handler, letter: DeadLetter, identity: RunIdentity) -> str:
    """Hands the letter's event over once; returns the error, or an empty string."""
    if reason := refusal(handler):
        return reason
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


def queues(
    letters: Iterable[DeadLetter], chosen: Iterable[DeadLetter] | None = None
) -> dict[_Queue, Sequence[DeadLetter]]:
    """The letters by queue, in the order of their events; only queues with ``chosen`` letters.

    If a scope restarts from an older checkpoint, earlier events of the same key come again and are
    stored last. Replayed last, they would undo the later events.
    """
    names = None if chosen is None else {_queue(letter) for letter in chosen}
    found: dict[_Queue, list[DeadLetter]] = {}
    for letter in letters:
        if names is None or _queue(letter) in names:
            found.setdefault(_queue(letter), []).append(letter)
    return {name: _in_order(queue) for name, queue in found.items()}


def _queue(letter: DeadLetter) -> _Queue:
    return letter.scope, letter.handler, letter.key


def _in_order(queue: list[DeadLetter]) -> list[DeadLetter]:
    events = [event for letter in queue if (event := event_of(letter)) is not None]
    if len(events) < len(queue) or any(event.cluster_time is None for event in events):
        return queue
    order = sorted(zip(events, queue, strict=True), key=cmp_to_key(_compare))
    return [letter for _, letter in order]


def _compare(one: tuple[ChangeEvent, DeadLetter], other: tuple[ChangeEvent, DeadLetter]) -> int:
    """Compares cluster times, which never decrease for a document; if equal, tokens if possible."""
    mine, theirs = one[0].cluster_time, other[0].cluster_time
    if mine is not None and theirs is not None and mine != theirs:
        return -1 if mine < theirs else 1
    return int(other[0].token.precedes(one[0].token)) - int(one[0].token.precedes(other[0].token))
