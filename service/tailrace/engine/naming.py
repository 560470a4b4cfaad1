"""Names an event in log lines, states and errors: by the token's digest and the document key."""

from typing import Any

from bson import json_util

from tailrace.errors import shortened
from tailrace.event import ChangeEvent

LONGEST_KEY = 200
"""Characters of a document key that are shown: it may be as long as a document."""


def named(event: ChangeEvent) -> dict[str, Any]:
    """The keys of a log line that say which event it is about."""
    key = document_key(event)
    return {"event_id": event.token.digest} | ({"document_key": key} if key else {})


def document_key(event: ChangeEvent) -> str:
    """``documentKey`` as relaxed Extended JSON; nothing for an event without one (DDL)."""
    try:
        key = event.fresh().document_key  # a handler may have changed what it decoded
        text = json_util.dumps(key, json_options=json_util.RELAXED_JSON_OPTIONS) if key else ""
    except Exception:  # noqa: BLE001 - a pipeline may have made anything of it
        return ""
    return shortened(text, LONGEST_KEY)
