"""What a server answers to a find by document keys, of documents that a test has."""

from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Any

import bson

from tailrace.event.document_key import identity
from tailrace.event.reply import Reply, read_reply
from tests.unit.event.documents import reply

Documents = Iterable[Mapping[str, Any] | bytes]


def answer(filter: bytes, documents: Documents, most_bytes: int = 1 << 40) -> Reply:
    """What matches ``{_id: {$in: […]}}`` or ``{$or: [key, …]}``.

    The reply has documents of so many bytes at the most, or one.
    """
    wanted = bson.decode(filter)
    keys = [{"_id": one} for one in wanted["_id"]["$in"]] if "_id" in wanted else wanted["$or"]
    raws = [each if isinstance(each, bytes) else bson.encode(each) for each in documents]
    matching = [raw for raw in raws if any(_matches(raw, key) for key in keys)]
    sizes = accumulate(map(len, matching))
    most = max(sum(size <= most_bytes for size in sizes), 1)
    more = len(matching) > most
    return read_reply(reply(matching[:most], cursor_id=7 if more else 0, name="firstBatch"))


def _matches(raw: bytes, key: Mapping[str, Any]) -> bool:
    document = bson.decode(raw)
    same_id = "_id" not in key or identity(raw, 0) == identity(bson.encode(key), 0)
    return same_id and all(document.get(name) == key[name] for name in key if name != "_id")
