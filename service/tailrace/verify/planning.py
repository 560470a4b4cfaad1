"""Which collections a verification compares."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from tailrace.engine import Routed
from tailrace.model import Scope
from tailrace.model.snapshot import RangeState, SnapshotMode
from tailrace.model.verification import ComparedCollection, Phase, VerificationRequest
from tailrace.snapshot.plan import plan
from tailrace.snapshot.server import SnapshotServer
from tailrace.snapshot.target import asked_for
from tailrace.verify.followed import is_copied, is_wanted

NOT_COPIED = "the routes of the handler leave out some of its changes"


def none_readable(collections: Collection[ComparedCollection], handler: str) -> str:
    """Why none of some collections can be compared; empty if there are none, or any can."""
    refused = [one for one in collections if one.phase is Phase.REFUSED]
    if not refused or any(one.phase is not Phase.REFUSED for one in collections):
        return ""
    why = f"{refused[0].name}: {refused[0].note}"
    return f"no collection can be compared for handler {handler!r}: {why}"


async def planned(
    server: SnapshotServer, scope: Scope, request: VerificationRequest, routed: Routed
) -> Mapping[str, ComparedCollection]:
    """The collections of a scope that are chosen and come to the handler, by name.

    Raises :class:`tailrace.snapshot.plan.NothingToRead` for a chosen one that does not exist, and
    the server's refusal of a filter.
    """
    snapshot = asked_for(scope, SnapshotMode.REQUESTED, request.filter, 1)
    plan_of_scope = await plan(server, scope, replace(snapshot, collections=request.collections))
    collections: dict[str, ComparedCollection] = {}
    for collection in plan_of_scope.ranges.values():
        if not is_wanted(routed, collection.database, collection.collection):
            continue
        one = ComparedCollection(
            collection.uuid,
            collection.database,
            collection.collection,
            collection.estimate,
            collection.clustered,
        )
        if collection.state is RangeState.REFUSED:
            one = replace(one, phase=Phase.REFUSED, note=collection.note)
        elif not is_copied(routed, collection.database, collection.collection):
            one = replace(one, phase=Phase.REFUSED, note=NOT_COPIED)
        collections[one.name] = one
    return collections
