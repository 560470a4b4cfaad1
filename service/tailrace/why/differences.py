"""Tells why rows differ from their documents: what became of the last change of each document.

One search of the server finds the last changes of all of them; it is bounded by a number of keys
and by a time, and what it does not find stays unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import bson
from bson.raw_bson import RawBSONDocument

from tailrace.event import ChangeEvent
from tailrace.event.bson import encoded
from tailrace.event.document_key import equal_to, identity
from tailrace.model import SnapshotProgress
from tailrace.model.dead_letter import DiscardedLetter
from tailrace.model.snapshot import SnapshotState
from tailrace.model.verification import Difference, Kind
from tailrace.why.answer import Outcome, State, iso_time
from tailrace.why.changes import FoundChanges, find_changes_of
from tailrace.why.inquiry import Inquiry
from tailrace.why.outcomes import Evidence

MOST_EXPLAINED = 100
"""So many of the listed differences are explained."""
SECONDS = 3.0
"""How long the search of the server may take."""
_SINCE = "so its row was changed or lost in the destination since"


async def reasons(
    inquiry: Inquiry, handler: str, differences: Sequence[Difference]
) -> Mapping[Difference, str]:
    """Of the first differences of a handler, why they are there, in one line; those of which that
    is not known are left out. Raises the errors of the store."""
    known = [one for one in differences[:MOST_EXPLAINED] if one.id is not None]
    chosen = {_document(one): one for one in known}
    if not chosen:
        return {}
    searched = await find_changes_of(
        inquiry.server,
        inquiry.scope,
        inquiry.options,
        _matching(known),
        SECONDS,
        lambda events: chosen.keys() <= set(_last(events)),
    )
    checkpoint = await inquiry.checkpoints.load(inquiry.scope.name)
    evidence = Evidence(
        inquiry.routes,
        inquiry.start,
        None if checkpoint is not None and checkpoint.is_reset else checkpoint,
        await inquiry.checkpoints.gaps(inquiry.scope.name),
        [],
        passed=searched.passed,
        followed=inquiry.followed,
        elsewhere=inquiry.elsewhere,
    )
    discarded = await inquiry.letters.discarded(inquiry.scope.name, handler)
    last, told = _last(searched.events), dict[Difference, str]()
    for of_document, difference in chosen.items():
        event, letter = last.get(of_document), discarded.get(of_document)
        line = _discarded(letter, event) if letter is not None else ""
        if not line and event is not None:
            line = _of_change(event, evidence.outcomes(event).get(handler))
        elif not line:
            line = _of_none(evidence, handler, searched, difference)
        if line:
            told[difference] = line
    return told


def _document(of: Difference) -> bytes:
    """As :attr:`tailrace.event.ChangeEvent.key`, without a shard key."""
    database, _, collection = of.collection.partition(".")
    assert of.id is not None  # noqa: S101 - for the type checker
    return bson.encode({"db": database, "coll": collection}) + identity(of.id.raw, 0)


def _last(events: Sequence[ChangeEvent]) -> Mapping[bytes, ChangeEvent]:
    """The last change of each document."""
    last = dict[bytes, ChangeEvent]()
    for event in events:
        key, ns = event.field_bytes("documentKey"), event.ns
        if key is not None and ns is not None and ns.coll is not None:
            last[bson.encode({"db": ns.db, "coll": ns.coll}) + identity(key, 0)] = event
    return last


def _matching(differences: Collection[Difference]) -> Mapping[str, Any]:
    keys = [one.id.raw for one in differences if one.id is not None]
    wanted = [encoded(b"\x03documentKey._id\0" + equal_to(key)) for key in keys]
    return {"$or": [RawBSONDocument(one) for one in wanted]}


def _discarded(letter: DiscardedLetter, event: ChangeEvent | None) -> str:
    """A dead letter is the reason, unless the document has changed since it was discarded."""
    time = event.cluster_time if event is not None else None
    if time is not None and datetime.fromtimestamp(time.time, UTC) > letter.at:
        return ""
    at = letter.at.isoformat(timespec="seconds")
    return f"dead letter {letter.id} was discarded at {at}: {letter.error}"


def _of_change(event: ChangeEvent, outcome: Outcome | None) -> str:
    if outcome is None:
        return ""
    change = f"its last change, {event.operation_type} at {iso_time(event.cluster_time)}"
    if outcome.state is State.HANDLED:
        return f"{change}, was handled, {_SINCE}"
    return f"{change}, is {outcome.state.value.replace('_', ' ')}: {outcome.detail}"


def _of_none(
    evidence: Evidence, handler: str, searched: FoundChanges, difference: Difference
) -> str:
    """The reason if no change was found since the handler's start: only then it is known."""
    started = evidence.started_at(handler)
    if searched.since is None or started is None or searched.since > started:
        return ""
    unchanged = f"no change of it since the handler began at {iso_time(started)}"
    if difference.kind is Kind.TOO_MANY:
        return f"{unchanged}, and no such document: another wrote the row, or it is from before"
    snapshot = evidence.snapshot_of(handler)
    if snapshot is None:
        return f"{unchanged}, and no snapshot has delivered it"
    if snapshot.verification:
        return ""
    if _is_whole(snapshot):
        return f"{unchanged}; snapshot {snapshot.id} delivered it, {_SINCE}"
    which = "has a filter" if snapshot.filter else f"is {snapshot.state.value}"
    return f"{unchanged}, and snapshot {snapshot.id} {which}"


def _is_whole(snapshot: SnapshotProgress) -> bool:
    partial = snapshot.filter or snapshot.collections
    return snapshot.state is SnapshotState.DONE and not partial
