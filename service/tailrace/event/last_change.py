"""The change that decides what becomes of each document in a batch of events.

Of a sharded collection, :mod:`tailrace.event.document_identity` says why that need not be the last.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

import bson

from tailrace.event.change_event import ChangeEvent
from tailrace.event.document_identity import (
    CHANGES_KEY,
    ShardKey,
    has_shard_key,
    is_of_another,
    key_after,
)
from tailrace.event.document_key import shard_key
from tailrace.event.layout import INCREMENT, OPERATION, SECONDS


@dataclass(frozen=True, slots=True)
class LastChange:
    """What a batch does to one document: the event at ``index`` decides what becomes of it.

    ``shard_keys``: those that the document had in the batch, if the event is a delete. A
    destination deletes the document only if it :meth:`concerns` what it has.
    """

    index: int
    shard_keys: Sequence[ShardKey] = ()

    def concerns(self, stored: ShardKey, *, same_time: bool) -> bool:
        """Whether the document whose last shard key is ``stored`` is the one that is deleted."""
        return not self.shard_keys or not all(
            is_of_another(stored, each, same_time=same_time) for each in self.shard_keys
        )


def last_changes(events: Sequence[ChangeEvent]) -> list[LastChange]:
    """The last change of each document, in the stream's order.

    An event without a document key counts as a document of its own.
    """
    last: dict[object, int] = {}
    sharded: set[object] = set()
    for index, event in enumerate(events):
        key = event.key
        if key is None:
            last[index] = index
            continue
        last.pop(key, None)
        last[key] = index
        if has_shard_key(event):
            sharded.add(key)
    if not sharded:
        return [LastChange(index) for index in last.values()]
    changes: dict[object, list[_KeyChange]] = defaultdict(list)
    for index, event in enumerate(events):
        if event.key in sharded:
            changes[event.key].append(_key_change(index, event))
    decided = [
        _decided(changes[key]) if key in sharded else LastChange(index)
        for key, index in last.items()
    ]
    return sorted(decided, key=lambda change: change.index)


def overtaken(events: Sequence[ChangeEvent]) -> frozenset[int]:
    """The indices of events that come after the insert that moved their document elsewhere.

    They belong to the same transaction and to a shard that the document leaves in it. What stands
    in them is older than the document.
    """
    changes: dict[object, list[_KeyChange]] = defaultdict(list)
    deletes = [event.key for event in events if event.parts[OPERATION] == b"delete"]
    keys = {key for key in deletes if key is not None}
    if not keys or not any(has_shard_key(event) for event in events if event.key in keys):
        return frozenset()
    for index, event in enumerate(events):
        if event.key in keys:
            changes[event.key].append(_key_change(index, event))
    return frozenset(each.index for of_one in changes.values() for each in _overtaken(of_one))


def all_changes(events: Sequence[ChangeEvent]) -> list[LastChange]:
    """Every change in the stream's order, but for those that the move of a document overtook."""
    left_out = overtaken(events)
    return [
        LastChange(index, last_changes([event])[0].shard_keys)
        for index, event in enumerate(events)
        if index not in left_out
    ]


@dataclass(frozen=True, slots=True)
class _KeyChange:
    """An event of a document of a sharded collection. A delete has no shard key ``after`` it."""

    index: int
    time: tuple[int | None, int | None]
    before: ShardKey
    after: ShardKey | None

    def ends(self, key: ShardKey) -> bool:
        """Whether the document no longer has this key."""
        return self.before == key != self.after


def _key_change(index: int, event: ChangeEvent) -> _KeyChange:
    parts, after = event.parts, None
    before = shard_key(event.field_bytes("documentKey") or b"")
    if parts[OPERATION] != b"delete":
        after = before
        if parts[OPERATION] in CHANGES_KEY and before:
            after = shard_key(bson.encode(key_after(event) or {}))
    return _KeyChange(index, (parts[SECONDS], parts[INCREMENT]), before, after)


def _overtaken(changes: Iterable[_KeyChange]) -> Iterable[_KeyChange]:
    """See :func:`overtaken`, for the changes of one document."""
    for time, group in groupby(changes, key=lambda change: change.time):
        together = list(group)
        alive_elsewhere = False
        for at, change in enumerate(together if time[0] is not None else ()):
            later = together[at + 1 :]
            lives = change.after is not None and not any(e.ends(change.after) for e in later)
            if alive_elsewhere and not lives:
                yield change
            alive_elsewhere |= lives


def _decided(changes: list[_KeyChange]) -> LastChange:
    """The change of one document that decides, as :mod:`tailrace.pipeline.versions` does it."""
    left_out = {change.index for change in _overtaken(changes)}
    last: _KeyChange | None = None
    decisive = changes[-1].index
    for change in changes:
        if change.index in left_out:
            continue
        if change.after is None and last is not None and last.after is not None:
            same_time = last.time == change.time
            if is_of_another(last.after, change.before, same_time=same_time):
                continue
        last, decisive = change, change.index
    if last is None or last.after is not None:
        return LastChange(decisive)
    keys = [key for change in changes for key in (change.before, change.after) if key is not None]
    return LastChange(decisive, keys)
