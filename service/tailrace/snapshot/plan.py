"""Plans a snapshot: the collections of its scope, by UUID, with their document counts."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise

import structlog
from bson import Binary

from tailrace.errors import CommandFailed, DriverError
from tailrace.model import Scope, SnapshotProgress
from tailrace.model.snapshot import DocumentId, RangeProgress, RangeState, SnapshotState
from tailrace.snapshot.filter import filter_of
from tailrace.snapshot.listed_collections import ListedCollection, listed
from tailrace.snapshot.server import SnapshotServer

_MOST_COUNTED = 100
RANGE_DOCUMENTS = 5000
"""The fewest documents for which a range is worthwhile."""
_SAMPLES = 30
"""How many documents to sample per range, to find where to cut."""


class NothingToRead(Exception):
    """An operator asked for a snapshot of collections that do not exist."""


async def plan(
    server: SnapshotServer, scope: Scope, progress: SnapshotProgress
) -> SnapshotProgress:
    """The snapshot that was asked for, with the collections that exist now.

    If ``progress`` is an earlier plan, the collections that it has are not counted again. The plan
    with which ``snapshotBegin`` is handed over must have every collection that existed then: its
    changes may come before ``snapshotBegin``, which would say that its documents do not exist.

    A collection that cannot be read is included as refused, with a warning. A view or a time series
    is included only if it was chosen or is the scope itself. Raises :class:`NothingToRead`.
    """
    first = progress.state is SnapshotState.PLANNED
    before: dict[str, dict[str, RangeProgress]] = defaultdict(dict)
    for name, of in progress.ranges.items():
        before[of.uuid or name][name] = of
    ranges: dict[str, RangeProgress] = {}
    missing = set(progress.collections)
    async for collection in listed(server, scope):
        named = _names(collection) & set(progress.collections)
        if progress.collections and not named:
            continue
        missing -= named
        key = collection.uuid or f"{collection.database}.{collection.name}"
        if key in before:
            parts = before[key].items()
            ranges |= {name: replace(part, collection=collection.name) for name, part in parts}
        elif first or collection.uuid:
            ranges |= await _ranges(server, scope, progress, collection)
    if missing:
        names = ", ".join(sorted(missing))
        raise NothingToRead(f"scope {scope.name!r} has no collection {names}")
    if progress.filter and first:
        await _require_filter(server, progress, ranges.values())
    return replace(progress, state=SnapshotState.READING, ranges=ranges)


async def replaced(
    server: SnapshotServer, scope: Scope, progress: SnapshotProgress
) -> Mapping[str, RangeProgress]:
    """The ranges of collections that took the place of planned ones.

    After a rename or ``$out``, the stream of a collection lacks the inserts of its documents.
    The stream of a whole database has them; so there only a collection is read that replaced one
    before its end, because resharding shows no inserts.
    """
    chosen = set(progress.collections)
    dropped = {
        (collection.database, collection.collection)
        for collection in progress.ranges.values()
        if collection.state is RangeState.DROPPED
    }
    ranges: dict[str, RangeProgress] = {}
    if scope.collection is None and not chosen and not dropped:
        return ranges
    async for collection in listed(server, scope):
        if collection.uuid in progress.ranges or not collection.uuid:
            continue
        if chosen or scope.collection is not None:
            wanted = not chosen or bool(_names(collection) & chosen)
        else:
            wanted = (collection.database, collection.name) in dropped
        if wanted:
            ranges |= await _ranges(server, scope, progress, collection)
    return ranges


def _names(collection: ListedCollection) -> set[str]:
    """How an operator may name the collection."""
    return {collection.name, f"{collection.database}.{collection.name}"}


async def _ranges(
    server: SnapshotServer, scope: Scope, progress: SnapshotProgress, collection: ListedCollection
) -> Mapping[str, RangeProgress]:
    """The ranges of a collection; none if it cannot be read and nobody asked for it by name."""
    namespace = f"{collection.database}.{collection.name}"
    if collection.refusal:
        log = structlog.get_logger().bind(scope=scope.name, snapshot=progress.id)
        log.warning("snapshot.collection_refused", collection=namespace, reason=collection.refusal)
        if scope.collection is None and not progress.collections and not collection.uuid:
            return {}
    whole = RangeProgress(
        collection.uuid,
        collection.database,
        collection.name,
        0 if collection.refusal else await _count(server, collection),
        collection.clustered,
        state=RangeState.REFUSED if collection.refusal else RangeState.READING,
        note=collection.refusal,
    )
    parts = await _cut(server, whole, progress.parallel)
    name = collection.uuid or namespace
    return {f"{name}/{n}" if n else name: part for n, part in enumerate(parts)}


async def _cut(server: SnapshotServer, whole: RangeProgress, most: int) -> list[RangeProgress]:
    """Divides a collection into up to ``most`` ranges of about the same size.

    The cuts affect only the sizes of the ranges, so they need not be ids of documents. They are
    not decoded: a DBPointer would become another type, which has another place in the order.
    """
    count = min(most, whole.estimate // RANGE_DOCUMENTS)
    if count < 2 or whole.clustered or whole.over:  # an upper bound needs the index on _id
        return [whole]
    size = count * _SAMPLES
    stages = [{"$sample": {"size": size}}, {"$project": {"_id": 1}}, {"$sort": {"_id": 1}}]
    command = {"aggregate": whole.collection, "pipeline": stages, "cursor": {"batchSize": size}}
    sample = await server.first_batch(whole.database, command)
    offsets = iter(sample.bounds)
    ids = [sample.buffer[begin:end] for begin, end in zip(offsets, offsets, strict=True)]
    cuts = [DocumentId(ids[len(ids) * n // count]) for n in range(1, count)] if ids else []
    bounds = [None, *cuts, None]
    share, rest = divmod(whole.estimate, len(bounds) - 1)
    return [
        replace(whole, last=after, until=until, estimate=share + (rest if until is None else 0))
        for after, until in pairwise(bounds)
        if after is None or after != until
    ]


async def _require_filter(
    server: SnapshotServer, asked: SnapshotProgress, ranges: Iterable[RangeProgress]
) -> None:
    """Makes the server check the filter before anything is handed over; raises its refusal."""
    readable = next((each for each in ranges if not each.over), None)
    if readable is not None:
        find = {"find": readable.collection, "filter": filter_of(asked.filter)}
        command = {"explain": find, "verbosity": "queryPlanner"}
        await server.run(readable.database, command)


async def count_documents(server: SnapshotServer, scope: Scope) -> int:
    """About how many documents a scope has in its first ``_MOST_COUNTED`` collections.

    Raises :class:`CommandFailed` if the user may not list the collections.
    """
    documents = collections = 0
    async for collection in listed(server, scope):
        if not collection.refusal:
            documents, collections = documents + await _count(server, collection), collections + 1
        if collections == _MOST_COUNTED:
            break
    return documents


async def warn_of_left_out(server: SnapshotServer, scope: Scope) -> None:
    """Warns that a new scope leaves out existing documents: the operator may not know."""
    with suppress(DriverError):
        documents = await count_documents(server, scope)
        if documents:
            structlog.get_logger().warning(
                "snapshot.documents_left_out",
                scope=scope.name,
                documents=documents,
                consequence="only changes are delivered: 'snapshot: initial' before a first "
                f"start, or 'tailrace snapshot start {scope.name}' now, reads them",
            )


async def found_again(server: SnapshotServer, of: RangeProgress) -> ListedCollection | None:
    """A range's collection as it is now; ``None`` if it is no longer in its database.

    ``convertToCapped`` makes a new collection with the same name: that one is returned, refused.
    """
    wanted = [{"name": of.collection}, {"info.uuid": Binary(bytes.fromhex(of.uuid), 4)}]
    command = {"listCollections": 1, "filter": {"$or": wanted}, "cursor": {}}
    documents = (await server.run(of.database, command))["cursor"]["firstBatch"]
    collections = [ListedCollection.of(of.database, document) for document in documents]
    same = (collection for collection in collections if collection.uuid == of.uuid)
    capped = (
        collection
        for collection in collections
        if collection.name == of.collection and collection.capped
    )
    return next(same, None) or next(capped, None)


async def _count(server: SnapshotServer, collection: ListedCollection) -> int:
    """About how many documents a collection has, from its metadata: no document is read."""
    try:
        reply = await server.run(collection.database, {"count": collection.name})
    except CommandFailed:
        return 0
    return int(reply.get("n", 0))
