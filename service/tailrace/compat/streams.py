"""Whether streams are opened, read, resumed and ended as Tailrace needs it."""

from contextlib import suppress
from dataclasses import replace
from time import monotonic
from typing import Any

import anyio
from bson.int64 import Int64

from tailrace.compat.answer import Facts, NegativeAnswer, not_here
from tailrace.compat.site import Site, read, read_until, require
from tailrace.errors import CommandFailed, ConnectionFailed, StreamEnded
from tailrace.event.reply import Reply
from tailrace.model import Scope, StartPoint
from tailrace.stream import AtWork, ChangeStream, CursorRequest, Driver, StreamActivity
from tailrace.stream.driver_port import Cursor, Session
from tailrace.stream.resumable import UNLABELLED_CODES

_AWAIT_MS = 300


async def collection(site: Site) -> Facts:
    async with site.following("opened") as stream:
        await site.insert("opened", {"_id": 1}, {"_id": 2})
        require(await read(stream, 2), 1, 2)
    return {}


async def database(site: Site) -> Facts:
    async with site.following() as stream:
        await site.insert("opened_1", {"_id": 1})
        await site.insert("opened_2", {"_id": 2})
        require(await read(stream, 2), 1, 2)
    return {}


async def cluster(site: Site) -> Facts:
    """Only opened and closed, and with a filter of our own database."""
    ours = replace(site.options, pipeline=({"$match": {"ns.db": site.database}},))
    async with ChangeStream(site.driver, Scope("compat"), ours) as stream:
        await stream.next_batch()  # the aggregate's own reply: nothing is read
    return {}


async def resume_after(site: Site) -> Facts:
    return await _resumed(site, "resumed_after", lambda token: StartPoint(resume_after=token))


async def start_after(site: Site) -> Facts:
    return await _resumed(site, "started_after", lambda token: StartPoint(start_after=token))


async def _resumed(site: Site, name: str, start: Any) -> Facts:
    async with site.following(name) as stream:
        await site.insert(name, {"_id": 1}, {"_id": 2}, {"_id": 3})
        first = (await read(stream, 3))[0]
    async with site.following(name, start(first.token)) as stream:
        require(await read(stream, 2), 2, 3)
    return {}


async def start_at_time(site: Site) -> Facts:
    async with site.following("at_time") as stream:
        await site.insert("at_time", {"_id": 1})
        await site.insert("at_time", {"_id": 2})
        events = await read(stream, 2)
    time = events[1].cluster_time
    async with site.following("at_time", StartPoint(at_operation_time=time)) as stream:
        require(await read(stream, 1), 2)
    return {}


class _NotingDriver:
    """A driver for one stream, and its session: notes the first reply of the cursor."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.look_up = driver.look_up
        self.first: Reply | None = None

    async def start_session(self) -> Session:
        self._session = await self._driver.start_session()
        return self

    async def open(self, request: CursorRequest, at_work: AtWork) -> Cursor:
        cursor = await self._session.open(request, at_work)
        self.first = cursor.first
        return cursor

    async def aclose(self) -> None:
        await self._session.aclose()


async def killed_cursor(site: Site) -> Facts:
    """Kills the cursor of a stream at the server: Tailrace must resume it, and lose nothing."""
    activity, driver = StreamActivity(), _NotingDriver(site.driver)
    stream = ChangeStream(driver, site.scope("killed"), site.options, activity=activity)
    async with stream:
        await site.insert("killed", {"_id": 1})
        require(await read(stream, 1), 1)
        assert driver.first is not None  # noqa: S101 - for the type checker: it is open
        kill = {"killCursors": driver.first.collection, "cursors": [Int64(driver.first.cursor_id)]}
        for _ in range(10):  # another mongos does not know it
            if (await site.run(**kill)).get("cursorsKilled"):
                break
        await site.insert("killed", {"_id": 2})
        require(await read(stream, 1), 2)
    if not activity.resumes:
        raise not_here("the cursor could not be killed")
    return {"resumed_after": sorted(activity.resumes)}


async def elections(site: Site) -> Facts:
    """Makes the primary step down; writes and the stream must go on."""
    activity = StreamActivity()
    stream = ChangeStream(site.driver, site.scope("elected"), site.options, activity=activity)
    async with stream:
        await site.insert("elected", {"_id": 1})
        require(await read(stream, 1), 1)
        force = {"force": True} if len(site.hello.get("hosts", ())) < 2 else {}
        command = {"replSetStepDown": 5, "secondaryCatchUpPeriodSecs": 4, **force}
        with suppress(ConnectionFailed):  # the primary may close its connections
            await site.driver.run("admin", command)
        began = monotonic()
        while not await _written(site, "elected", {"_id": 2}):  # noqa: ASYNC110 - no event
            await anyio.sleep(0.1)
        seconds = round(monotonic() - began, 1)
        require(await read(stream, 1), 2)
    return {"resumes": sum(activity.resumes.values()), "seconds_without_primary": seconds}


async def _written(site: Site, name: str, document: dict[str, Any]) -> bool:
    """Whether there is a primary, which has the document now."""
    try:
        await site.insert(name, document)
    except ConnectionFailed:
        return False
    except CommandFailed as error:
        if error.code in UNLABELLED_CODES:
            return False
        raise
    return True


async def await_time(site: Site) -> Facts:
    """How long an empty ``getMore`` waits, if it may wait for :data:`_AWAIT_MS`."""
    async with site.following("awaited", max_await_time_ms=_AWAIT_MS) as stream:
        await stream.next_batch()
        await stream.next_batch()  # searches the oplog
        began = monotonic()
        await stream.next_batch()
        took = round((monotonic() - began) * 1000)
    facts = {"asked_ms": _AWAIT_MS, "waited_ms": took}
    if not _AWAIT_MS / 2 <= took <= 10 * _AWAIT_MS:
        raise NegativeAnswer("an empty reply came too soon or too late", facts)
    return facts


async def batch_size(site: Site) -> Facts:
    async with site.following("batches", batch_size=2) as stream:
        await site.insert("batches", *({"_id": number} for number in range(5)))
        sizes: list[int] = []
        while sum(sizes) < 5:
            if size := len(await stream.next_batch()):
                sizes.append(size)
    if max(sizes) > 2:
        raise NegativeAnswer("replies had more events than asked for", {"sizes": sizes})
    return {"sizes": sizes}


async def dropped(site: Site) -> Facts:
    return await _invalidated(site, "dropped", lambda: site.run(drop="dropped"))


async def renamed(site: Site) -> Facts:
    names = {name: f"{site.database}.renamed{end}" for name, end in (("old", ""), ("new", "_2"))}
    command = {"renameCollection": names["old"], "to": names["new"]}
    return await _invalidated(site, "renamed", lambda: site.driver.run("admin", command))


async def dropped_database(site: Site) -> Facts:
    """The last question: the database is created again by the event that must follow."""
    return await _invalidated(site, None, lambda: site.run(dropDatabase=1))


async def _invalidated(site: Site, name: str | None, end: Any) -> Facts:
    """Ends a stream by ``end``, and continues after its invalidate event."""
    written = name or "before_drop"
    async with site.following(name) as stream:
        await site.insert(written, {"_id": 1})
        await end()
        try:
            events = await read_until(stream, "invalidate")
        except StreamEnded:
            raise NegativeAnswer("the stream ended without an invalidate event") from None
    types = [event.operation_type for event in events]
    start = StartPoint(start_after=events[-1].token)
    async with site.following(name, start) as stream:
        await site.insert(written, {"_id": 2})
        require((await read_until(stream, "insert"))[-1:], 2)
    return {"events": types[-2:]}
