"""What a cursor sends, by its server's wire version, and how long it may take to open.

PyMongo refuses sets whose monitors see less than wire version 9, but its older releases do not. So
the client here is a fake.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import anyio
import bson
import pytest
from bson.raw_bson import RawBSONDocument
from pymongo.read_concern import ReadConcern
from pymongo.read_preferences import Primary

from tailrace.drivers import CommandDriver, command_driver, cursor
from tailrace.drivers.connection import DriverClient
from tailrace.errors import ConnectionFailed
from tailrace.model import Scope, StartPoint
from tailrace.stream import ChangeStreamOptions
from tailrace.stream.aggregate import request

OPEN = request(
    Scope("orders", "shop", "orders"),
    ChangeStreamOptions(comment="why", batch_size=3),
    StartPoint(),
)


class FakeClient:
    """A direct connection to a server of a wire version; ``hangs`` on every command, or answers."""

    read_preference = Primary()
    read_concern = ReadConcern()

    def __init__(self, wire_version: int, *, hangs: bool = False) -> None:
        server = SimpleNamespace(max_wire_version=wire_version, is_server_type_known=True)
        self.topology_description = SimpleNamespace(server_descriptions=lambda: {("h", 1): server})
        self.sent: list[Mapping[str, Any]] = []
        self._hangs = hangs

    def __getitem__(self, name: str) -> FakeClient:
        return self

    async def command(self, command: Mapping[str, Any], **options: Any) -> RawBSONDocument:
        self.sent.append(command)
        if self._hangs:
            await anyio.sleep_forever()
        batch = "nextBatch" if "getMore" in command else "firstBatch"
        cursor = {"id": bson.Int64(7), "ns": "shop.orders", batch: []}
        return RawBSONDocument(bson.encode({"cursor": cursor, "ok": 1.0}))

    async def end_session(self) -> None: ...

    def driver(self) -> CommandDriver:
        async def start_session() -> FakeClient:
            return self

        async def close() -> None: ...

        return CommandDriver(lambda: DriverClient(self, start_session, close))


@pytest.mark.parametrize(("wire_version", "takes_it"), [(6, False), (8, False), (9, True)])
async def test_get_more_has_a_comment_where_the_server_takes_one(
    wire_version: int, takes_it: bool
) -> None:
    """Before MongoDB 4.4 the server refuses a getMore with a comment (specification, "comment")."""
    client = FakeClient(wire_version)
    async with client.driver() as driver:
        opened = await (await driver.start_session()).open(OPEN)
        await opened.next_batch()
    aggregate, get_more = client.sent
    assert aggregate["comment"] == "why"
    assert ("comment" in get_more) is takes_it
    assert get_more["batchSize"] == 3


async def test_an_aggregate_that_is_never_answered_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its connection hangs; the server itself would have stopped at the command's own limit."""
    monkeypatch.setattr(cursor, "OPEN_SECONDS", 0)
    async with FakeClient(21, hangs=True).driver() as driver:
        session = await driver.start_session()
        with pytest.raises(ConnectionFailed, match="has not answered an aggregate"):
            await session.open(OPEN)


async def test_what_a_cancelled_kill_raises_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyMongo's lock raises if its client is closed while a kill waits for a server."""

    class Cancelled(FakeClient):
        async def command(self, command: Mapping[str, Any], **options: Any) -> RawBSONDocument:
            if "killCursors" not in command:
                return await super().command(command, **options)
            try:
                await anyio.sleep_forever()
            finally:
                self.sent.append(command)
                raise RuntimeError("Lock is not acquired")

    monkeypatch.setattr(command_driver, "KILL_SECONDS", 0)
    client = Cancelled(21)
    async with client.driver() as driver:
        opened = await (await driver.start_session()).open(OPEN)
        opened.kill()
        await anyio.lowlevel.checkpoint()
    assert "killCursors" in client.sent[-1]
