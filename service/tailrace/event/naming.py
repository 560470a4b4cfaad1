"""Names an event in logs, states and errors, by its token's digest and its document key."""

from typing import Any

from bson import json_util

from tailrace.event import ChangeEvent
from tailrace.masking import shortened
from tailrace.model.time_text import utc_text

LONGEST_KEY = 200
"""How many characters of a document key are shown: a key may be as long as a document."""


def named(event: ChangeEvent) -> dict[str, Any]:
    """The fields of a log line that identify the event."""
    key = document_key(event)
    return {"event_id": event.token.digest} | ({"document_key": key} if key else {})


def described(event: ChangeEvent) -> str:
    """The event for people: what it does, to which document, where and when."""
    key, time = document_key(event), event.cluster_time
    of = f" of {key}" if key else ""
    at = f" at {utc_text(time)}" if time is not None else ""
    return f"{event.operation_type}{of} in {event.ns}{at}"


def identified(event: ChangeEvent) -> str:
    """The same with its id, by which logs and stores find it."""
    return f"event {event.token.digest} ({described(event)})"


def document_key(event: ChangeEvent) -> str:
    """``documentKey`` as relaxed Extended JSON; empty for an event without a key (DDL)."""
    try:
        key = event.fresh().document_key  # a handler may have changed what it decoded
        text = json_util.dumps(key, json_options=json_util.RELAXED_JSON_OPTIONS) if key else ""
    except Exception:  # noqa: BLE001 - a pipeline may have changed the key in any way
        return ""
    return shortened(text, LONGEST_KEY)
