"""Records as JSON in the metadata of tables."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any


def json_text(record: Mapping[str, Any], *, ensure_ascii: bool = True) -> str:
    """The one text of a record, also where it holds times."""
    return json.dumps(
        dict(record),
        separators=(",", ":"),
        sort_keys=True,
        default=_time,
        ensure_ascii=ensure_ascii,
    )


def _time(value: Any) -> str:
    """A time as Delta's log has it (https://github.com/delta-io/delta/blob/master/PROTOCOL.md)."""
    utc: datetime = value.astimezone(UTC).replace(tzinfo=None)
    return f"{utc.isoformat(timespec='microseconds')}Z"
