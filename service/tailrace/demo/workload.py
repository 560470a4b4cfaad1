"""The shop's writers at work on a server, and what the server holds afterwards.

The plan says what is written (:mod:`tailrace.demo.plan`); here it is written, by several writers
at once, with a rename and a drop of collections half way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import anyio
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.cursor import AsyncCursor
from pymongo.asynchronous.database import AsyncDatabase

from tailrace.demo.plan import (
    ARCHIVED_CARTS,
    CARTS,
    DRAFTS,
    MARKERS,
    Step,
    Writer,
)

WRITERS = 4
"""Enough that their steps mix; more would only wait for the server's disk."""

Shop = AsyncDatabase[dict[str, Any]]
Progress = Callable[[int], None]

_RAW: CodecOptions[RawBSONDocument] = CodecOptions(document_class=RawBSONDocument)


async def run_workload(
    shop: Shop, *, events: int, seed: int = 1, progress: Progress = lambda written: None
) -> int:
    """Writes until at least that many change events have been caused, and says how many.

    ``progress`` gets the number so far after every step. The first half is written before carts
    are archived and drafts are dropped, the second half after it.
    """
    writers = [Writer(seed, number) for number in range(WRITERS)]
    written = 0

    def count(more: int) -> None:
        nonlocal written
        written += more
        progress(written)

    async def write(writer: Writer, share: int) -> None:
        for step in writer.steps(share):
            await _carry_out(shop, step)
            count(step.events)

    async def write_together(total: int) -> None:
        async with anyio.create_task_group() as tasks:
            for number, writer in enumerate(writers):
                share = total // WRITERS + (number < total % WRITERS)
                tasks.start_soon(write, writer, share, name=f"writer {number}")

    await write_together(events // 2)
    count(await _archive(shop, writers))
    await write_together(max(0, events - written))
    return written


async def write_marker(shop: Shop, name: str) -> None:
    """Writes the last event of a run: once it is delivered, all before it are."""
    await shop[MARKERS].insert_one({"_id": name})


async def read_source(shop: Shop) -> dict[str, list[bytes]]:
    """What the server holds now: the raw documents of each of the shop's namespaces."""
    source: dict[str, list[bytes]] = {}
    for name in sorted(await shop.list_collection_names()):
        if not name.startswith("system."):
            collection = shop.get_collection(name, codec_options=cast(Any, _RAW))
            documents = cast("AsyncCursor[RawBSONDocument]", collection.find())
            source[f"{shop.name}.{name}"] = [bytes(document.raw) async for document in documents]
    return source


async def _archive(shop: Shop, writers: list[Writer]) -> int:
    """Renames one collection and drops another, if they exist; says how many events that made."""
    present = await shop.list_collection_names()
    events = 0
    if CARTS in present:
        await shop[CARTS].rename(ARCHIVED_CARTS)
        events += 1
    if DRAFTS in present:
        await shop.drop_collection(DRAFTS)
        events += 1
    for writer in writers:
        writer.archive()
    return events


async def _carry_out(shop: Shop, step: Step) -> None:
    if step.action != "transaction":
        await _write(shop, step, None)
        return

    async def together(session: AsyncClientSession) -> None:
        for part in step.arguments:
            await _write(shop, part, session)

    async with shop.client.start_session() as session:
        await session.with_transaction(together)


async def _write(shop: Shop, step: Step, session: AsyncClientSession | None) -> None:
    collection = shop[step.collection]
    first, *rest = step.arguments
    match step.action:
        case "insert":
            await collection.insert_one(first, session=session)
        case "insert_many":
            await collection.insert_many(first, session=session)
        case "update":
            await collection.update_one(first, rest[0], session=session)
        case "replace":
            await collection.replace_one(first, rest[0], session=session)
        case "delete":
            await collection.delete_one(first, session=session)
