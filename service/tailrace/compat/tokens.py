"""Which tokens a stream has: a position in empty replies, and an order in their text."""

from collections.abc import AsyncIterator
from itertools import pairwise

from tailrace.compat.answer import Facts, NegativeAnswer
from tailrace.compat.site import Site, after, read
from tailrace.model import ResumeToken, StartPoint
from tailrace.stream import CursorRequest
from tailrace.stream.aggregate import request


async def empty_replies(site: Site) -> Facts:
    """Also whether one has a token that is older than the position (SERVER-135099)."""
    async with site.following("empty") as stream:
        await site.insert("empty", {"_id": 1})
        position = (await read(stream, 1))[0].token
    older = False
    wanted = request(site.scope("empty"), site.options, after(position))
    async for token in _tokens(site, wanted, 3):
        if token is None:
            raise NegativeAnswer("empty replies have no postBatchResumeToken")
        older = older or token.precedes(position)
    return {"older_than_position": older}


async def advancing_tokens(site: Site) -> Facts:
    """Changes of another collection must move the position of an idle stream."""
    wanted = request(site.scope("idle"), site.options, StartPoint())
    first = None
    async for token in _tokens(site, wanted, 100):
        if token is None:
            raise NegativeAnswer("empty replies have no postBatchResumeToken")
        if first is not None and first.precedes(token):
            return {"replies": "advanced"}
        first = first or token
        await site.insert("busy", {})
    raise NegativeAnswer("the tokens of empty replies stay the same")


async def _tokens(
    site: Site, wanted: CursorRequest, count: int
) -> AsyncIterator[ResumeToken | None]:
    """The post-batch tokens of so many empty replies."""
    session = await site.driver.start_session()
    try:
        cursor = await session.open(wanted)
        try:
            for _ in range(count):
                yield (await cursor.next_batch()).post_batch_token
        finally:
            cursor.kill()
    finally:
        await session.aclose()


async def token_order(site: Site) -> Facts:
    """The text of tokens must sort as the stream, and be the same in every stream."""
    async with site.following("sorted") as one, site.following() as all_:
        await site.insert("sorted", *({"_id": number} for number in range(3)))
        await site.update("sorted", 1, {"$set": {"changed": True}})
        tokens = [event.token for event in await read(one, 4)]
        others = [event.token for event in await read(all_, 4)]
    sorts = all(a.precedes(b) for a, b in pairwise(tokens))
    facts = {"sorted": sorts, "same_in_database_stream": tokens == others}
    if not sorts or tokens != others or tokens[0].cluster_time is None:
        raise NegativeAnswer("tokens are not those of mongod", facts)
    return facts
