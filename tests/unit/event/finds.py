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
    """What matches ``{_id: {$in: […]}}`` or ``{$or: [{_id: {$in: […]}}, {_id: {$eq: …}}, …]}``.

    The reply has documents of so many bytes at the most, or one.
    """
    wanted = bson.decode(filter)
    choices = [each["_id"] for each in wanted.get("$or", [wanted])]
    keys = [
        {"_id": value}
        for each in choices
        for value in (each["$in"] if "$in" in each else [each["$eq"]])
    ]
    raws = [each if isinstance(each, bytes) else bson.encode(each) for each in documents]
    matching = [raw for raw in raws if any(_matches(raw, key) for key in keys)]
    sizes = accumulate(map(len, matching))
    most = max(sum(size <= most_bytes for size in sizes), 1)
    more = len(matching) > most
    return read_reply(reply(matching[:most], cursor_id=7 if more else 0, name="firstBatch"))


def _matches(raw: bytes, key: Mapping[str, Any]) -> bool:
    return identity(raw, 0) == identity(bson.encode(key), 0)
