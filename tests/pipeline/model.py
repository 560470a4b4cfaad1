"""What the tables have to hold: the events applied one after another, without Spark and batches."""

from collections.abc import Sequence
from typing import Any

from tailrace.event.update_description import apply_update

UNKNOWN = None
"""An existing document with unknown content."""


def documents_of(events: Sequence[dict[str, Any]]) -> dict[str, dict[Any, Any]]:
    """The documents of each collection by key, without their ``_id``."""
    collections: dict[str, dict[Any, Any]] = {}
    for event in events:
        name = event["ns"].get("coll")
        match event["operationType"]:
            case "dropDatabase":
                collections.clear()
            case "drop":
                collections.pop(name, None)
            case "rename":
                collections[event["to"]["coll"]] = collections.pop(name, {})
            case operation:
                _change(collections.setdefault(name, {}), operation, event)
    return collections


def _change(documents: dict[Any, Any], operation: str, event: dict[str, Any]) -> None:
    key = event["documentKey"]["_id"]
    image = event.get("fullDocument")
    if operation == "delete":
        documents.pop(key, None)
    elif image is not None:
        documents[key] = {name: value for name, value in image.items() if name != "_id"}
    elif documents.get(key) is not None:
        documents[key] = apply_update(documents[key], event["updateDescription"])
    elif "fullDocument" in event:
        documents.pop(key, None)
    else:
        documents[key] = UNKNOWN
