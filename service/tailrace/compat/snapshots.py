"""Whether existing documents can be read as of a time, and beside changes."""

from collections.abc import Mapping
from typing import Any

import anyio
import bson

from tailrace.compat.answer import Facts, NegativeAnswer, not_here
from tailrace.compat.site import Site
from tailrace.engine.plan.row_source import KnownSnapshots
from tailrace.event import ChangeEvent
from tailrace.snapshot.listed_collections import listed
from tailrace.snapshot.options import SnapshotOptions
from tailrace.snapshot.server import Find
from tailrace.snapshot.snapshots import Snapshots

_DOCUMENTS = 500
_END = "the last write"


async def read_at_time(site: Site) -> Facts:
    """An earlier state of a collection, after it has changed."""
    time = await site.insert("as_of", {"_id": 1, "n": 1}, {"_id": 2})
    if time is None:
        raise not_here("replies have no operationTime")
    await site.update("as_of", 1, {"$set": {"n": 2}})
    await site.delete("as_of", 2)
    uuids = [each.uuid async for each in listed(site.driver, site.scope("as_of"))]
    if not any(uuids):
        raise NegativeAnswer("the server tells no UUID of the collection")
    find = Find(site.database, "as_of", bytes.fromhex(uuids[0]), time, {"sort": {"_id": 1}})
    replies = await site.driver.find(find)
    documents = [bson.decode(raw) for reply in replies for raw in reply.documents()]
    if documents != [{"_id": 1, "n": 1}, {"_id": 2}]:
        raise NegativeAnswer("the documents are not those of the time")
    return {}


async def beside_writes(site: Site) -> Facts:
    """A snapshot of Tailrace with the changes meanwhile: the result must equal the source."""
    name = "copied"
    await site.insert(name, *({"_id": n, "n": 0} for n in range(_DOCUMENTS)))
    scope, copy = site.scope(name), dict[Any, Mapping[str, Any]]()
    snapshots = Snapshots(scope, site.driver, SnapshotOptions(initial=True, chunk_documents=64))
    async with (
        site.following(name, max_await_time_ms=20, full_document="updateLookup") as stream,
        anyio.create_task_group() as tasks,
    ):
        snapshots.begin(KnownSnapshots(None, fresh=True))
        tasks.start_soon(_write, site, name)
        rows = 0
        while snapshots.active or _END not in copy:
            batch = await stream.next_batch()
            for event in batch.events():
                _apply(copy, event)
            token = stream.resume_token
            time = (token.cluster_time if token else None) or batch.operation_time
            if len(batch) or time is None or not snapshots.active:
                continue
            await snapshots.ready()
            for chunk in await snapshots.read(time, briefly=False):
                rows += len(chunk.batch)
                for event in chunk.batch.events():
                    _apply(copy, event)
    source = await site.run(find=name, batchSize=2 * _DOCUMENTS, readConcern={"level": "majority"})
    facts = {"rows": rows, "documents": len(copy)}
    if copy != {each["_id"]: each for each in source["cursor"]["firstBatch"]}:
        raise NegativeAnswer("the copy differs from the source", facts)
    return facts


async def _write(site: Site, name: str) -> None:
    for number in range(0, _DOCUMENTS, 25):
        await site.update(name, number, {"$set": {"n": 1}})
        await site.delete(name, number + 1)
        await site.insert(name, {"_id": _DOCUMENTS + number})
    await site.insert(name, {"_id": _END})


def _apply(copy: dict[Any, Mapping[str, Any]], event: ChangeEvent) -> None:
    if event.document_key is None:
        return  # the begin or the end of the snapshot
    identity = event.document_key["_id"]
    if event.full_document is not None:
        copy[identity] = event.full_document
    else:
        copy.pop(identity, None)
