"""Keys of version 0.1, now in the section ``store``. They still work, each with a warning."""

from typing import Any

from tailrace.config.document import Document, Location
from tailrace.config.store import COLLECTIONS

_MOVED = {"store": "type", "path": "path", "database": "database"}


def use_current_keys(document: Document) -> list[str]:
    """Replaces deprecated keys by the current ones; returns a warning for each."""
    data, store, warnings = document.data, {}, []
    for key, value in _taken(data.get("checkpoint")):
        place: Location = ("checkpoint", key)
        if key == "collection":
            if value != COLLECTIONS[0]:
                told = f"cannot be chosen any more: rename the collection to {COLLECTIONS[0]!r}"
                document.findings.append((place, told))
        elif data.get("store") is not None:
            told = f"is the older spelling of store.{_MOVED[key]}, and store is given: remove it"
            document.findings.append((place, told))
        else:
            store[_MOVED[key]] = value
            document.marks["store", _MOVED[key]] = document.mark(place)  # for its own mistakes
            warnings.append(f"checkpoint.{key} is deprecated: write store.{_MOVED[key]} instead")
    if store:
        data["store"] = store
    delivery = data.get("delivery")
    letters = delivery.get("dead_letters") if isinstance(delivery, dict) else None
    return warnings + [
        f"delivery.dead_letters.{key} is ignored: dead letters are kept in the store, which the "
        "section store configures. Letters that still wait elsewhere are not read"
        for key, _ in _taken(letters)
    ]


def _taken(section: Any) -> list[tuple[str, Any]]:
    """Removes the deprecated keys from a section; returns those that had a value."""
    if not isinstance(section, dict):
        return []
    found = [(key, section.pop(key)) for key in (*_MOVED, "collection") if key in section]
    return [(key, value) for key, value in found if value is not None]
