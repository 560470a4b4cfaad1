"""What ``/status`` shows to those who may not see documents: states, names, times and numbers.

Reasons and errors quote documents' keys and what others answered. Only the texts of the keys below
are known not to: a key that is not listed here hides its text.
"""

from collections.abc import Mapping
from typing import Any

HIDDEN = "hidden without the token"

_SHOWN = frozenset({
    *("version", "driver", "cluster", "changes_need", "now", "started_at"),
    *("state", "since", "follows", "kind", "token", "cluster_time", "saved_at", "last_round_trip"),
    *("down_since", "call_since", "last_error_at", "first_at", "last_at", "last_answer"),
    *("began", "ended", "through", "due"),
    *("unreachable_since", "unsaved_since", "by", "id", "mode", "collection", "owner", "name"),
    "scopes",
})  # fmt: skip


def redacted(value: Any, key: str = "") -> Any:
    """A copy of a value in JSON types, in which texts of other keys are hidden."""
    if isinstance(value, Mapping):
        return {name: redacted(item, name) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [redacted(item, key) for item in value]
    if value is None or isinstance(value, bool | int | float) or key in _SHOWN:
        return value
    return HIDDEN
