"""What ``tailrace verify`` prints for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_MOST_KEYS = 50
_NAMES = ("equal", "different", "missing", "too_many", "in_flux", "set_aside")


def lines(found: Mapping[str, Any]) -> Iterator[str]:
    """The result of a verification."""
    for name, one in found["collections"].items():
        yield f"{name}: {_counts(one)}{_state(one)}"
    for key in found["keys"][:_MOST_KEYS]:
        yield from _key(key)
    if (left := len(found["keys"]) - _MOST_KEYS) > 0:
        yield f"  and {left:,} more: --json lists them"
    if found["dead_letters"]:
        ids = ", ".join(found["dead_letters"][:_MOST_KEYS])
        yield f"set aside, with dead letters: {ids}"
    if found["snapshot"]:
        yield f"snapshot {found['snapshot']} goes on: rows that it has still to read are missing"
    if found["in_flux"]:
        yield "in flux: these changed at every look, and their rows with them"
    reason = f": {found['reason']}" if found["reason"] else ""
    yield f"{found['state']}{reason}: {_counts(found)}"


def _counts(one: Mapping[str, Any]) -> str:
    parts = [f"{one[name]:,} {name.replace('_', ' ')}" for name in _NAMES if one[name]]
    return f"{one['compared']:,} compared" + (f": {', '.join(parts)}" if parts else "")


def _state(one: Mapping[str, Any]) -> str:
    if one["note"]:
        return f"; {one['state']}: {one['note']}"
    return ""


def _key(key: Mapping[str, Any]) -> Iterator[str]:
    fields = f": {', '.join(key['fields'])}" if key["fields"] else ""
    kind = key["kind"].replace("_", " ")
    yield f"  {key['collection']} {key['key']} {kind}{fields} (at {key['since']})"
    for name, values in key.get("values", {}).items():
        yield f"    {name}: expected {values['expected']}, stored {values['stored']}"
