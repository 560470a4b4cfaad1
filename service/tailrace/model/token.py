"""Resume tokens: opaque documents, kept as the bytes that the server sent.

Two things are read from them if possible: the time at the front of mongod's ``_data`` (for lag, and
as a fallback start point), and the order of two tokens.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import bson
from bson import json_util
from bson.errors import BSONError
from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp

from tailrace.errors import describe

# mongod, src/mongo/db/pipeline/resume_token.cpp: a KeyString, whose first element is the
# cluster time (type byte 0x82, then 4 bytes of seconds and 4 of increment, big endian).
_KEY_STRING_TIME = re.compile(r"82([0-9A-Fa-f]{8})([0-9A-Fa-f]{8})[0-9A-Fa-f]*\Z")
# After the time: the version of the token, and its type, 0 for a high-water mark.
_HIGH_WATER = re.compile(r"82[0-9A-Fa-f]{16}2B[0-9A-Fa-f]{2}29")
# The time, the version, and the event among those of its time: the index in its transaction, and
# whether it is an invalidate. Then come the collection's UUID and the key, in the version's format.
_PARTS = re.compile(
    r"82([0-9A-F]{16})2B([0-9A-F]{2})"
    r"((?:29|2C0100)(?:29|2B[0-9A-F]{2}|2C[0-9A-F]{4}|2D[0-9A-F]{6})6[EF])([0-9A-F]*)\Z"
)
_UUID = len("5A1004") + 32

NOT_A_DOCUMENT = (
    BSONError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
)
"""What bson's codecs raise, besides ValueError, for text that is not a token."""

DIGEST = 12
"""Number of characters in a digest."""


@dataclass(frozen=True, slots=True)
class ResumeToken:
    """One resume token; ``raw`` is its BSON document. Tokens are equal if their bytes are."""

    raw: bytes

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> ResumeToken:
        """The token of a decoded document (an operator's, or a store's)."""
        return cls(bson.encode(document))

    @classmethod
    def from_json(cls, text: str) -> ResumeToken:
        """Reads what :meth:`to_json` wrote; raises ``ValueError`` for any other text."""
        try:
            document = json_util.loads(text, json_options=json_util.CANONICAL_JSON_OPTIONS)
            if not isinstance(document, dict):
                raise ValueError("a resume token is a document")
            return cls.of(document)
        except NOT_A_DOCUMENT as error:
            raise ValueError(f"not a resume token: {describe(error)}") from error

    def to_json(self) -> str:
        """Canonical Extended JSON: what stores keep and operators see."""
        return json_util.dumps(self.document, json_options=json_util.CANONICAL_JSON_OPTIONS)

    @property
    def document(self) -> dict[str, Any]:
        """The token decoded."""
        return bson.decode(self.raw)

    @property
    def wire(self) -> RawBSONDocument:
        """The token as a command argument: the same bytes go back to the server."""
        return RawBSONDocument(self.raw)

    @property
    def cluster_time(self) -> Timestamp | None:
        """The time inside the token; ``None`` if it is not one of mongod's."""
        match = _KEY_STRING_TIME.match(self._key_string)
        return Timestamp(int(match[1], 16), int(match[2], 16)) if match else None

    @property
    def is_high_water(self) -> bool:
        """Whether it is known to be a high-water mark, which sorts before the events of its time.

        A mark that the server sends after it searched its whole oplog has a time that is over.
        """
        return _HIGH_WATER.match(self._key_string) is not None

    @property
    def digest(self) -> str:
        """Twelve characters that identify the token in logs, which never show a whole one."""
        return hashlib.sha256(self.raw).hexdigest()[:DIGEST]

    def precedes(self, other: ResumeToken) -> bool:
        """Whether this token is known to be before the other: mongod's tokens sort by bytes.

        An upgrade of the server may change their format: then positions in the oplog are compared.
        """
        mine, theirs = self._key_string.upper(), other._key_string.upper()
        known = _KEY_STRING_TIME.match(mine) and _KEY_STRING_TIME.match(theirs)
        if (parts := _of_two_versions(mine, theirs)) is not None:
            one, two = parts
            return one[1] + one[3] < two[1] + two[3]
        return bool(known) and mine < theirs

    def is_at(self, other: ResumeToken | None) -> bool:
        """Whether both are known to be of one event: equal but for what an upgrade has changed."""
        if other is None or self == other:
            return other is not None
        parts = _of_two_versions(self._key_string.upper(), other._key_string.upper())
        if parts is None:
            return False
        one, two = sorted(parts, key=lambda part: part[2])
        key = one[4][_UUID:].removeprefix("46").removesuffix("0004")  # the newer one has it within
        same = one[1] == two[1] and one[3] == two[3] and one[4][:_UUID] == two[4][:_UUID]
        return same and key in two[4][_UUID:]

    @property
    def _key_string(self) -> str:
        """``_data``, or "" if the bytes hold no such text."""
        try:
            data = self.document.get("_data")
        except BSONError:
            return ""
        return data if isinstance(data, str) else ""


def _of_two_versions(mine: str, theirs: str) -> tuple[re.Match[str], re.Match[str]] | None:
    """The parts of two tokens of different versions; ``None`` if they are not that."""
    if mine[18:22] == theirs[18:22]:
        return None
    one, two = _PARTS.match(mine), _PARTS.match(theirs)
    return (one, two) if one is not None and two is not None else None
