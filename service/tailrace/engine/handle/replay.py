"""Hands dead letters to their handlers again, in order, and resolves those that are handled."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import anyio

from tailrace.engine.handle.isolation import apart
from tailrace.engine.handle.letter_queues import QueueName, event_of, queues
from tailrace.engine.handle.time_limit import require_done
from tailrace.engine.ports import DeadLetterStore, Handler
from tailrace.errors import ConfigurationError, Problem, describe
from tailrace.model.dead_letter import DeadLetter

ROUNDS = 1000
"""How often letters are looked for that have joined meanwhile: a daemon that adds them as quickly
as they are replayed must not hold the command for ever."""

Report = Callable[[DeadLetter, str], None]
"""Told of each letter what came of it."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """How many letters were handled, failed again, and still wait (the failed ones too)."""

    replayed: int
    failed: int
    left: int


async def replay_letters(
    store: DeadLetterStore,
    handlers: Mapping[str, Handler],
    chosen: Collection[DeadLetter],
    report: Report,
) -> Replayed:
    """Replays the queues that hold the chosen letters: order forbids to take one out of its queue.

    A letter is resolved once its handler has returned; if it fails, it stays, and so does all that
    is behind it. What joins the same queues meanwhile is replayed as well. Raises
    :class:`ConfigurationError`, before anything is handled, for handlers not among ``handlers``.
    """
    names = {QueueName.of(letter) for letter in chosen}
    require_handlers({name.handler for name in names}, handlers)
    replayed, stuck = 0, set[QueueName]()
    for _ in range(ROUNDS):
        before = replayed
        for name, queue in queues(await store.letters()).items():
            if name not in names or name in stuck:
                continue
            handler = handlers[name.handler].of_scope(name.scope)
            for letter in queue:
                if error := await _failure(handler, letter):
                    stuck.add(name)
                    report(letter, f"failed: {error}")
                    break
                await store.resolve(letter, "replayed")
                replayed += 1
                report(letter, "replayed")
        if replayed == before:
            break
    left = sum(QueueName.of(letter) in names for letter in await store.letters())
    return Replayed(replayed, len(stuck), left)


def refusal(handler: Handler) -> str:
    """Why no letter can be replayed to the handler, if so."""
    if handler.commit is not None:
        return "this handler takes events from a running scope only: discard the letter"
    if handler.position is not None:
        return (
            "this handler stores its own position, which an earlier change would set back: apply "
            "the change by hand, then discard the letter"
        )
    return ""


async def _failure(handler: Handler, letter: DeadLetter) -> str:
    """Hands the letter's event over, once; the error, or nothing."""
    if reason := refusal(handler):
        return reason
    event = event_of(letter)
    if event is None:
        return "its event cannot be read: restore the store from a backup, or discard the letter"
    try:
        with anyio.fail_after(handler.failure.timeout_seconds):
            payload = event if handler.on_event is not None else handler.payload([event])
            require_done(await apart(handler.call, handler.name)(payload))
    except anyio.get_cancelled_exc_class():
        raise
    except BaseException as error:  # noqa: BLE001 - a handler may raise anything; it is reported
        return describe(error)
    return ""


def require_handlers(names: Collection[str], handlers: Mapping[str, Handler]) -> None:
    """Raises :class:`ConfigurationError` for handlers that have letters and are not configured."""
    problems = [
        Problem(
            f"handler {name!r}",
            "has dead letters and is not in the configuration: add it again, discard them, or "
            "choose others with --handler",
        )
        for name in sorted(names)
        if name not in handlers
    ]
    if problems:
        raise ConfigurationError(*problems)
