"""Keys of version 0.1 that are still understood, each with a warning that names its successor.

Before ``store``, the section ``checkpoint`` had the keys of its store, and
``delivery.dead_letters`` had keys of another store.
"""

from __future__ import annotations

from tailrace.config.document import Document
from tailrace.config.store import COLLECTIONS

_MOVED = {"store": "type", "path": "path", "database": "database"}
_IGNORED = ("store", "path", "database", "collection")


def use_current_keys(document: Document) -> list[str]:
    """Gives the document today's keys; returns a warning for each older one."""
    return [*_checkpoint(document), *_dead_letters(document)]


def _checkpoint(document: Document) -> list[str]:
    section = document.data.get("checkpoint")
    if not isinstance(section, dict):
        return []
    given = {key: section.pop(key) for key in _MOVED if key in section}
    given = {key: value for key, value in given.items() if value is not None}
    if section.pop("collection", None) not in (None, COLLECTIONS[0]):
        message = f"cannot be chosen any more: rename the collection to {COLLECTIONS[0]!r}"
        document.findings.append((("checkpoint", "collection"), message))
    if given and document.data.get("store") is not None:
        for key in given:
            message = f"is the older spelling of store.{_MOVED[key]}, and store is given: remove it"
            document.findings.append((("checkpoint", key), message))
        return []
    for key in given:  # where the file has it, should its value be wrong
        document.marks["store", _MOVED[key]] = document.mark(("checkpoint", key))
    if given:
        document.data["store"] = {_MOVED[key]: value for key, value in given.items()}
    return [f"checkpoint.{key} is deprecated: write store.{_MOVED[key]} instead" for key in given]


def _dead_letters(document: Document) -> list[str]:
    delivery = document.data.get("delivery")
    section = delivery.get("dead_letters") if isinstance(delivery, dict) else None
    if not isinstance(section, dict):
        return []
    ignored = [key for key in _IGNORED if key in section]
    for key in ignored:
        del section[key]
    return [
        f"delivery.dead_letters.{key} is ignored: dead letters are kept in the store, which the "
        "section store configures. Letters that still wait elsewhere are not read"
        for key in ignored
    ]
