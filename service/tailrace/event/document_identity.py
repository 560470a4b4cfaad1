"""Which document a change leaves behind, when a sharded collection changes document keys.

A document is identified by its collection and ``_id`` (:mod:`tailrace.event.document_key`). In a
sharded collection, ``documentKey`` also has the shard key, which an update may change. What mongod
sends then (file names are of its source, v8.0):

- An update or replacement has the key *before* it. ``src/mongo/db/exec/classic/update_stage.cpp``,
  ``UpdateStage::transformAndUpdate``: ``args.criteria = collDesc.extractDocumentKey(oldObjValue)``.
  In 6.0 the argument is called ``newObj``, and still is the old document there.
- Its next event has the key after it. An insert has the key of the new document.
- A field that the document lacks is not in its key
  (``src/mongo/db/s/collection_metadata.cpp``, ``extractDocumentKey``).
- A document whose new key belongs to another shard is deleted on the one and inserted on the other,
  in one transaction (``src/mongo/s/commands/document_shard_key_update_util.cpp``). mongos merges
  the shards' events in the order of their tokens (``src/mongo/db/pipeline/resume_token.cpp``): by
  the time, which a transaction has only one of; by the number of the operation among those of its
  shard; by the collection; by the document key, in tokens of version 2 after the operation's name.
  So the insert may come before the delete, and before an earlier update in the same transaction.

Only ``_id`` identifies a document here, though the server keeps it unique on each shard only. Of
documents that share an ``_id`` on several shards, the one that was written last counts.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import bson
from bson import json_util

from tailrace.event.bson import DOCUMENT, encoded
from tailrace.event.change_event import ChangeEvent
from tailrace.event.codec import CANONICAL_JSON, CODEC
from tailrace.event.document_key import is_object_id, key_text, shard_key
from tailrace.event.document_tree import to_bson, tree_of
from tailrace.event.field_mapping import FieldMapping
from tailrace.event.layout import INCREMENT, OPERATION, SECONDS
from tailrace.event.raw_fields import element
from tailrace.event.update_description import apply_update

ShardKey = Mapping[bytes, bytes]
"""As :func:`tailrace.event.document_key.shard_key` gives it."""

_ABSENT = object()
_CHANGES_KEY = (b"update", b"replace")


def has_shard_key(event: ChangeEvent) -> bool:
    """Whether the event's document key has more fields than ``_id``."""
    key = event.field_bytes("documentKey")
    return key is not None and not is_object_id(key) and len(shard_key(key)) > 0


def key_after(event: ChangeEvent) -> dict[str, Any] | None:
    """The document key of the event's document after the event; of a delete, its last one."""
    key = event.field_bytes("documentKey")
    if key is None:
        return None
    decoded: dict[str, Any] = bson.decode(key, CODEC)
    if is_object_id(key) or len(decoded) == 1 or event.parts[OPERATION] not in _CHANGES_KEY:
        return decoded
    return changed_key(
        decoded, event.operation_type, event.fresh().full_document, event.fresh().update_description
    )


def key_after_text(event: ChangeEvent) -> str:
    """:func:`key_after` as canonical Extended JSON."""
    key = event.field_bytes("documentKey") or encoded(b"")
    if not shard_key(key):
        return key_text(key)
    after = key_after(event)
    if after is None or after == event.fresh().document_key:
        return key_text(key)
    return key_text(bson.encode(after))


def shard_key_of_text(text: str) -> ShardKey:
    """The shard key in a document key as :func:`key_after_text` makes it."""
    return shard_key(to_bson(tree_of(text)))


def shard_key_in(document: bytes, paths: Iterable[bytes]) -> ShardKey:
    """The fields of a shard key that a document has, which is Extended JSON.

    Only these are read as such: others may be named as types (``{"$date": "soon"}``).
    """
    values = json.dumps(_values(json.loads(document), paths))
    return shard_key(bson.encode(json_util.loads(values, json_options=CANONICAL_JSON)))


def shard_key_of(document: Mapping[str, Any], paths: Iterable[bytes]) -> ShardKey:
    """The fields of a shard key that a document has."""
    return shard_key(bson.encode(_values(document, paths)))


def _values(document: Mapping[str, Any], paths: Iterable[bytes]) -> dict[str, Any]:
    """The values at these paths that a document has, by path."""
    values = {path.decode(): _value(document, path.decode()) for path in paths}
    return {path: value for path, value in values.items() if value is not _ABSENT}


def changed_key(
    key: dict[str, Any],
    operation: str,
    document: Mapping[str, Any] | None,
    update_description: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """A document key after an ``update`` or a ``replace``. All may be canonical Extended JSON.

    The description of an update is exact, while its document may have been looked up later. A field
    of which neither tells anything (a pipeline removed it) stays as it was.
    """
    if operation == "replace" and document is not None:
        values = {path: _value(document, path) for path in key}
    elif operation == "update" and update_description is not None:
        values = _described(key, update_description)
    else:
        values = {path: _value(document or {}, path) for path in key}
        values = {path: key[path] if at is _ABSENT else at for path, at in values.items()}
    values["_id"] = key.get("_id", _ABSENT)
    return {path: value for path, value in values.items() if value is not _ABSENT}


def is_of_another(last: ShardKey, deleted: ShardKey, *, same_time: bool) -> bool:
    """Whether a delete does not concern the living document with the same ``_id``.

    ``last``: the shard key that the living document had after its last change. ``same_time``: that
    change has the delete's cluster time, so both belong to one transaction. Otherwise a key of
    other fields is older than the collection's shard key.
    """
    return last != deleted and (same_time or last.keys() == deleted.keys())


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


def shows(key: ShardKey, mapping: FieldMapping | None) -> bool:
    """Whether documents have the fields of a shard key in their places after a mapping."""
    if mapping is None:
        return True
    document = encoded(b"".join(_nested(path, value) for path, value in key.items()))
    return mapping.of_document(document) == document


def _nested(path: bytes, dotted: bytes) -> bytes:
    """The element of a dotted path, with its value in documents below one another."""
    *above, name = path.split(b".")
    made = dotted[:1] + name + dotted[1 + len(path) :]
    for part in reversed(above):
        made = element(DOCUMENT, part, encoded(made))
    return made


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
        if parts[OPERATION] in _CHANGES_KEY and before:
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


def _described(key: Mapping[str, Any], update_description: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a key's paths after an update, from its description."""
    document: dict[str, Any] = {}
    for path, value in key.items():
        document = apply_update(document, {"updatedFields": {path: value}})
    parts = (("updatedFields", Mapping), ("removedFields", list), ("disambiguatedPaths", Mapping))
    # A shard key has no arrays that could be truncated. A pipeline may have reshaped other parts.
    known = {name: update_description.get(name) for name, _ in parts}
    after = apply_update(
        document, {name: known[name] for name, kind in parts if isinstance(known[name], kind)}
    )
    return {path: _value(after, path) for path in key}


def _value(document: Mapping[str, Any], path: str) -> Any:
    """The value at a dotted path, or :data:`_ABSENT`."""
    value: Any = document
    for part in path.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return _ABSENT
        value = value[part]
    return value
