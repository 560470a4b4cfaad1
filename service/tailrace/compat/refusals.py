"""With which codes the server refuses; Tailrace decides by them what to do."""

from collections.abc import Awaitable
from typing import Any

from bson.timestamp import Timestamp

from tailrace.compat.answer import Facts, NegativeAnswer, not_here
from tailrace.compat.site import Site, after, read
from tailrace.errors import CommandFailed
from tailrace.model import ResumeToken, StartPoint
from tailrace.stream import HISTORY_LOST, NO_ACCESS

_UUID = "5A1004"
"""What precedes the collection's UUID in mongod's tokens."""


async def unknown_token(site: Site) -> Facts:
    """Of an event that never was, as after the restore of a backup."""
    async with site.following("refused") as stream:
        await site.insert("refused", {"_id": 1})
        token = (await read(stream, 1))[0].token.document
    before, mark, rest = str(token.get("_data")).partition(_UUID)
    if not mark:
        raise not_here("tokens are not those of mongod")
    other = "0" if rest[0] != "0" else "1"
    forged = ResumeToken.of({**token, "_data": f"{before}{mark}{other}{rest[1:]}"})
    return await _refused(_follow(site, after(forged)), HISTORY_LOST)


async def lost_history(site: Site) -> Facts:
    """A time before the oldest entry. A server whose oplog lost nothing yet accepts it."""
    start = StartPoint(at_operation_time=Timestamp(1, 1))
    try:
        return await _refused(_follow(site, start), HISTORY_LOST)
    except NegativeAnswer as answer:
        if answer.facts:
            raise
        raise not_here("the oplog may still have everything since the server was set up") from None


async def unauthorised(site: Site) -> Facts:
    """A login that does not exist."""
    async with site.outsider() as driver:
        return await _refused(driver.run(site.database, {"ping": 1}), NO_ACCESS)


async def unknown_stage(site: Site) -> Facts:
    command = {"aggregate": "refused", "pipeline": [{"$tailraceCompat": {}}], "cursor": {}}
    return await _refused(site.run(**command))


async def _follow(site: Site, start: StartPoint) -> None:
    async with site.following("refused", start) as stream:
        for _ in range(3):
            await stream.next_batch()


async def _refused(call: Awaitable[Any], codes: frozenset[int] = frozenset()) -> Facts:
    """The code of the refusal, which must be one of ``codes``, if any."""
    try:
        await call
    except CommandFailed as error:
        facts = {"code": error.code, "code_name": error.code_name}
        if codes and error.code not in codes:
            raise NegativeAnswer("Tailrace does not expect this code", facts) from None
        return facts
    raise NegativeAnswer("it is accepted")
