"""Hands dead letters to their handlers again, in order, and resolves those that are handled."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import anyio

from tailrace.dead_letters.console import LetterStore, refuse, select, summary
from tailrace.dead_letters.held import Identity
from tailrace.dead_letters.queues import QueueName, queues
from tailrace.dead_letters.text import number, printable
from tailrace.engine.handle.isolation import apart
from tailrace.engine.handle.time_limit import require_done
from tailrace.engine.ports import Handler
from tailrace.errors import ConfigurationError, Problem, describe
from tailrace.event.dead_letter import DeadLetter

ROUNDS = 1000
"""How often letters are looked for that have joined meanwhile: a daemon that adds them as quickly
as they are replayed must not hold the command for ever."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """What came of it: how many letters were handled, failed again, and still wait.

    ``left`` counts those that failed, those behind them, and what joined at the very end.
    """

    replayed: int
    failed: int
    left: int
    dry_run: bool = False

    def __str__(self) -> str:
        if self.dry_run:
            return f"Dry run: {number(self.left)} would be replayed, none was.\n"
        text = f"Replayed {number(self.replayed)}; {self.failed} failed again, {self.left} left.\n"
        if self.left > self.failed:
            text += (
                "Those left wait behind one of the same document, or joined meanwhile. Mend the "
                "handler or discard what fails, then replay again.\n"
            )
        return text


async def replay_letters(
    store: LetterStore,
    handlers: Mapping[str, Handler],
    *,
    ids: Collection[str] = (),
    scope: str | None = None,
    handler: str | None = None,
    dry_run: bool = False,
    report: Callable[[str], None] = lambda line: None,
) -> Replayed:
    """Replays the queues that hold the chosen letters: order forbids to take one out of its queue.

    A letter is resolved, durably, once its handler has returned; if it fails, it stays, and so
    does all that is behind it. Each is tried once. What joins the same queues meanwhile is
    replayed as well. ``report`` gets a line a letter. Not for two at once on the same store: the
    second would hand over again what the first has just replayed.

    Raises :class:`ConfigurationError`, before anything is handled, for letters that do not wait
    and for handlers that are not among ``handlers``.
    """
    if handler is not None and handler not in handlers:
        refuse(f"handler {handler!r}", "is not in the configuration")
    letters = await store.letters(scope, handler)
    chosen = {QueueName.of(letter) for letter in select(letters, ids)}
    _require_handlers({queue.handler for queue in chosen}, handlers)
    if dry_run:
        return Replayed(0, 0, _report_all(letters, chosen, handlers, report), dry_run=True)

    replayed, failed = 0, set[Identity]()
    stuck: set[QueueName] = set()
    for _ in range(ROUNDS):
        before = replayed
        for name, queue in queues(letters).items():
            if name not in chosen or name in stuck:
                continue
            for letter in queue:
                if error := await _failure(handlers[name.handler].of_scope(name.scope), letter):
                    failed.add(Identity.of(letter))
                    stuck.add(name)
                    report(f"{summary(letter)}  failed: {error}")
                    break
                await store.resolve(letter, "replayed")
                replayed += 1
                report(f"{summary(letter)}  replayed")
        letters = await store.letters(scope, handler)
        if replayed == before:
            break
    left = [letter for letter in letters if QueueName.of(letter) in chosen]
    return Replayed(replayed, len(failed), len(left))


def _refusal(handler: Handler) -> str:
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
    if refusal := _refusal(handler):
        return refusal
    try:
        with anyio.fail_after(handler.failure.timeout_seconds):
            if handler.on_event is not None:
                require_done(await apart(handler.on_event, handler.name)(letter.event))
            elif handler.on_events is not None:
                payload = handler.payload([letter.event])
                require_done(await apart(handler.on_events, handler.name)(payload))
    except anyio.get_cancelled_exc_class():
        raise
    except BaseException as error:  # noqa: BLE001 - a handler may raise anything; it is reported
        return printable(describe(error))
    return ""


def _require_handlers(names: Collection[str], handlers: Mapping[str, Handler]) -> None:
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


def _report_all(
    letters: Collection[DeadLetter],
    chosen: Collection[QueueName],
    handlers: Mapping[str, Handler],
    report: Callable[[str], None],
) -> int:
    count = 0
    for name, queue in queues(letters).items():
        if name in chosen:
            refusal = _refusal(handlers[name.handler])
            for letter in queue:
                outcome = f"would be refused: {refusal}" if refusal else "would be replayed"
                report(f"{summary(letter)}  {outcome}")
                count += not refusal
    return count
