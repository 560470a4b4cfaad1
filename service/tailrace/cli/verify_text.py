"""What ``tailrace verify`` prints for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_MOST_KEYS = 50
_NAMES = ("equal", "different", "missing", "too_many", "in_flux", "set_aside")


def lines(verification: Mapping[str, Any]) -> Iterator[str]:
    """The result of a verification."""
    for name, one in verification["collections"].items():
        yield f"{name}: {_counts(one)}{_state(one)}"
    for key in verification["keys"][:_MOST_KEYS]:
        yield from _key(key)
    if (left := len(verification["keys"]) - _MOST_KEYS) > 0:
        yield f"  and {left:,} more: --json lists them"
    if verification["dead_letters"]:
        ids = ", ".join(verification["dead_letters"][:_MOST_KEYS])
        yield f"set aside, with dead letters: {ids}"
    if verification["snapshot"]:
        rest = "rows that it has still to read are missing"
        yield f"snapshot {verification['snapshot']} goes on: {rest}"
    if verification["in_flux"]:
        yield "in flux: these changed at every look, and their rows with them"
    reason = f": {verification['reason']}" if verification["reason"] else ""
    yield f"{verification['state']}{reason}: {_counts(verification)}"


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
    why = f"; {key['why']}" if "why" in key else ""
    yield f"  {key['collection']} {key['key']} {kind}{fields} (at {key['since']}){why}"
    for name, values in key.get("values", {}).items():
        yield f"    {name}: expected {values['expected']}, stored {values['stored']}"
