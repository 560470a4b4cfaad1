"""What happens in the demo's shop: a plan of writes that depends on its seed alone.

Each writer has its own random numbers and its own documents, so the shop's final state is the
same however the writers' steps mix. Every step changes something: the events that a plan causes
can be counted beforehand. The next module, :mod:`tailrace.demo.workload`, carries it out.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from bson.binary import Binary
from bson.code import Code
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.regex import Regex
from bson.timestamp import Timestamp

DATABASE = "shop"
CUSTOMERS, ORDERS, CARTS, DRAFTS = "customers", "orders", "carts", "drafts"
ARCHIVED_CARTS = "archived_carts"
MARKERS = "markers"

Action = Literal["insert", "insert_many", "update", "replace", "delete", "transaction"]


@dataclass(frozen=True, slots=True)
class Step:
    """One write: ``arguments`` are those of PyMongo's method, or a transaction's steps."""

    action: Action
    collection: str
    arguments: tuple[Any, ...]

    @property
    def events(self) -> int:
        """How many change events it causes."""
        if self.action == "insert_many":
            return len(self.arguments[0])
        if self.action == "transaction":
            return sum(step.events for step in self.arguments)
        return 1


class Writer:
    """One of the shop's writers: knows its documents, and thinks of what to do with them next."""

    def __init__(self, seed: int, number: int) -> None:
        self._random = random.Random(f"{seed}-{number}")
        self._number = number
        self._made = 0
        self._known: dict[str, list[Any]] = {CUSTOMERS: [], ORDERS: [], CARTS: [], DRAFTS: []}
        self._known[ARCHIVED_CARTS] = []
        self._choices: list[tuple[int, str, Callable[[str], Step]]] = [
            (10, CUSTOMERS, self._insert),
            (14, ORDERS, self._insert),
            (4, ORDERS, self._insert_many),
            (8, CARTS, self._insert),
            (4, DRAFTS, self._insert),
            (10, CUSTOMERS, self._update),
            (30, ORDERS, self._update),
            (4, CARTS, self._update),
            (4, ARCHIVED_CARTS, self._update),
            (4, CUSTOMERS, self._replace),
            (5, ORDERS, self._delete),
            (3, CARTS, self._delete),
            (3, CUSTOMERS, self._pay),
        ]

    def steps(self, events: int) -> Iterator[Step]:
        """Steps that cause at least that many events, and little more."""
        weights = [weight for weight, _, _ in self._choices]
        while events > 0:
            _, collection, think = self._random.choices(self._choices, weights)[0]
            if think not in (self._insert, self._insert_many) and not self._known[collection]:
                continue
            step = think(collection)
            events -= step.events
            yield step

    def archive(self) -> None:
        """Takes note that carts were renamed to archived_carts, and that drafts were dropped."""
        self._known[ARCHIVED_CARTS].extend(self._known[CARTS])
        self._known[CARTS].clear()
        self._known[DRAFTS].clear()

    # --- what there is to do -----------------------------------------------------------------

    def _insert(self, collection: str) -> Step:
        return Step("insert", collection, (self._document(collection),))

    def _insert_many(self, collection: str) -> Step:
        count = self._random.randint(2, 5)
        return Step(
            "insert_many", collection, ([self._document(collection) for _ in range(count)],)
        )

    def _update(self, collection: str) -> Step:
        return Step("update", collection, ({"_id": self._pick(collection)}, self._edit()))

    def _replace(self, collection: str) -> Step:
        key = self._pick(collection)
        document = self._document(collection)
        self._known[collection].pop()
        return Step("replace", collection, ({"_id": key}, {**document, "_id": key}))

    def _delete(self, collection: str) -> Step:
        known = self._known[collection]
        key = known.pop(self._random.randrange(len(known)))
        return Step("delete", collection, ({"_id": key},))

    def _pay(self, collection: str) -> Step:
        """An order and what it does to the customer, together or not at all."""
        spent = {"$inc": {"revision": 1, "spent": self._random.randint(1, 99)}}
        customer = Step("update", collection, ({"_id": self._pick(collection)}, spent))
        return Step("transaction", collection, (self._insert(ORDERS), customer))

    def _pick(self, collection: str) -> Any:
        return self._random.choice(self._known[collection])

    def _edit(self) -> Any:
        """An update: each way in which a change stream describes one; never without effect."""
        pick, number = self._random.choice, self._random.randint(0, 99)
        edits: list[Any] = [
            {"$set": {"address.city": pick(["Bergen", "Zürich", "東京"]), "address.zip": number}},
            {"$set": {f"lines.{number % 4}": _line(self._random)}},
            {"$set": {"lines.0.quantity": Int64(number)}},
            {"$set": {f"labels.{number}": number, "status": pick(["paid", "sent", "back"])}},
            {"$unset": {pick(["note", "address.zip", "odd.nan", "labels"]): ""}},
            {"$push": {"tags": pick(["new", "vip", "gift"])}},
            {"$push": {"lines": {"$each": [_line(self._random), _line(self._random)]}}},
            {"$pull": {"tags": pick(["new", "vip", "gift"])}},
            {"$pop": {"tags": pick([-1, 1])}},
        ]
        edit = pick([*edits, None, None])
        if edit is None:  # a pipeline: the server describes it as a truncated array
            short = {"$slice": [{"$ifNull": ["$lines", []]}, 1 + number % 3]}
            return [{"$set": {"lines": short, "revision": {"$add": ["$revision", 1]}}}]
        return {**edit, "$inc": {"revision": 1}}

    # --- what there is -----------------------------------------------------------------------

    def _document(self, collection: str) -> dict[str, Any]:
        self._made += 1
        key = self._key(collection)
        self._known[collection].append(key)
        numbers = self._random
        return {
            "_id": key,
            "revision": 0,
            "status": "new",
            "spent": 0,
            "total": Decimal128(f"{numbers.randint(0, 10**6)}E-2"),
            "created": _moment(numbers),
            "address": {"city": "Wien", "zip": numbers.randint(1000, 9999)},
            "lines": [_line(numbers) for _ in range(numbers.randint(1, 4))],
            "tags": numbers.choices(["new", "vip", "gift"], k=numbers.randint(0, 3)),
            "labels": {"0": "first"},
            "note": "Grüße,\nzwei\u2028Zeilen 😀",
            "odd": _odd_values(numbers),
        }

    def _key(self, collection: str) -> Any:
        """Keys of several types: each is written into events in a shape of its own."""
        unique = self._number * 10**9 + self._made
        if collection == ORDERS:
            return Int64(unique)
        if collection == CARTS:
            return {"writer": self._number, "cart": self._made}
        if collection == DRAFTS:
            return Binary(self._random.randbytes(16), 4)
        return ObjectId(self._random.randbytes(12))


def _line(numbers: random.Random) -> dict[str, Any]:
    return {
        "sku": f"sku-{numbers.randint(0, 999):03d}",
        "quantity": numbers.randint(1, 9),
        "price": numbers.choice([9.5, 0.1, 1e300]),
        "sizes": [[1, 2], [numbers.random()]],
    }


def _odd_values(numbers: random.Random) -> dict[str, Any]:
    """The types that copies of documents get wrong."""
    return {
        "nan": float("nan"),
        "infinite": float("-inf"),
        "minus_zero": -0.0,
        "whole": float(numbers.randint(0, 9)),
        "long": Int64(numbers.randint(0, 9)),
        "large": 2**53 + numbers.randint(1, 99),
        "uuid": Binary(numbers.randbytes(16), 4),
        "bytes": Binary(numbers.randbytes(5), 0),
        "pattern": Regex("^a.*\\d$", "im"),
        "code": Code("function () { return 1; }"),
        "timestamp": Timestamp(1_700_000_000, numbers.randint(1, 99)),
        "ends": [MinKey(), MaxKey()],
        "nothing": None,
        "empty": [{}, []],
    }


def _moment(numbers: random.Random) -> datetime:
    start = datetime(1969, 1, 1, tzinfo=UTC)
    return start + timedelta(milliseconds=numbers.randrange(2 * 10**12))
