"""What events have: their types, images, times, parts and look-ups."""

from typing import Any

from tailrace.compat.answer import Facts, NegativeAnswer
from tailrace.compat.site import Site, after, read, read_until, require
from tailrace.stream import ChangeStream, LookupStream

_HALF_BYTES = 8_500_000
"""Two images of this size are more than the 16 MB of an event."""
_IMAGES = {"changeStreamPreAndPostImages": {"enabled": True}}


async def expanded(site: Site) -> Facts:
    name, index = "expanded", {"key": {"number": 1}, "name": "number"}
    async with site.following(show_expanded_events=True) as stream:
        await site.run(create=name)
        await site.run(createIndexes=name, indexes=[index])
        await site.run(collMod=name, validationLevel="off")
        await site.insert(name, {"_id": 1})
        types = [event.operation_type for event in await read_until(stream, "insert")]
    missing = {"create", "createIndexes", "modify"} - {*types}
    if missing:
        raise NegativeAnswer(f"no event {', '.join(sorted(missing))}", {"events": types})
    return {"events": types}


async def images(site: Site) -> Facts:
    await site.run(create="images", **_IMAGES)
    required: dict[str, Any] = {
        "full_document": "required",
        "full_document_before_change": "required",
    }
    async with site.following("images", **required) as stream:
        await site.insert("images", {"_id": 1, "n": 1})
        await site.update("images", 1, {"$set": {"n": 2}})
        await site.delete("images", 1)
        _, updated, deleted = await read(stream, 3)
    documents = updated.full_document_before_change, updated.full_document
    if documents != ({"_id": 1, "n": 1}, {"_id": 1, "n": 2}) or (
        deleted.full_document_before_change != documents[1]
    ):
        raise NegativeAnswer("images are not the documents before and after the change")
    return {}


async def wall_time(site: Site) -> Facts:
    async with site.following("timed") as stream:
        await site.insert("timed", {"_id": 1})
        event = (await read(stream, 1))[0]
    if event.wall_time is None:
        raise NegativeAnswer("events have no wallTime: their latency is measured in whole seconds")
    return {}


async def disambiguated_paths(site: Site) -> Facts:
    await site.insert("paths", {"_id": 1, "part": {"0": 1}})
    async with site.following("paths", show_expanded_events=True) as stream:
        await site.update("paths", 1, {"$set": {"part.0": 2}})
        description = (await read(stream, 1))[0].update_description or {}
    if "disambiguatedPaths" not in description:
        raise NegativeAnswer("updates have no disambiguatedPaths")
    return {}


async def split(site: Site) -> Facts:
    """A stream that ends within a split event must continue before that event."""
    await site.run(create="split", **_IMAGES)
    wanted: dict[str, Any] = {
        "full_document_before_change": "required",
        "split_large_events": True,
        "batch_size": 1,
    }
    async with site.following("split", **wanted) as stream:
        await site.insert("split", {"_id": 1, "text": "a" * _HALF_BYTES})
        before = (await read(stream, 1))[0].token
        await site.update("split", 1, {"text": "b" * _HALF_BYTES})
        whole = True
        while whole:
            before = stream.resume_token or before
            batch = await stream.next_batch()
            whole = not len(batch) and batch.token is not None
    async with site.following("split", after(before), **wanted) as stream:
        event = (await read(stream, 1))[0]
    parts = [event.full_document_before_change, event.full_document]
    if [len(part["text"]) for part in parts if part] != [_HALF_BYTES] * 2:
        raise NegativeAnswer("the parts of a split event are not the whole event")
    return {"bytes": event.size}


async def server_look_up(site: Site) -> Facts:
    return await _looked_up(site, "updateLookup")


async def own_look_up(site: Site) -> Facts:
    return await _looked_up(site, "lookup")


async def _looked_up(site: Site, mode: str) -> Facts:
    """An update has the document; one of a document that is gone has null."""
    name = f"by_{mode}"
    await site.insert(name, {"_id": 1, "n": 1}, {"_id": 2})
    async with site.following(name, full_document=mode) as stream:
        await site.update(name, 1, {"$set": {"n": 2}})
        await site.update(name, 2, {"$set": {"n": 2}})
        await site.delete(name, 2)
        events = await look_up(site, stream, 3) if mode == "lookup" else await read(stream, 3)
    require(events, 1, 2, 2)
    facts = {"null_if_gone": events[1].full_document is None}
    if events[0].full_document != {"_id": 1, "n": 2}:
        raise NegativeAnswer("an update has not its document", facts)
    return facts


async def look_up(site: Site, stream: ChangeStream, count: int) -> Any:
    """Events with the documents that Tailrace looks up."""
    found = LookupStream(stream, site.driver, read_preference=site.options.read_preference)
    return await found.reading(lambda reading: read(reading, count))


async def transactions(site: Site) -> Facts:
    """The changes of a transaction must have its session, its number, and one time."""
    names = "parts_1", "parts_2"
    for name in names:
        await site.insert(name, {"_id": 0})
    async with site.following() as stream:
        await site.driver.transact(
            site.database,
            [{"insert": name, "documents": [{"_id": n}]} for n, name in enumerate(names, 1)],
        )
        events = await read(stream, 2)
    require(events, 1, 2)
    same = {
        "one_session": events[0].lsid is not None and events[0].lsid == events[1].lsid,
        "one_number": events[0].txn_number is not None
        and events[0].txn_number == events[1].txn_number,
        "one_time": events[0].cluster_time == events[1].cluster_time,
    }
    if not (same["one_session"] and same["one_number"]):
        raise NegativeAnswer("changes do not tell their transaction", same)
    return same
