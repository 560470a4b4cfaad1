"""Compares what a destination holds with the source, and names what is wrong."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import bson
from bson import json_util

from tailrace.event import ChangeEvent
from tailrace.event.codec import CODEC
from tailrace.testing.changes import Changes
from tailrace.testing.entry import OF_DOCUMENTS


class Symptom(StrEnum):
    """What is wrong with a document or a change in the destination."""

    MISSING = "missing"
    TWICE = "applied twice"
    DISORDER = "in another order"
    STALE = "an earlier version"
    UNDELETED = "still there after its delete"
    OTHER = "not what the source has"


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One document or change that is wrong, and how."""

    symptom: Symptom
    what: str

    def __str__(self) -> str:
        return f"{self.what}: {self.symptom.value}"


def of_state(
    changes: Changes, held: Mapping[Any, Any], row: Callable[[dict[str, Any]], Any]
) -> list[Mismatch]:
    """The differences of a destination that holds one row for each ``_id``.

    ``row`` says what it should hold of a document.
    """
    documents = {document["_id"]: document for document in changes.documents}
    mismatches = []
    for id in [*documents, *(id for id in held if id not in documents)]:
        what = f"document {id!r}"
        if id not in documents:
            mismatches.append(Mismatch(Symptom.UNDELETED, f"{what}, {held[id]!r}"))
        elif id not in held:
            mismatches.append(Mismatch(Symptom.MISSING, what))
        elif held[id] != (wanted := row(documents[id])):
            earlier = any(row(one) == held[id] for one in _versions(changes, id))
            symptom = Symptom.STALE if earlier else Symptom.OTHER
            mismatches.append(Mismatch(symptom, f"{what}, {held[id]!r} instead of {wanted!r}"))
    return mismatches


def _versions(changes: Changes, id: Any) -> list[dict[str, Any]]:
    key = bson.encode({"_id": id})
    raws = [each.after for each in changes.oplog.entries if each.key == key]
    return [bson.decode(raw, CODEC) for raw in raws if raw is not None]


def of_log(
    changes: Changes,
    held: Sequence[Any],
    delivered: Sequence[ChangeEvent],
    *,
    first: int,
    once: bool,
) -> list[Mismatch]:
    """The differences of a destination that holds the ``id`` of each change that it applied.

    ``first``: the index of the first change in the oplog that the scope follows.
    The rows of snapshots are known from ``delivered``. Without ``once``, changes of a document may
    come again, as long as none is left out.
    """
    names, wanted = _expected(changes, delivered, first)
    rows = {_identity(event) for event in delivered if event.operation_type == "read"}
    got: dict[bytes, list[str]] = defaultdict(list)
    for id in held:
        identity = _identity(id)
        if identity in names:
            got[names[identity][0]].append(identity)
    mismatches = []
    for key, expected in wanted.items():
        have = got.get(key, [])
        missing = [id for id in expected if id not in have]
        twice = [id for id in dict.fromkeys(have) if have.count(id) > 1] if once else []
        mismatches += [Mismatch(Symptom.MISSING, names[id][1]) for id in missing]
        mismatches += [Mismatch(Symptom.TWICE, names[id][1]) for id in twice]
        if not (missing or twice) and (early := _early(expected, have, rows)):
            mismatches.append(Mismatch(Symptom.DISORDER, names[early][1]))
    return mismatches


def _expected(
    changes: Changes, delivered: Sequence[ChangeEvent], first: int
) -> tuple[dict[str, tuple[bytes, str]], dict[bytes, list[str]]]:
    """By identity the document and a name of each change; by document its changes in order."""
    names: dict[str, tuple[bytes, str]] = {}
    times: dict[str, Any] = {}
    for entry in changes.oplog.entries[first:]:
        if entry.operation in OF_DOCUMENTS and entry.key is not None:
            what = f"{entry.operation} of document {bson.decode(entry.key)['_id']!r}"
            names[entry.token] = entry.key, what
            times[entry.token] = entry.time
    for event in delivered:
        if event.operation_type == "read" and event.document_key is not None:
            key = bson.encode(event.document_key)
            identity = _identity(event)
            names.setdefault(identity, (key, f"row of document {event.document_key['_id']!r}"))
            times.setdefault(identity, event.cluster_time)
    wanted: dict[bytes, list[str]] = defaultdict(list)
    for identity in sorted(times, key=times.__getitem__):
        wanted[names[identity][0]].append(identity)
    return names, wanted


def _early(expected: Sequence[str], have: Sequence[str], rows: Collection[str]) -> str:
    """The first change that came before one that belongs before it; empty if none did.

    One of the ``rows`` that comes again was read anew, with the changes until then.
    """
    last = -1
    for identity in have:
        at = expected.index(identity)
        if at > last + 1:
            return identity
        last = max(at, last) if identity in rows else at
    return ""


def _identity(of: Any) -> str:
    """The same text for an event, its ``id``, the text of its token, and the id of its message."""
    id = of.id if isinstance(of, ChangeEvent) else of
    if isinstance(id, str) and id.startswith("{"):  # that of a row, as its message has it
        id = json_util.loads(id, json_options=json_util.CANONICAL_JSON_OPTIONS)
    if isinstance(id, Mapping):
        return str(id["_data"]) if "_data" in id else bson.encode(id).hex()
    return str(id)
