"""The demo's workload: writers of a shop's collections, and the documents that result.

Each writer has its own random numbers and documents, so the final state is always the same.
"""

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import anyio
from bson import Binary, Code, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase

CUSTOMERS, ORDERS, CARTS, DRAFTS = "customers", "orders", "carts", "drafts"
ARCHIVED_CARTS = "archived_carts"
BEFORE = 1000
"""How many documents exist before the service starts."""
LAST_CHANGE = "the last change"
"""The ``_id`` of the last document written."""

WRITERS = 4
"""Enough for their steps to mix; more writers would only wait for the server's disk."""

Shop = AsyncDatabase[dict[str, Any]]

_RAW: CodecOptions[RawBSONDocument] = CodecOptions(document_class=RawBSONDocument)


class Writer:
    """A writer with its own documents. Every step returns how many change events it caused."""

    def __init__(self, shop: Shop, number: int) -> None:
        self._shop = shop
        self._random = random.Random(f"1-{number}")
        self._number = number
        self._made = 0
        self._keys: dict[str, list[Any]] = {
            name: [] for name in (CUSTOMERS, ORDERS, CARTS, DRAFTS, ARCHIVED_CARTS)
        }

    async def step(self) -> int:
        weights = {
            self._insert: {CUSTOMERS: 10, ORDERS: 14, CARTS: 8, DRAFTS: 4},
            self._insert_many: {ORDERS: 4},
            self._update: {CUSTOMERS: 10, ORDERS: 30, CARTS: 4, ARCHIVED_CARTS: 4},
            self._replace: {CUSTOMERS: 4},
            self._delete: {ORDERS: 5, CARTS: 3},
            self._pay: {CUSTOMERS: 3},
        }
        steps = {(write, name): n for write, names in weights.items() for name, n in names.items()}
        while True:
            [(write, name)] = self._random.choices([*steps], [*steps.values()])
            if self._keys[name] or write in (self._insert, self._insert_many):
                return await write(name)

    def archive(self) -> None:
        """Notes that carts were renamed to archived_carts and drafts were dropped."""
        self._keys[ARCHIVED_CARTS] += self._keys[CARTS]
        self._keys[CARTS], self._keys[DRAFTS] = [], []

    async def _insert(self, name: str) -> int:
        await self._shop[name].insert_one(self._document(name))
        return 1

    async def _insert_many(self, name: str) -> int:
        documents = [self._document(name) for _ in range(self._random.randint(2, 5))]
        await self._shop[name].insert_many(documents)
        return len(documents)

    async def _update(self, name: str) -> int:
        await self._shop[name].update_one({"_id": self._known(name)}, self._edit())
        return 1

    async def _replace(self, name: str) -> int:
        key = self._known(name)
        await self._shop[name].replace_one({"_id": key}, {"_id": key, **self._content()})
        return 1

    async def _delete(self, name: str) -> int:
        key = self._known(name)
        self._keys[name].remove(key)
        await self._shop[name].delete_one({"_id": key})
        return 1

    async def _pay(self, name: str) -> int:
        """A transaction that inserts an order and adds to the customer's sum."""
        customer, spent = {"_id": self._known(name)}, self._random.randint(1, 99)
        order = self._document(ORDERS)

        async def together(session: AsyncClientSession) -> None:
            await self._shop[ORDERS].insert_one(order, session=session)
            await self._shop[name].update_one(
                customer, {"$inc": {"revision": 1, "spent": spent}}, session=session
            )

        async with self._shop.client.start_session() as session:
            await session.with_transaction(together)
        return 2

    async def fill(self, name: str, count: int) -> None:
        """Inserts ``count`` new documents."""
        await self._shop[name].insert_many([self._document(name) for _ in range(count)])

    def _known(self, name: str) -> Any:
        return self._random.choice(self._keys[name])

    def _edit(self) -> Any:
        """A random update, of any form that a change stream describes; never without effect."""
        pick, number = self._random.choice, self._random.randint(0, 99)
        edits: list[Any] = [
            {"$set": {"address.city": pick(["Bergen", "Zürich", "東京"]), "address.zip": number}},
            {"$set": {f"lines.{number % 4}": self._line()}},
            {"$set": {"lines.0.quantity": Int64(number)}},
            {"$set": {f"labels.{number}": number, "status": pick(["paid", "sent", "back"])}},
            {"$unset": {pick(["note", "address.zip", "odd.nan", "labels"]): ""}},
            {"$push": {"tags": pick(["new", "vip", "gift"])}},
            {"$push": {"lines": {"$each": [self._line(), self._line()]}}},
            {"$pull": {"tags": pick(["new", "vip", "gift"])}},
            {"$pop": {"tags": pick([-1, 1])}},
        ]
        edit = pick([*edits, None, None])
        if edit is None:  # an update pipeline: the server describes it as a truncated array
            short = {"$slice": [{"$ifNull": ["$lines", []]}, 1 + number % 3]}
            return [{"$set": {"lines": short, "revision": {"$add": ["$revision", 1]}}}]
        return {**edit, "$inc": {"revision": 1}}

    def _document(self, name: str) -> dict[str, Any]:
        """A new document. The type of its key depends on the collection."""
        self._made += 1
        keys = {
            ORDERS: Int64(self._number * 10**9 + self._made),
            CARTS: {"writer": self._number, "cart": self._made},
            DRAFTS: Binary(self._random.randbytes(16), 4),
        }
        key = keys.get(name, ObjectId(self._random.randbytes(12)))
        self._keys[name].append(key)
        return {"_id": key, **self._content()}

    def _content(self) -> dict[str, Any]:
        chance = self._random
        created = datetime(1969, 1, 1, tzinfo=UTC)
        return {
            "revision": 0,
            "status": "new",
            "spent": 0,
            "total": Decimal128(f"{chance.randint(0, 10**6)}E-2"),
            "created": created + timedelta(milliseconds=chance.randrange(2 * 10**12)),
            "address": {"city": "Wien", "zip": chance.randint(1000, 9999)},
            "lines": [self._line() for _ in range(chance.randint(1, 4))],
            "tags": chance.choices(["new", "vip", "gift"], k=chance.randint(0, 3)),
            "labels": {"0": "first"},
            "note": "Grüße,\nzwei\u2028Zeilen 😀",
            "odd": {  # types that are easily copied wrongly
                "nan": float("nan"),
                "infinite": float("-inf"),
                "minus_zero": -0.0,
                "whole": float(chance.randint(0, 9)),
                "long": Int64(chance.randint(0, 9)),
                "large": 2**53 + chance.randint(1, 99),
                "uuid": Binary(chance.randbytes(16), 4),
                "bytes": Binary(chance.randbytes(5), 0),
                "pattern": Regex("^a.*\\d$", "im"),
                "code": Code("function () { return 1; }"),
                "timestamp": Timestamp(1_700_000_000, chance.randint(1, 99)),
                "ends": [MinKey(), MaxKey()],
                "nothing": None,
                "empty": [{}, []],
            },
        }

    def _line(self) -> dict[str, Any]:
        chance = self._random
        return {
            "sku": f"sku-{chance.randint(0, 999):03d}",
            "quantity": chance.randint(1, 9),
            "price": chance.choice([9.5, 0.1, 1e300]),
            "sizes": [[1, 2], [chance.random()]],
        }


async def write_before(shop: Shop) -> Writer:
    """Writes the documents that exist before the service starts; returns their writer."""
    writer = Writer(shop, WRITERS)
    for name in (CUSTOMERS, ORDERS):
        await writer.fill(name, BEFORE // 2)
    return writer


async def run(
    shop: Shop, events: int, progress: Callable[[int], None], before: Writer | None = None
) -> None:
    """Writes until at least this many change events were caused; ``progress`` gets the number.

    Half way, carts are archived and drafts are dropped. ``before`` is one more writer.
    """
    writers = [Writer(shop, number) for number in range(WRITERS)]
    writers += [before] if before is not None else []
    written = 0

    def count(more: int) -> None:
        nonlocal written
        written += more
        progress(written)

    async def write(writer: Writer, share: int) -> None:
        while share > 0:
            made = await writer.step()
            share -= made
            count(made)

    async def write_together(total: int) -> None:
        async with anyio.create_task_group() as tasks:
            for number, writer in enumerate(writers):
                tasks.start_soon(write, writer, total // len(writers) + 1, name=f"writer {number}")

    await write_together(events // 2)
    present = await shop.list_collection_names()
    if CARTS in present:
        await shop[CARTS].rename(ARCHIVED_CARTS)
        count(1)
    if DRAFTS in present:
        await shop.drop_collection(DRAFTS)
        count(1)
    for writer in writers:
        writer.archive()
    await write_together(max(0, events - written))


async def write_last_change(shop: Shop) -> None:
    """Writes :data:`LAST_CHANGE`: when it is delivered, so are all changes before it."""
    await shop["markers"].insert_one({"_id": LAST_CHANGE})


async def read_source(shop: Shop) -> dict[str, list[bytes]]:
    """The raw documents that the server has now, by namespace of the shop."""
    raw = cast("AsyncDatabase[RawBSONDocument]", shop.with_options(cast(Any, _RAW)))
    names = [name for name in await raw.list_collection_names() if not name.startswith("system.")]
    return {
        f"{shop.name}.{name}": [bytes(document.raw) async for document in raw[name].find()]
        for name in sorted(names)
    }
