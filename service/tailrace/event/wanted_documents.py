"""The documents that a look-up asks for: the filter of its find, and the choice among answers.

They are asked for by ``_id`` alone: the rest of a document key is older than the update, and may
have changed again. It serves to choose among several documents with this ``_id``
(:mod:`tailrace.event.document_identity`). Values that the server treats as equal are asked for
only once (:func:`tailrace.event.document_key.identity`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import Any, TypeAlias

from bson import decode, encode

from tailrace.event import bson
from tailrace.event.bson import encoded
from tailrace.event.change_event import ChangeEvent
from tailrace.event.codec import CODEC
from tailrace.event.document_identity import ShardKey, key_after, shard_key_of
from tailrace.event.document_key import equal_to, identity, is_like_pattern, shard_key
from tailrace.event.reply import Reply

_ID_OF_OBJECT = b"%c_id\0" % bson.OBJECT_ID
_ID_VALUE = len(_ID_OF_OBJECT)
_OBJECT_ID_END = 4 + _ID_VALUE + 12
_WITH_TEXT = (bson.STRING, bson.DOCUMENT, bson.ARRAY)

MOST_DOUBLES = 1000
"""More documents of the same ``_id``, on as many shards, are not looked for."""

MOST_KEYS = 8000
"""The most keys of one find. More keys would not be cheaper, and the answer would come later."""
_NUMBERS = [b"%d\0" % number for number in range(MOST_KEYS)]


@dataclass(frozen=True, slots=True)
class WantedShardKey:
    """Which of several documents with an ``_id`` an update is about."""

    before: ShardKey
    after: ShardKey

    @classmethod
    def of(cls, update: ChangeEvent) -> WantedShardKey:
        """That of an update, or of another event with a document key."""
        before = shard_key(update.field_bytes("documentKey") or encoded(b""))
        return cls(before, shard_key(encode(key_after(update) or {})))

    def choose(self, documents: Sequence[bytes]) -> bytes:
        """One of the documents (BSON); b"" if there are several, and it is none of them.

        A single one is taken whatever its shard key, which may have changed again.
        """
        if len(documents) == 1:
            return documents[0]
        paths = {*self.before, *self.after}
        decoded: Iterator[dict[str, Any]] = (decode(each, CODEC) for each in documents)
        keys = [shard_key_of(document, paths) for document in decoded]
        for wanted in (self.after, self.before):
            if wanted in keys:
                return documents[keys.index(wanted)]
        return b""


@dataclass(slots=True)
class WantedDocuments:
    """Documents that are wanted of one collection, and these documents once they are :meth:`found`.

    ``keys`` and ``documents`` are by :func:`identity`. A key is ``{_id: …}``, or ``None`` if the
    ``_id`` is an ObjectId: then the identity is the element.
    """

    keys: dict[bytes, bytes | None] = field(default_factory=dict)
    documents: dict[bytes, bytes] = field(default_factory=dict)
    plain: bool = True
    """True while every ``_id`` is an ObjectId."""
    sharded: bool = False
    """Whether one ``_id`` may have several documents, on as many shards."""
    doubles: dict[bytes, list[bytes]] = field(default_factory=dict)
    """The documents of each ``_id``, if the collection is sharded."""

    @property
    def most(self) -> int:
        """The most documents that can be found."""
        return len(self.keys) + (MOST_DOUBLES if self.sharded else 0)

    def filter(self) -> bytes:
        """The filter of a find for these documents, as BSON: by ``_id``, which is never a pattern.

        mongod takes a regular expression in ``$in`` for a pattern, and refuses documents whose
        fields look like operators there (``src/mongo/db/matcher/expression_parser.cpp``,
        ``parseInExpression``). ``$eq`` compares both as values.
        """
        if self.plain:
            values = [name[_ID_VALUE:] for name in self.keys]
            return encoded(_of_ids(repeat(_ID_OF_OBJECT[:1]), values))
        keys = (encoded(name) if key is None else key for name, key in self.keys.items())
        return filter_of(keys)

    def get(self, wanted: WantedOne, default: bytes) -> bytes:
        """The document of an update of a sharded collection."""
        identity_, shard_key_ = wanted
        several = self.doubles.get(identity_) or [self.documents.get(identity_, default)]
        return shard_key_.choose(several)

    def found(self, reply: Reply) -> None:
        """Notes the documents of a reply."""
        buffer, starts, ends = reply.buffer, reply.bounds[::2], reply.bounds[1::2]
        if self.sharded:
            for at, end in zip(starts, ends, strict=True):
                self.doubles.setdefault(identity(buffer, at), []).append(buffer[at:end])
        pairs = zip(starts, ends, strict=True)
        documents = {buffer[at + 4 : at + _OBJECT_ID_END]: buffer[at:end] for at, end in pairs}
        if not documents.keys() <= self.keys.keys():  # not all begin with an ObjectId `_id`
            pairs = zip(starts, ends, strict=True)
            documents = {identity(buffer, at): buffer[at:end] for at, end in pairs}
        self.documents |= documents

    def spelled_otherwise(self) -> dict[bytes, WantedDocuments]:
        """Each key without a document that the collection's collation may equal to another.

        Only text has a collation, and the server alone compares with it.
        """
        if self.plain:
            return {}
        return {
            name: WantedDocuments({name: key}, plain=False)
            for name, key in self.keys.items()
            if name not in self.documents and name[0] in _WITH_TEXT
        }


def filter_of(keys: Iterable[bytes]) -> bytes:
    """The filter of a find for the documents with these keys ``{_id: …}``, as BSON."""
    usual, like = list[bytes](), list[bytes]()
    for key in keys:
        (like if is_like_pattern(key) else usual).append(key)
    among = _of_ids([key[4:5] for key in usual], [key[4 + _ID_VALUE : -1] for key in usual])
    if not like:
        return encoded(among)
    choices = [among, *(b"\x03_id\0" + equal_to(key) for key in like)]
    return encoded(_array(b"$or", repeat(b"\x03"), [encoded(each) for each in choices]))


WantedOne: TypeAlias = tuple[bytes, WantedShardKey]
"""The identity of a document, and what tells it from others with this ``_id``."""


def _of_ids(kinds: Iterable[bytes], values: Sequence[bytes]) -> bytes:
    return b"\x03_id\0" + encoded(_array(b"$in", kinds, values))


def _array(name: bytes, kinds: Iterable[bytes], values: Sequence[bytes]) -> bytes:
    """The element with this name: an array of values with these types."""
    elements = zip(kinds, _NUMBERS, values, strict=False)
    return b"\x04%b\0%b" % (name, encoded(b"".join(chain.from_iterable(elements))))
