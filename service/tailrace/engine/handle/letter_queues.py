"""Letters as queues: those of one key of one handler, of which only the first may be handled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cmp_to_key
from typing import NamedTuple

import bson
from bson.errors import BSONError

from tailrace.event.change_event import CODEC, ChangeEvent
from tailrace.model.dead_letter import DeadLetter


class QueueName(NamedTuple):
    """Whose queue it is."""

    scope: str
    handler: str
    key: bytes | None

    @classmethod
    def of(cls, letter: DeadLetter) -> QueueName:
        """The queue that a letter is in."""
        return cls(letter.scope, letter.handler, letter.key)


def event_of(letter: DeadLetter) -> ChangeEvent | None:
    """The letter's event; ``None`` where its bytes are no BSON, as a damaged store may have it."""
    try:
        bson.decode(letter.raw, CODEC)
    except (BSONError, ArithmeticError, LookupError, RecursionError, TypeError, ValueError):
        return None
    return ChangeEvent.from_raw(letter.raw)


def queues(letters: Iterable[DeadLetter]) -> dict[QueueName, Sequence[DeadLetter]]:
    """The letters by queue, each in the order of its events.

    When a scope starts again from a checkpoint before them, earlier events of the same key come
    once more and are stored last: replayed last, they would undo what came after them.
    """
    found: dict[QueueName, list[DeadLetter]] = {}
    for letter in letters:
        found.setdefault(QueueName.of(letter), []).append(letter)
    return {name: _in_order(queue) for name, queue in found.items()}


def _in_order(queue: list[DeadLetter]) -> list[DeadLetter]:
    events = [event for letter in queue if (event := event_of(letter)) is not None]
    if len(events) < len(queue) or any(event.cluster_time is None for event in events):
        return queue
    order = sorted(zip(events, queue, strict=True), key=cmp_to_key(_compare))
    return [letter for _, letter in order]


def _compare(one: tuple[ChangeEvent, DeadLetter], other: tuple[ChangeEvent, DeadLetter]) -> int:
    """By cluster time, which never goes back for a document; within one, as far as tokens tell."""
    mine, theirs = one[0].cluster_time, other[0].cluster_time
    if mine is not None and theirs is not None and mine != theirs:
        return -1 if mine < theirs else 1
    return int(other[0].token.precedes(one[0].token)) - int(one[0].token.precedes(other[0].token))
