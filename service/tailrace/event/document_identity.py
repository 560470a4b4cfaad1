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
from collections.abc import Iterable, Mapping
from typing import Any

import bson
from bson import json_util

from tailrace.event.bson import DOCUMENT, encoded
from tailrace.event.change_event import ChangeEvent
from tailrace.event.codec import CANONICAL_JSON, CODEC
from tailrace.event.document_key import is_object_id, key_text, shard_key
from tailrace.event.document_tree import to_bson, tree_of
from tailrace.event.field_mapping import FieldMapping
from tailrace.event.layout import OPERATION
from tailrace.event.raw_fields import element
from tailrace.event.update_description import apply_update

ShardKey = Mapping[bytes, bytes]
"""As :func:`tailrace.event.document_key.shard_key` gives it."""

_ABSENT = object()
CHANGES_KEY = (b"update", b"replace")
"""The operations after which a document may have another key."""


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
    if is_object_id(key) or len(decoded) == 1 or event.parts[OPERATION] not in CHANGES_KEY:
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
