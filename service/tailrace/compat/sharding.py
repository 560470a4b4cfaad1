"""What only a sharded cluster has."""

from tailrace.compat.answer import Facts, NegativeAnswer, not_here
from tailrace.compat.events import look_up
from tailrace.compat.site import Site, read, require


async def document_keys(site: Site) -> Facts:
    """Keys of documents must have the shard key."""
    await _shard(site, "sharded")
    async with site.following("sharded") as stream:
        await site.insert("sharded", {"_id": 1, "region": "eu"})
        key = (await read(stream, 1))[0].document_key
    if key != {"_id": 1, "region": "eu"}:
        raise NegativeAnswer("documentKey has no shard key")
    return {}


async def look_ups(site: Site) -> Facts:
    """An update of the shard key must find the document that lives."""
    await _shard(site, "resharded")
    await site.insert("resharded", {"_id": 1, "region": "eu"})
    async with site.following("resharded", full_document="lookup") as stream:
        await site.driver.transact(
            site.database,
            [
                {
                    "update": "resharded",
                    "updates": [{"q": {"_id": 1, "region": "eu"}, "u": {"$set": {"region": "us"}}}],
                }
            ],
        )
        events = await look_up(site, stream, 1)
    require(events[:1], 1)
    if events[0].full_document != {"_id": 1, "region": "us"}:
        raise NegativeAnswer("the document was not found")
    return {"event": events[0].operation_type}


async def _shard(site: Site, name: str) -> None:
    if not site.sharded:
        raise not_here("this is no sharded cluster")
    command = {"shardCollection": f"{site.database}.{name}", "key": {"region": 1}}
    await site.driver.run("admin", command)
