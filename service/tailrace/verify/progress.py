"""Verifications as JSON documents, for answers and scripts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from tailrace.model.time_text import utc_text
from tailrace.model.verification import (
    ComparedCollection,
    Counts,
    Difference,
    Verification,
    VerificationState,
)

_GOING_ON = (VerificationState.RUNNING, VerificationState.PAUSED)


def verification_document(
    record: Verification,
    trouble: str = "",
    snapshot: str = "",
    repair: Mapping[str, str] | None = None,
    reasons: Mapping[Difference, str] | None = None,
) -> dict[str, Any]:
    """One verification. ``trouble``: why nothing is compared now. ``snapshot``: the id of one whose
    documents the handler has not completely. ``repair``: how far the snapshot is that brings what
    differs, if one was asked for. ``reasons``: why rows differ, where that is known."""
    why = reasons or {}
    return {
        "handler": record.handler,
        "id": record.id,
        "state": record.state.value,
        "reason": record.reason or trouble,
        "by": record.by,
        "began": utc_text(record.began),
        "ended": utc_text(record.ended) if record.ended is not None else None,
        "snapshot": snapshot or None,
        "repair": repair,
        **asdict(record.counts),
        "estimate": sum(each.estimate for each in record.collections.values()),
        "collections": {each.name: _collection(each) for each in record.collections.values()},
        "keys": [_difference(record.handler, each, why.get(each, "")) for each in record.keys],
        "dead_letters": list(record.letters),
    }


def status_document(
    record: Verification | None, trouble: str, due: datetime | None
) -> dict[str, Any]:
    """The last verification of a handler in short, and what all have proven. ``due``: when the next
    one begins by itself."""
    document: dict[str, Any] = dict.fromkeys(
        ("state", "reason", "by", "began", "ended", "whole", "proven")
    )
    document |= {"compared": 0, "estimate": 0, "differences": 0}
    if record is not None:
        counts, proof = record.counts, record.proof
        document |= {
            "state": record.state.value,
            "reason": record.reason,
            "by": record.by,
            "began": utc_text(record.began),
            "ended": utc_text(record.ended) if record.ended is not None else None,
            "whole": record.request.is_whole,
            "compared": counts.compared,
            "estimate": sum(each.estimate for each in record.collections.values()),
            "differences": counts.differences,
        }
        if proof.through is not None:
            through, differences = utc_text(proof.through), proof.differences
            document["proven"] = {"through": through, "differences": differences}
    document |= {"reason": trouble or document["reason"] or ""}
    return {**document, "due": utc_text(due) if due is not None else None}


def scope_document(documents: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Those of the handlers of a scope as one; ``None`` if there is none."""
    if len(documents) < 2:
        return {**documents[0], "handlers": _by_handler(documents)} if documents else None
    states = [VerificationState(each["state"]) for each in documents]
    order = [*_GOING_ON, VerificationState.FAILED, VerificationState.CANCELLED]
    state = next((one for one in order if one in states), VerificationState.DONE)
    ended = [each["ended"] for each in documents]
    names = list(asdict(Counts()))
    collections: dict[str, dict[str, Any]] = {}
    for document in documents:
        for name, one in document["collections"].items():
            before = collections.get(name)
            sums = {key: one[key] + before[key] for key in names} if before is not None else {}
            collections[name] = {**one, **sums}
    return {
        "state": state.value,
        "reason": "; ".join(each["reason"] for each in documents if each["reason"]),
        "began": min(each["began"] for each in documents),
        "ended": max(ended) if all(ended) else None,
        "repair": next((each["repair"] for each in documents if each["repair"]), None),
        "snapshot": next((each["snapshot"] for each in documents if each["snapshot"]), None),
        **{key: sum(each[key] for each in documents) for key in [*names, "estimate"]},
        "collections": collections,
        "keys": [key for each in documents for key in each["keys"]],
        "dead_letters": [id for each in documents for id in each["dead_letters"]],
        "handlers": _by_handler(documents),
    }


def _by_handler(documents: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    left_out = ("keys", "dead_letters")
    return {
        each["handler"]: {name: value for name, value in each.items() if name not in left_out}
        for each in documents
    }


def _collection(of: ComparedCollection) -> dict[str, Any]:
    return {
        "state": of.phase.value,
        "note": of.note,
        "estimate": of.estimate,
        **asdict(of.counts),
    }


def _difference(handler: str, difference: Difference, why: str) -> dict[str, Any]:
    document: dict[str, Any] = {
        "handler": handler,
        "collection": difference.collection,
        "key": difference.key,
        "kind": difference.kind.value,
        "fields": list(difference.fields),
        "since": utc_text(difference.since),
    }
    if why:
        document["why"] = why
    if difference.expected or difference.stored:
        pairs = zip(difference.fields, difference.expected, difference.stored, strict=True)
        document["values"] = {name: {"expected": one, "stored": two} for name, one, two in pairs}
    return document
