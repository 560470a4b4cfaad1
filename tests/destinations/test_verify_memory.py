"""How much of large documents and rows a verification holds at once."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import bson

from tailrace.engine import Comparison, HeldRows, Row, suspects_of
from tailrace.event import ChangeEvent, Namespace
from tailrace.model import StartPoint
from tailrace.model.snapshot import DocumentId
from tailrace.model.verification import (
    ComparedCollection,
    Counts,
    Verification,
    VerificationRequest,
)
from tailrace.snapshot.pace import ChunkPace
from tailrace.stores.memory import MemoryDeadLetters
from tailrace.testing import Changes
from tailrace.verify.findings import Findings
from tailrace.verify.looks import Looker
from tailrace.verify.source import Source
from tailrace.verify.steps import Steps
from tailrace.verify.window import Reached
from tests.contract.streams import connected
from tests.destinations.postgresql_store import Store
from tests.guards import against_hanging
from tests.handlers import OWNER, deliver
from tests.orders import Orders

SMALL, LARGE = 5000, 3
LARGE_BYTES = 15_000_000
MOST_BYTES = 64 * 1024 * 1024


@dataclass
class Counted:
    """The source and a comparison. ``most``: by call, the bytes that one has given."""

    server: Any
    comparison: Comparison
    most: dict[str, int]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.server, name)

    def note(self, call: str, size: int) -> None:
        self.most[call] = max(self.most.get(call, 0), size)

    async def find(self, wanted: Any) -> Any:
        replies = await self.server.find(wanted)
        self.note("find", sum(len(reply.buffer) for reply in replies))
        return replies

    async def expected(self, documents: Sequence[ChangeEvent]) -> Sequence[Row]:
        rows = await self.comparison.expected(documents)
        self.note("expected", sum(map(_size, rows)))
        return rows

    async def stored(self, collection: Namespace, keys: Sequence[DocumentId]) -> HeldRows:
        held = await self.comparison.stored(collection, keys)
        self.note("stored", sum(map(_size, filter(None, held.rows))))
        return held

    async def stored_keys(self, collection: Namespace, after: str | None, most: int) -> Any:
        return await self.comparison.stored_keys(collection, after, most)

    @property
    def suspects(self) -> Any:
        return suspects_of(self.comparison)


class Untouched(Source):
    """A collection that nobody changes."""

    async def touched(self, *_: Any) -> set[bytes] | None:
        return set()


def _size(row: Row) -> int:
    return sum(len(value) for value in row.values() if isinstance(value, str))


async def test_large_documents_behind_many_small_ones_are_not_held_at_once(
    orders: Orders, store: Store, changes: Changes
) -> None:
    documents = [{"_id": n} for n in range(SMALL)]
    documents += [{"_id": SMALL + n, "pad": "x" * LARGE_BYTES} for n in range(LARGE)]
    handler = await store.opened()
    await deliver(handler, *[changes.insert(each) for each in documents])
    of_large = f"WHERE (document ->> '_id')::int > {SMALL}"
    store.server.execute(f"UPDATE orders SET document = document || '{{\"n\": 1}}' {of_large}")
    with orders.server.client() as client:
        client.shop.orders.insert_many(documents)
        uuid = client.shop.command("listCollections")["cursor"]["firstBatch"][0]["info"]["uuid"]
        now = client.admin.command("ping")["operationTime"]
    of = ComparedCollection(uuid.hex(), "shop", "orders")
    record = Verification("s", "h", "1", 1, VerificationRequest(), "ann", datetime.now(UTC))
    findings = Findings(replace(record, collections={of.name: of}), MemoryDeadLetters())

    def reached() -> Reached:
        return Reached(now, StartPoint(at_operation_time=now))

    assert handler.comparison is not None
    async with connected("pymongo", orders.uri) as driver, handler.comparison(OWNER) as comparison:
        counted = Counted(driver, comparison, {})
        unused: Any = None
        source: Any = Untouched(lambda: counted, unused)
        steps = Steps(findings, source, ChunkPace(1000), reached, lambda: False)
        looker = Looker(source, counted, reached, "lookup")
        with against_hanging():
            while not (one := findings.record.collections[of.name]).is_over:
                await steps.step(looker, one)
    assert one.counts == Counts(SMALL + LARGE, equal=SMALL + 1, different=LARGE - 1)
    print(counted.most)
    assert sum(counted.most.values()) < MOST_BYTES, counted.most
    assert bson.decode(findings.record.keys[0].id.raw)["_id"] > SMALL  # type: ignore[union-attr]
