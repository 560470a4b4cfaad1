"""A change stream goes on after what the specification calls resumable, and only after that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tailrace.errors import CommandFailed
from tailrace.stream import ChangeStream
from tailrace.stream.resumable import UNLABELLED_CODES
from tests.contract.streams import (
    ABANDONS_CONNECTS,
    DRIVER_NAMES,
    NS,
    ORDERS,
    QUICK,
    connected,
    following,
    ids,
    read,
)
from tests.scripted import RESUMABLE, ScriptedSet

pytestmark = [pytest.mark.parametrize("name", DRIVER_NAMES), *ABANDONS_CONNECTS]

OTHER_CODES = [1, 13, 50, 136, 222, 237, 280, 286]


@asynccontextmanager
async def reading(name: str, server: ScriptedSet) -> AsyncIterator[ChangeStream]:
    """A stream that has read an event."""
    async with following(name, server) as stream:
        server.insert(NS, {"_id": "first"})
        assert ids(await read(stream, 1)) == ["first"]
        yield stream


async def test_with_the_label_any_error_of_a_read_resumes(name: str, scripted: ScriptedSet) -> None:
    codes = [43, *sorted(UNLABELLED_CODES), *OTHER_CODES]
    async with reading(name, scripted) as stream:
        for code in codes:
            scripted.fail("getMore", code=code, labels=[RESUMABLE])
            scripted.insert(NS, {"_id": code})
            assert ids(await read(stream, 1)) == [code]
    assert len(scripted.commands("aggregate")) == 1 + len(codes)


async def test_without_the_label_none_does(name: str, scripted: ScriptedSet) -> None:
    codes = [*sorted(UNLABELLED_CODES), *OTHER_CODES]
    async with connected(name, scripted.uri) as driver:
        for code in codes:
            async with ChangeStream(driver, ORDERS, QUICK) as stream:
                await stream.next_batch()
                scripted.fail("getMore", code=code)
                with pytest.raises(CommandFailed) as raised:
                    await stream.next_batch()
                assert (raised.value.code, raised.value.wire_version) == (code, 21)
    assert len(scripted.commands("aggregate")) == len(codes)


async def test_and_so_does_a_lost_connection(name: str, scripted: ScriptedSet) -> None:
    async with reading(name, scripted) as stream:
        waiting = asyncio.create_task(read(stream, 1))
        await scripted.until("getMore", count=len(scripted.commands("getMore")) + 1)
        scripted.cut_connections(0)
        scripted.insert(NS, {"_id": "second"})
        assert ids(await waiting) == ["second"]
