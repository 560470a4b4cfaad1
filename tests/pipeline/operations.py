"""Random changes of a database: every operation, every type of BSON, from one seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import bson
from bson.binary import Binary
from bson.code import Code
from bson.codec_options import CodecOptions
from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.raw_bson import RawBSONDocument
from bson.regex import Regex
from bson.timestamp import Timestamp
from pymongo import MongoClient
from pymongo.client_session import ClientSession

COLLECTIONS = ("orders", "späte äpfel.alt")

# No two of them are equal to the server, which takes 1 and 1.0 for one key.
KEYS: tuple[Any, ...] = (
    *range(8),
    Int64(2**40),
    2.5,
    Decimal128("100.25"),
    "text",
    'Grüße " \\ \u2028 😀',
    ObjectId("650000000000000000000001"),
    datetime(2024, 2, 29, 12, tzinfo=UTC),
    Binary(bytes(range(16)), 4),
    Binary(b"\0\xff", 0),
    Timestamp(1_700_000_000, 7),
    True,
    {"writer": 1, "cart": Int64(2)},
    {"writer": "1", "deep": {"er": None}},
)

VALUES: tuple[Any, ...] = (
    *(0, -1, 2**31 - 1, Int64(0), Int64(-(2**63)), 2**53 + 1),
    *(0.0, -0.0, 0.1, 1e300, float("nan"), float("-inf")),
    *(Decimal128("1.10"), Decimal128("NaN"), Decimal128("-0E-6176")),
    *("", "\0 in it", "zwei\nZeilen\u2028", True, False, None),
    *(DatetimeMS(-1), DatetimeMS(0), DatetimeMS(253402300799999)),  # later: the server refuses
    *(Binary(b"", 0), Binary(b"\x80", 128), Regex("^a.*/", "im"), Code("f()"), Timestamp(0, 1)),
    *(MinKey(), MaxKey(), {}, [], [[], [{}]], {"a.b": {"$c": 1}}, {"0": "no index"}),
)

_RAW: CodecOptions[RawBSONDocument] = CodecOptions(document_class=RawBSONDocument)


class Operations:
    """Changes one database, one random operation after another.

    ``settle`` is called before a rename: a looked-up image is the document at the time of the
    look-up, and would be of another document where the name has gone to another collection.
    """

    def __init__(
        self,
        client: MongoClient[dict[str, Any]],
        database: str,
        seed: str,
        settle: Callable[[], None] = lambda: None,
    ) -> None:
        self.database = database
        self.client = client
        self.settle = settle
        self.done: list[str] = []
        self._base = client[database]
        self._random = random.Random(seed)
        self._markers = 0
        self._known: dict[str, set[int]] = {name: set() for name in COLLECTIONS}

    def run(self, count: int) -> None:
        choices = [
            (30, self._insert),
            (40, self._update),
            (10, self._replace),
            (14, self._delete),
            (6, self._transaction),
            (1, self._drop),
            (2, self._rename),
        ]
        weights = [weight for weight, _ in choices]
        for _ in range(count):
            self._random.choices([each for _, each in choices], weights)[0]()

    def marker(self) -> bytes:
        """The document key of an insert that comes behind all that was done."""
        self._markers += 1
        key = {"_id": f"marker {self._markers}"}
        self._base[COLLECTIONS[0]].insert_one(dict(key))
        return bson.encode(key)

    def source(self) -> dict[str, list[bytes]]:
        """The documents of every collection that there ever was."""
        names = {*COLLECTIONS, *self._base.list_collection_names()}
        return {
            name: [bytes(each.raw) for each in self._base.get_collection(name, _RAW).find()]
            for name in sorted(names)
            if not name.startswith("system.")
        }

    # --- one operation each --------------------------------------------------------------------

    def _insert(self, session: ClientSession | None = None) -> None:
        name = self._name()
        free = sorted(set(range(len(KEYS))) - self._known[name])
        chosen = self._random.sample(free, min(len(free), self._random.choice([1, 1, 1, 4])))
        if chosen:
            documents = [self._document(at) for at in chosen]
            self._base[name].insert_many(documents, session=session)
            self._known[name].update(chosen)
            self._did("insert", name, chosen)

    def _update(self, session: ClientSession | None = None) -> None:
        name, at = self._pick()
        if at is not None:
            edit = self._edit()
            self._base[name].update_one({"_id": KEYS[at]}, edit, session=session)
            self._did("update", name, at, edit)

    def _replace(self, session: ClientSession | None = None) -> None:
        name, at = self._pick()
        if at is not None:
            self._base[name].replace_one({"_id": KEYS[at]}, self._document(at), session=session)
            self._did("replace", name, at)

    def _delete(self, session: ClientSession | None = None) -> None:
        name, at = self._pick()
        if at is not None:
            self._base[name].delete_one({"_id": KEYS[at]}, session=session)
            self._known[name].discard(at)
            self._did("delete", name, at)

    def _transaction(self) -> None:
        for name in COLLECTIONS:  # a transaction makes none
            if name not in self._base.list_collection_names():
                return
        before = {name: set(known) for name, known in self._known.items()}
        parts = [self._insert, self._update, self._replace, self._delete]
        with self.client.start_session() as session:
            session.start_transaction()
            for part in self._random.choices(parts, k=self._random.randint(2, 5)):
                part(session)
            if self._random.random() < 0.25:
                session.abort_transaction()
                self._known = before
                self._did("abort")
            else:
                session.commit_transaction()
                self._did("commit")

    def _drop(self) -> None:
        name = self._name()
        self._base.drop_collection(name)
        self._known[name].clear()
        self._did("drop", name)

    def _rename(self) -> None:
        name, target = self._random.sample(COLLECTIONS, 2)
        if name in self._base.list_collection_names():
            self.settle()
            self._base[name].rename(target, dropTarget=True)
            self._known[target], self._known[name] = self._known[name], set()
            self._did("rename", name, target)

    def _did(self, *what: Any) -> None:
        self.done.append(" ".join(map(str, what)))

    # --- what it is made of --------------------------------------------------------------------

    def _name(self) -> str:
        return self._random.choices(COLLECTIONS, [3, 2])[0]

    def _pick(self) -> tuple[str, int | None]:
        name = self._name()
        known = sorted(self._known[name])
        return name, self._random.choice(known) if known else None

    def _document(self, at: int) -> dict[str, Any]:
        values = self._random.choices(VALUES, k=self._random.randint(0, 4))
        return {
            "_id": KEYS[at],
            "n": self._random.randint(0, 9),
            "sub": {"x": self._value(), "y": {"z": self._value()}},
            "list": [self._value() for _ in range(self._random.randint(0, 4))],
            **{f"v{number}": value for number, value in enumerate(values)},
        }

    def _edit(self) -> Any:
        """Each way in which an update is described; some change nothing."""
        value, number = self._value(), self._random.randint(0, 4)
        return self._random.choice(
            [
                {"$set": {f"v{number}": value}},
                {"$set": {"sub.x": value, "sub.y.z": self._value(), "new.deep.er": value}},
                {"$set": {f"list.{number}": value}},
                {"$set": {f"sub.{number}": value}},  # a name that looks like an index
                {"$unset": {f"v{number}": "", "sub.x": ""}},
                {"$unset": {"new.deep": ""}},
                {"$push": {"list": value}},
                {"$push": {"list": {"$each": [value, {"k": value}], "$slice": -5}}},
                {"$pop": {"list": self._random.choice([-1, 1])}},
                {"$inc": {"n": 1}},
                {"$set": {"list": [value] * number}},
                [{"$set": {"list": {"$slice": ["$list", 1 + number]}, "n": number}}],
            ]
        )

    def _value(self) -> Any:
        return self._random.choice(VALUES)
