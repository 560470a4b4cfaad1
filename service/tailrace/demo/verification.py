"""Verifies the demo: replays the events of the file in order, and compares the result.

An update is applied to the document as the previous events left it. Its ``fullDocument`` does not
replace that document, so that a lost or reordered event shows.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tailrace.event.extended_json import to_json
from tailrace.event.update_description import apply_update

Documents = dict[str, dict[str, Any]]
"""The documents of one namespace as Extended JSON, by the text of their ``_id``."""

_NOT_THERE = "is not there"


@dataclass(slots=True)
class ReplayedEvents:
    """The result of replaying a file of events."""

    collections: dict[str, Documents] = field(default_factory=dict)
    operations: Counter[str] = field(default_factory=Counter)
    duplicates: int = 0
    """Repeated events: the guarantee is at least once."""
    unfounded: list[str] = field(default_factory=list)
    """Events that contradict previous events: something is missing or out of order."""

    def differences(self, source: Mapping[str, Iterable[bytes]]) -> list[str]:
        """Every difference between the replayed events and the source's raw documents."""
        texts = {
            namespace: {key: _text(document) for key, document in documents.items()}
            for namespace, documents in self.collections.items()
        }
        return [*self.unfounded, *differences(texts, source, "the events give")]


def replay(lines: Iterable[str]) -> ReplayedEvents:
    """Applies events (lines of canonical Extended JSON); ``ValueError`` if one is malformed."""
    result = ReplayedEvents()
    seen: set[str] = set()
    for number, line in enumerate(lines, start=1):
        try:
            event = json.loads(line)
            token, operation = _text(event["_id"]), event["operationType"]
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"line {number} is not a change event: {error}") from error
        if token in seen:
            result.duplicates += 1
            continue
        seen.add(token)
        result.operations[operation] += 1
        if operation == "snapshotEnd":
            # These documents changed before the snapshot read them.
            result.unfounded = [each for each in result.unfounded if not each.endswith(_NOT_THERE)]
        if problem := _apply(result.collections, operation, event):
            result.unfounded.append(f"line {number}: {problem}")
    return result


def differences(
    held: Mapping[str, Mapping[str, str | None]], source: Mapping[str, Iterable[bytes]], who: str
) -> list[str]:
    """Every difference, one per line. Types and order of fields count; empty collections do not.

    ``held``: canonical Extended JSON by the text of ``_id`` (``None``: content unknown);
    ``source``: raw BSON documents; ``who``: where the held documents come from.
    """
    result: list[str] = []
    texts = {name: [to_json(raw, canonical=True) for raw in raws] for name, raws in source.items()}
    expected = {
        name: {_text(json.loads(text)["_id"]): text for text in whole}
        for name, whole in texts.items()
    }
    for namespace in sorted({*expected, *held}):
        theirs, ours = expected.get(namespace, {}), held.get(namespace, {})
        for key in sorted({*theirs, *ours}):
            if (key in ours) != (key in theirs) or ours[key] != theirs[key]:
                result.append(
                    f"{namespace} {key}: the source has {theirs.get(key, 'no such document')}, "
                    f"{who} {ours.get(key, 'no such document')}"
                )
    return result


def _text(value: Any) -> str:
    """An Extended JSON value as text, as :func:`to_json` writes it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _apply(collections: dict[str, Documents], operation: str, event: dict[str, Any]) -> str | None:
    """Applies one event; returns how it contradicts previous events, or ``None``."""
    where = event.get("ns") or {}
    namespace = f"{where.get('db')}.{where.get('coll')}"
    match operation:
        case "dropDatabase":
            for name in [name for name in collections if name.startswith(f"{where['db']}.")]:
                del collections[name]
        case "drop":
            collections.pop(namespace, None)
        case "rename":
            target = event["to"]
            collections[f"{target['db']}.{target['coll']}"] = collections.pop(namespace, {})
        case "insert" | "replace" | "update" | "delete" | "read":
            return _change(collections.setdefault(namespace, {}), operation, event)
    return None  # invalidate, and events that showExpandedEvents adds, change no document


def _change(documents: Documents, operation: str, event: dict[str, Any]) -> str | None:
    key = _text(event["documentKey"]["_id"])
    known = documents.get(key)
    if operation == "read":
        documents[key] = event["fullDocument"]
        if known in (None, event["fullDocument"]):
            return None
        return f"read of {key}, which differs from what its events give"
    if operation == "delete":
        documents.pop(key, None)
    elif operation == "update" and known is not None:
        documents[key] = apply_update(known, event["updateDescription"])
    elif event.get("fullDocument") is not None:
        documents[key] = event["fullDocument"]
    if (known is None) == (operation == "insert"):
        return None
    state = "exists already" if operation == "insert" else _NOT_THERE
    return f"{operation} of {key}, which {state}"
