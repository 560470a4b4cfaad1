"""Reads the position from the options of ``tailrace checkpoints set``."""

import re
from datetime import UTC, datetime

from bson.timestamp import Timestamp

from tailrace.cli.arguments import refuse
from tailrace.model import Position, PositionKind, ResumeToken

_HEX = re.compile(r"(?:[0-9A-Fa-f]{2})+\Z")


def read_position(
    token: str | None = None,
    token_data: str | None = None,
    at: str | None = None,
    after_invalidate: bool = False,
) -> Position:
    """The position. ``token`` is Extended JSON, ``token_data``
    hexadecimal, ``at`` ISO 8601; ``after_invalidate``: the token is an invalidate event's."""
    if sum(option is not None for option in (token, token_data, at)) != 1:
        refuse("", "give exactly one of --token, --token-data and --at")
    if at is not None:
        if after_invalidate:
            refuse("--after-invalidate", "needs the token of the invalidate event, not a time")
        return Position(PositionKind.IDLE, None, None, _timestamp(at))
    chosen = _token(token) if token is not None else _token_of_data(token_data or "")
    return Position(
        # Any other token may be an event's token or a post-batch token.
        kind=PositionKind.INVALIDATE if after_invalidate else PositionKind.IDLE,
        event_token=chosen if after_invalidate else None,
        high_water=chosen,
        cluster_time=chosen.cluster_time,
    )


def _token(text: str) -> ResumeToken:
    try:
        token = ResumeToken.from_json(text)
    except ValueError as error:
        refuse("--token", f'{error}. Give a document, as {{"_data": "8265..."}}')
    if not token.document:
        refuse("--token", "is an empty document")
    return token


def _token_of_data(data: str) -> ResumeToken:
    if not _HEX.match(data.strip()):
        refuse("--token-data", "is not hexadecimal; give a token of another form with --token")
    return ResumeToken.of({"_data": data.strip()})


def _timestamp(text: str) -> Timestamp:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        refuse("--at", f"{text!r} is not an ISO 8601 time, as 2026-11-30T12:00:00Z ({error})")
    if moment.tzinfo is None:
        refuse("--at", f"{text!r} has no time zone: write Z for UTC, or an offset as +02:00")
    try:
        # Whole seconds, rounded down, so that no change is lost. Increments begin with 1.
        return Timestamp(int(moment.astimezone(UTC).timestamp()), 1)
    except (ValueError, OverflowError) as error:
        refuse("--at", f"{text!r} is not a time that MongoDB can store ({error})")
