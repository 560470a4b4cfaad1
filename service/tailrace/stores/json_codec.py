"""Records as JSON: checkpoints and gaps as rows of SQLite keep them, and a letter as a line."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tailrace.errors import TailraceError
from tailrace.event.extended_json import to_json
from tailrace.model.dead_letter import DeadLetter
from tailrace.stores.records import letter_record


def parse(text: bytes, where: str, unreadable: Callable[[str, str], TailraceError]) -> Any:
    """What a row holds; where it is no JSON, raises what ``unreadable`` makes of it."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise unreadable(where, f"it is not JSON ({error})") from error


def letter_line(letter: DeadLetter) -> str:
    """A letter as one line of JSON, its event in canonical Extended JSON; for grep and jq.

    An event that is no BSON (a damaged store) is left out, and ``raw`` has its bytes as hex.
    """
    head = {**letter_record(letter)}
    del head["key"], head["event"]
    text = json.dumps(head, ensure_ascii=False)[:-1]
    try:
        return f'{text}, "event": {to_json(letter.raw, canonical=True)}}}'
    except ValueError:
        return f'{text}, "raw": "{letter.raw.hex()}"}}'
