"""The key of a document as an operator writes it, and in events, dead letters and segments."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import bson
from bson import json_util
from bson.int64 import Int64

from tailrace.event.bson import INT32
from tailrace.event.codec import CANONICAL_JSON, NOT_JSON, RELAXED_JSON
from tailrace.event.document_key import identity

_OBJECT_ID = re.compile(r"\s*(?:ObjectId\()?[\"']?([0-9a-fA-F]{24})[\"']?\)?\s*")


@dataclass(frozen=True, slots=True)
class Key:
    """The ``_id`` of a document. ``element``: its BSON element, equal for equal values."""

    value: Any
    element: bytes

    @property
    def text(self) -> str:
        """As canonical Extended JSON."""
        return json_util.dumps(self.value, json_options=json_util.CANONICAL_JSON_OPTIONS)

    @property
    def filter(self) -> str:
        """A filter for this document, as Extended JSON."""
        return f'{{"_id": {json_util.dumps(self.value, json_options=RELAXED_JSON)}}}'

    def is_of(self, key: bytes | None) -> bool:
        """Whether a key of :attr:`tailrace.event.ChangeEvent.key` has this ``_id``."""
        if key is None or not key.endswith(self.element):
            return False
        return len(key) == len(self.element) or INT32(key, 0)[0] + len(self.element) == len(key)

    def written(self) -> Iterator[bytes]:
        """The documents ``{_id: value}`` as the server may have it: in each type of its number."""
        values = [self.value]
        if isinstance(self.value, (int, float)) and not isinstance(self.value, bool):
            number = self.value
            if float(number).is_integer() and -(2**63) <= number < 2**63:
                values = [float(number), Int64(number)]
                values += [int(number)] if -(2**31) <= number < 2**31 else []
        for value in values:
            yield bson.encode({"_id": value})


def read_key_text(text: str) -> tuple[Mapping[str, Any], bytes]:
    """What :func:`tailrace.event.document_key.key_text` has written: the fields of the document
    key, and ``{_id: …}`` as BSON. Raises ``ValueError`` for any other text."""
    try:
        key = json_util.loads(text, json_options=CANONICAL_JSON)
        return key, bson.encode({"_id": key["_id"]})
    except NOT_JSON as error:
        raise ValueError(f"{text!a:.60} is no document key: {error}") from error


def read_key(text: str) -> Key:
    """The key in an operator's Extended JSON: a value of ``_id``, or a document that has one.

    Raises ``ValueError``, with what to write instead.
    """
    try:
        written = json_util.loads(text, json_options=RELAXED_JSON)
    except NOT_JSON:
        if match := _OBJECT_ID.fullmatch(text):
            advice = f'for an ObjectId write {{"$oid": "{match[1].lower()}"}}'
        else:
            advice = 'write text with quotes ("A-17") and an ObjectId as {"$oid": "65a0…"}'
        raise ValueError(f"{text!a:.60} is not Extended JSON: {advice}") from None
    value = written["_id"] if isinstance(written, dict) and "_id" in written else written
    try:
        raw = bson.encode({"_id": value})
    except NOT_JSON as error:
        raise ValueError(f"{text!a:.60} holds a value that BSON cannot store: {error}") from None
    return Key(value, identity(raw, 0))
