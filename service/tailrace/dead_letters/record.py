"""A letter, or what became of one, as a line of canonical Extended JSON; and back, exactly.

    {"letter": "5f3a…", "scope": "orders", "handler": "audit", "error": "…", "attempts": 5,
     "at": "2026-11-30T12:00:00+00:00", "token": {…}, "event": {…}}
    {"resolved": "5f3a…", "scope": "orders", "handler": "audit", "how": "replayed", "at": "…"}

An event that Extended JSON cannot say exactly (deprecated types, repeated keys, text that is not
UTF-8) has its BSON as base64 under ``raw`` in addition; where that stands, it counts.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias, cast, get_args

import bson
from bson import json_util
from bson.codec_options import DatetimeConversion
from bson.errors import BSONError
from bson.json_util import JSONMode, JSONOptions

from tailrace.dead_letters.held import Identity
from tailrace.errors import DeadLetterError, describe
from tailrace.event.change_event import CODEC
from tailrace.event.dead_letter import DeadLetter
from tailrace.event.extended_json import to_json
from tailrace.model import record_fields

How: TypeAlias = Literal["replayed", "discarded"]
"""What became of a letter."""

# Dates as numbers: what lies beyond Python's years comes back too.
_EXACT: JSONOptions = JSONOptions(
    json_mode=JSONMode.CANONICAL, datetime_conversion=DatetimeConversion.DATETIME_MS
)

# What bson's codecs raise, besides ValueError, for what they cannot read or write.
_UNFIT = (BSONError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError)


@dataclass(frozen=True, slots=True)
class Resolution:
    """A letter that waits no more."""

    identity: Identity
    how: How
    at: datetime


def letter_line(letter: DeadLetter) -> bytes:
    """The line of a letter. Raises ``ValueError`` where the event is no BSON."""
    head = {
        "letter": letter.id,
        "scope": letter.scope,
        "handler": letter.handler,
        "error": encodable(letter.error),
        "attempts": letter.attempts,
        "at": moment_text(letter.at),
    }
    event = to_json(letter.raw, canonical=True)
    token = to_json(letter.event.token.raw, canonical=True)
    text = f'{json.dumps(head, ensure_ascii=False)[:-1]}, "token": {token}, "event": {event}'
    if not _says_exactly(event, letter.raw):
        text += f', "raw": "{b64encode(letter.raw).decode("ascii")}"'
    return f"{text}}}\n".encode()


def resolution_line(resolution: Resolution) -> bytes:
    """The line of a resolution."""
    identity = resolution.identity
    document = {
        "resolved": identity.letter,
        "scope": identity.scope,
        "handler": identity.handler,
        "how": resolution.how,
        "at": moment_text(resolution.at),
    }
    return json.dumps(document, ensure_ascii=False).encode() + b"\n"


def read_line(line: bytes) -> DeadLetter | Resolution:
    """What one of the functions above wrote.

    Raises ``ValueError``, saying why, for anything else.
    """
    try:
        text = line.decode()
        document = json.loads(text)
        if not isinstance(document, dict):
            raise ValueError(f"it is {type(document).__name__}, not a record")
        return _resolution(document) if "resolved" in document else _letter(document, text)
    except KeyError as error:
        raise ValueError(record_fields.fault(error)) from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def readable(letter: DeadLetter, identity: str) -> DeadLetter:
    """The same letter, if its event is BSON and the one that ``identity`` names.

    What the event holds does not matter: pipelines may have reshaped it. Raises ``ValueError``
    otherwise.
    """
    try:
        bson.decode(letter.raw, CODEC)
        found = letter.id
    except (*_UNFIT, ValueError) as error:
        raise ValueError(f"its event cannot be read: {describe(error)}") from error
    if found != identity:
        raise ValueError(f"its event is that of letter {found}, not of {identity}")
    return letter


def unreadable(where: str, reason: str) -> DeadLetterError:
    """The error for a record that is neither letter nor resolution; ``where`` names it."""
    return DeadLetterError(
        f"{where}: the dead letter cannot be read: {reason}. Nothing was changed, and nothing is "
        "set aside while it is so. Mend it, or restore it from a backup; or remove it by hand, if "
        "its event may be lost. It is then read again without a restart"
    )


def moment_text(moment: datetime) -> str:
    """A moment as records have it: ISO 8601 in UTC."""
    return moment.astimezone(UTC).isoformat()


def encodable(text: str) -> str:
    """The text as UTF-8 can have it: an error's message may hold halves of surrogate pairs."""
    return text.encode("utf-8", "backslashreplace").decode()


def _letter(document: Mapping[str, Any], text: str) -> DeadLetter:
    if "raw" in document:
        raw = b64decode(record_fields.typed(document, "raw", str), validate=True)
    else:
        record_fields.typed(document, "event", dict)
        raw = _to_bson(text)
    letter = DeadLetter(
        scope=record_fields.typed(document, "scope", str),
        handler=record_fields.typed(document, "handler", str),
        raw=raw,
        error=record_fields.typed(document, "error", str),
        attempts=record_fields.count(document, "attempts"),
        at=record_fields.moment(document, "at"),
    )
    return readable(letter, record_fields.typed(document, "letter", str))


def _resolution(document: Mapping[str, Any]) -> Resolution:
    how = record_fields.typed(document, "how", str)
    if how not in get_args(How):
        raise ValueError(f"how is {how!r}, not one of {', '.join(get_args(How))}")
    identity = Identity(
        *(record_fields.typed(document, key, str) for key in ("scope", "handler", "resolved"))
    )
    return Resolution(identity, cast(How, how), record_fields.moment(document, "at"))


def _to_bson(text: str) -> bytes:
    """The event of a line, as BSON."""
    try:
        return bson.encode(json_util.loads(text, json_options=_EXACT)["event"])
    except (*_UNFIT, ValueError) as error:
        raise ValueError(f"its event is no Extended JSON: {describe(error)}") from error


def _says_exactly(event: str, raw: bytes) -> bool:
    try:
        return _to_bson(f'{{"event": {event}}}') == raw
    except ValueError:
        return False
