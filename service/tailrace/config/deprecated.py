"""Keys of version 0.1 that are still understood, each with a warning that names its successor.

Before ``store`` there were two places: ``checkpoint`` had the keys of its store, and
``delivery.dead_letters`` had others of its own.
"""

from __future__ import annotations

from tailrace.config.document import Document
from tailrace.config.store import COLLECTIONS

_MOVED = {"store": "type", "path": "path", "database": "database"}
_DROPPED = ("store", "path", "database", "collection")


def use_current_keys(document: Document) -> list[str]:
    """Gives the document today's keys; returns a warning for each older one."""
    return [*_checkpoint(document), *_dead_letters(document)]


def _checkpoint(document: Document) -> list[str]:
    data, section = document.data, document.data.get("checkpoint")
    if not isinstance(section, dict):
        return []
    given = {key: section[key] for key in _MOVED if section.get(key) is not None}
    if given and data.get("store") is not None:
        for key in given:
            message = f"is the older spelling of store.{_MOVED[key]}, and store is given: remove it"
            document.findings.append((("checkpoint", key), message))
        given = {}
    if section.get("collection") not in (None, COLLECTIONS[0]):
        message = f"cannot be chosen any more: rename the collection to {COLLECTIONS[0]!r}"
        document.findings.append((("checkpoint", "collection"), message))
    for key in given:  # where the file has it, should its value be wrong
        document.marks["store", _MOVED[key]] = document.mark(("checkpoint", key))
    rest = {key: section[key] for key in section if key not in (*_MOVED, "collection")}
    store = {"store": {_MOVED[key]: value for key, value in given.items()}} if given else {}
    document.data = {**data, "checkpoint": rest, **store}
    return [f"checkpoint.{key} is deprecated: write store.{_MOVED[key]} instead" for key in given]


def _dead_letters(document: Document) -> list[str]:
    delivery = document.data.get("delivery")
    section = delivery.get("dead_letters") if isinstance(delivery, dict) else None
    if not isinstance(section, dict):
        return []
    rest = {key: value for key, value in section.items() if key not in _DROPPED}
    document.data = {**document.data, "delivery": {**delivery, "dead_letters": rest}}
    return [
        f"delivery.dead_letters.{key} is ignored: dead letters are kept in the store, which the "
        "section store configures. Letters that still wait elsewhere are not read"
        for key in section
        if key in _DROPPED
    ]
