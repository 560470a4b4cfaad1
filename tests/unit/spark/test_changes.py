"""``view=changes`` against a model: the documents that a history of a source leaves behind."""

import itertools
import json
import random
from pathlib import Path
from typing import Any

import bson
import pytest
from bson import json_util
from pyspark.sql.types import VariantVal

from tailrace.errors import PipelineRefused
from tailrace.event.extended_json import to_json
from tailrace.lake.segment import Documents
from tailrace.spark.options import Options, ShownForm, arrow_schema
from tailrace.spark.planning import whole_lake
from tailrace.spark.reading import read
from tests.pipeline.events import Stream
from tests.pipeline.landing import Landing
from tests.spark.query import Batch, Query

CANONICAL, RELAXED = json_util.CANONICAL_JSON_OPTIONS, json_util.RELAXED_JSON_OPTIONS
FAR = bson.DatetimeMS(300_000_000_000_000)


@pytest.fixture
def landing(tmp_path: Path) -> Landing:
    return Landing(tmp_path / "lake")


SNAPSHOT = {"db": "shop", "uuid": "", "state": "done", "documents": 1}
KEYS = [
    *(1, "k", bson.Int64(2**40), bson.ObjectId("65f0a1b2c3d4e5f6a7b8c9d0"), 1.5, None, True),
    *({"a": 1, "b": ["x"]}, bson.Binary(b"\0\1", 4), bson.Decimal128("2.50"), "$oid", FAR),
]


def text(value: Any) -> str:
    """Canonical Extended JSON, without spaces."""
    return json_util.dumps({"": value}, json_options=CANONICAL, separators=(",", ":"))[4:-1]


class Source:
    """Collections with their documents, and the events of what happens to them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.without_image = 0.2 * (seed % 2)
        self.stream = Stream()
        self.collections: dict[str, dict[str, dict[str, Any]]] = {}
        self.numbers = itertools.count()

    def events(self) -> list[dict[str, Any]]:
        """What some operation writes to the oplog."""
        choose, s = self.random.choice, self.stream
        name = choose(["orders", "orders", "customers", "carts"])
        there = self.collections.setdefault(name, {})
        kind = self.random.choices(
            ["put", "update", "delete", "drop", "rename", "database", "sweep", "move"],
            [80, 48, 32, 2, 2, 1, 1, 4],
        )[0]
        if kind == "put":
            return [self._put(name, choose(KEYS))]
        if kind == "update" and there:
            return [self._update(name, choose(sorted(there)))]
        if kind == "delete" and there:
            key = choose(sorted(there))
            return [s.delete(there.pop(key)["_id"], name)]
        if kind == "drop":
            del self.collections[name]
            return [s.drop(name)]
        if kind == "rename":
            to = choose([each for each in ("orders", "customers", "carts") if each != name])
            self.collections[to] = self.collections.pop(name)
            return [s.rename(name, to)]
        if kind == "database":
            self.collections.clear()
            return [s.drop_database()]
        if kind == "sweep":
            return self._sweep(name)
        if kind == "move" and there:
            return self._move(name, choose(sorted(there)))
        return []

    def _put(self, name: str, key: Any) -> dict[str, Any]:
        there, fields = self.collections[name], self._fields()
        known = there.get(text(key))
        there[text(key)] = {"_id": key, **fields}
        put = self.stream.insert if known is None else self.stream.replace
        return put(key, name, **fields)

    def _fields(self) -> dict[str, Any]:
        n = next(self.numbers)
        shape: Any = (n, str(n), {"n": n}, [n], None)[n % 5]
        deep = {"a": [bson.Int64(n), None]}
        return {"n": n, "at": FAR, "x": float("inf"), "shape": shape, "deep": deep}

    def _update(self, name: str, key: str) -> dict[str, Any]:
        document, n = self.collections[name][key], next(self.numbers)
        document["n"] = n
        event = self.stream.update(document["_id"], name, n=n)
        with_image = {"fullDocument": dict(document)}
        return event | ({} if self.random.random() < self.without_image else with_image)

    def _sweep(self, name: str) -> list[dict[str, Any]]:
        """A snapshot after a gap in which documents of this collection were deleted."""
        there = self.collections[name]
        for key in self.random.sample(sorted(there), len(there) // 2):
            del there[key]
        known = list(there.values())
        rows = [
            lambda document=document: self.stream.read(
                document["_id"], name, **{k: v for k, v in document.items() if k != "_id"}
            )
            for document in known
        ]
        events = self.stream.snapshot(*rows, chosen=[name])
        for event in (events[0], events[-1]):
            (collection,) = event["snapshot"]["collections"]
            collection["coll"] = name
        return events

    def _move(self, name: str, key: str) -> list[dict[str, Any]]:
        """To another shard: the insert comes before the delete, or after it."""
        s, document = self.stream, self.collections[name][key]
        old, n = document.get("shard", "a"), next(self.numbers)
        document |= {"shard": f"s{n}", "n": n}
        own = document["_id"]
        with s.transaction():
            insert = s.insert(own, name, **{k: v for k, v in document.items() if k != "_id"})
            delete = s.delete(own, name)
        insert["documentKey"] = {"_id": own, "shard": document["shard"]}
        delete["documentKey"] = {"_id": own, "shard": old}
        events = [insert, delete]
        self.random.shuffle(events)
        return events

    def documents(self) -> dict[tuple[str, str], Any]:
        return {
            (name, key): json.loads(json_util.dumps(document, json_options=RELAXED))
            for name, documents in self.collections.items()
            for key, document in documents.items()
        }


class Table:
    """What ``MERGE`` makes of batches: the last change of each key of a batch is applied."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], Any] = {}

    def merge(self, batch: Batch) -> None:
        last: dict[tuple[str, str], dict[str, Any]] = {}
        for row in batch:
            key = row["collection"], row["key"]
            if key not in last or row["sequence"] > last[key]["sequence"]:
                last[key] = row
        for key, row in last.items():
            assert len(row["sequence"]) == 38
            if row["operation"] == "delete":
                assert row["document"] is None
                self.rows.pop(key, None)
            else:
                self.rows[key] = json.loads(row["document"])


@pytest.mark.parametrize("seed", range(6))
def test_the_changes_of_any_batches_leave_the_documents_of_the_source(
    seed: int, tmp_path: Path
) -> None:
    """Batches end anywhere; some are read again after a kill, and one table takes each of them.

    Documents change their shape, and segments the form in which they have documents.
    """
    forms = ([Documents.BSON], [Documents.BSON, Documents.CANONICAL], [Documents.CANONICAL])
    landing, source, table = Landing(tmp_path / "lake"), Source(seed), Table()
    query, chance, landed = Query(landing), random.Random(seed), list[dict[str, Any]]()
    for _ in range(6):
        for _ in range(chance.randrange(1, 5)):
            events = [e for _ in range(chance.randrange(1, 30)) for e in source.events()]
            landing.land(events, documents=chance.choice(forms[seed % 3]))
            landed += events
        if chance.random() < 0.3:  # an operator set the position back
            landing.land(landed[-chance.randrange(1, 60) :])
        before = query.offset
        for _ in range(1 + (chance.random() < 0.3)):
            query.offset = before
            for batch in query.batches(view="changes", max_segments=str(chance.randrange(1, 4))):
                table.merge(batch)
            assert table.rows == source.documents()
    whole = Table()
    parts = whole_lake({"lake": str(landing.path), "view": "changes"})
    whole.merge([row for part in parts for each in read(part) for row in each.to_pylist()])
    assert whole.rows == source.documents()


def _changes(landing: Landing, **options: str) -> list[tuple[str, str, str, Any]]:
    """Collection, key, operation and document."""
    parts = whole_lake({"lake": str(landing.path), "view": "changes", **options})
    rows = [row for part in parts for each in read(part) for row in each.to_pylist()]
    assert rows == sorted(rows, key=lambda row: row["sequence"])
    return [
        (
            row["collection"],
            row["key"],
            row["operation"],
            row["document"] and json.loads(row["document"]),
        )
        for row in rows
    ]


def test_a_rename_and_a_drop_become_changes_of_keys(landing: Landing) -> None:
    s = Stream()
    landing.land(
        [s.insert(1, n=1), s.insert(2, n=2), s.insert(2, "older", n=0), s.insert(3, "older")]
    )
    landing.land([s.rename("orders", "older"), s.insert(9)])
    landing.land([s.drop("older")])
    one, two, three, nine = (f'{{"$numberInt":"{each}"}}' for each in (1, 2, 3, 9))
    assert _changes(landing)[4:] == [
        ("older", three, "delete", None),
        ("orders", one, "delete", None),
        ("older", one, "upsert", {"_id": 1, "n": 1}),
        ("orders", two, "delete", None),
        ("older", two, "upsert", {"_id": 2, "n": 2}),
        ("orders", nine, "upsert", {"_id": 9}),
        ("older", one, "delete", None),
        ("older", two, "delete", None),
    ]
    assert _changes(landing, collections="shop.orders")[2:] == [
        ("orders", one, "delete", None),
        ("orders", two, "delete", None),
        ("orders", nine, "upsert", {"_id": 9}),
    ]


def test_a_drop_that_comes_again_spares_what_came_after_it(landing: Landing) -> None:
    """Documents that a rename brought, too, though they were inserted before the drop."""
    s = Stream()
    first = [s.insert(1), s.drop_database()]
    second = [s.insert(2), s.drop_database()]
    landing.land([*first, *second, *first, second[0]])
    assert [change[2] for change in _changes(landing)] == ["upsert", "delete"] * 2
    events = [s.insert(3), s.insert(4, "older"), s.drop("older"), s.rename("orders", "older")]
    landing.land([*events, events[2], second[1]])
    three, four = (f'{{"$numberInt":"{each}"}}' for each in (3, 4))
    assert _changes(landing)[4:] == [
        ("orders", three, "upsert", {"_id": 3}),
        ("older", four, "upsert", {"_id": 4}),
        ("older", four, "delete", None),
        ("orders", three, "delete", None),
        ("older", three, "upsert", {"_id": 3}),
    ]


def test_the_end_of_a_snapshot_is_of_documents_that_were_there_while_it_ran(
    landing: Landing,
) -> None:
    """A rename brought them meanwhile. If the end comes again, those that came later stay."""
    s = Stream()
    landing.land([s.insert(1), s.insert(2), s.insert(3, "carts")])
    older = {"db": "shop", "coll": "older", "uuid": "", "state": "done", "documents": 1}
    rename, row = (lambda: s.rename("orders", "older")), (lambda: s.read(1, "older"))
    events = s.snapshot(rename, row, collections=[older], chosen=["older"])
    landing.land([*events, s.rename("carts", "older"), events[-1]])
    one, two, three = (f'{{"$numberInt":"{each}"}}' for each in (1, 2, 3))
    assert _changes(landing)[3:] == [
        ("orders", one, "delete", None),
        ("older", one, "upsert", {"_id": 1}),
        ("orders", two, "delete", None),
        ("older", two, "upsert", {"_id": 2}),
        ("older", one, "upsert", {"_id": 1}),
        ("older", two, "delete", None),
        ("older", one, "delete", None),
        ("carts", three, "delete", None),
        ("older", three, "upsert", {"_id": 3}),
    ]


def test_a_variant_is_one_in_both_views(landing: Landing) -> None:
    s = Stream()
    landing.land([s.insert(1, n={"a": [1, None]}), s.delete(1), s.insert(2), s.drop()])
    for view in ("changes", "events"):
        options = {"lake": str(landing.path), "view": view, "documents": "variant"}
        batches = [batch for part in whole_lake(options) for batch in read(part)]
        assert all(batch.schema == arrow_schema(Options.of(options)) for batch in batches)
        first, *others = (row["document"] for batch in batches for row in batch.to_pylist())
        variant = VariantVal(first["value"], first["metadata"])
        assert variant.toPython() == {"_id": 1, "n": {"a": [1, None]}}
        assert None in others


def test_a_key_of_another_type_replaces_that_of_before(landing: Landing) -> None:
    s = Stream()
    insert = s.insert(1, n=1)
    replaced = s.replace(1, n=2) | {"fullDocument": {"_id": bson.Int64(1), "n": 2}}
    landing.land([insert, replaced])
    assert _changes(landing)[1:] == [
        ("orders", '{"$numberInt":"1"}', "delete", None),
        ("orders", '{"$numberLong":"1"}', "upsert", {"_id": 1, "n": 2}),
    ]


@pytest.mark.parametrize("events_in_a_batch", [1, 2, 9])
@pytest.mark.parametrize("again", [False, True])
def test_a_row_of_a_snapshot_replaces_a_key_of_another_type(
    again: bool, events_in_a_batch: int, landing: Landing
) -> None:
    """Its deletion was lost in a gap, or comes after the row."""
    s, query, table = Stream(), Query(landing), Table()
    first = [s.insert(1), s.insert(3), s.insert(2, "carts"), s.insert(4)]
    deleted = s.delete(1)
    others = (lambda: s.insert(3.0, n=3)), (lambda: s.insert(2.0, "carts"))
    row = (lambda: s.read(1.0, n=1)), (lambda: deleted if again else s.read(4))
    snapshot = s.snapshot(*others, *row, collections=[{"coll": "orders", **SNAPSHOT}])
    events = [*first, *snapshot, s.rename("carts", "older"), s.insert(2, "carts")]
    for at in range(0, len(events), events_in_a_batch):
        landing.land(events[at : at + events_in_a_batch])
        for batch in query.batches(view="changes"):
            keys = [(row["collection"], row["key"], row["sequence"]) for row in batch]
            assert len({*keys}) == len(keys)
            table.merge(batch)
    left = {("orders", text(3.0)): 3.0, ("orders", text(1.0)): 1.0, ("older", text(2.0)): 2.0}
    left |= {("carts", text(2)): 2} | ({} if again else {("orders", text(4)): 4})
    assert {key: document["_id"] for key, document in table.rows.items()} == left


def test_a_rename_over_a_document_whose_key_has_another_type_replaces_it(landing: Landing) -> None:
    """The server takes both for the same ``_id``, and a table has another text for each."""
    s = Stream()
    landing.land([s.insert(bson.Decimal128("1.0")), s.insert(2), s.insert(1, "carts")])
    landing.land([s.insert(2, "carts"), s.rename("carts", "orders")])
    one, two = (f'{{"$numberInt":"{each}"}}' for each in (1, 2))
    assert _changes(landing)[4:] == [
        ("orders", '{"$numberDecimal":"1.0"}', "delete", None),
        ("carts", one, "delete", None),
        ("orders", one, "upsert", {"_id": 1}),
        ("carts", two, "delete", None),
        ("orders", two, "upsert", {"_id": 2}),
    ]


@pytest.mark.parametrize("form", [Documents.BSON, Documents.CANONICAL])
def test_fields_that_look_like_extended_json_stay_as_they_are(
    form: Documents, landing: Landing
) -> None:
    """Also where the text is read, and where an update is applied to a document."""
    s = Stream()
    id = {"$oid": "x", "n": bson.Int64(1)}
    first = {"_id": id, "at": {"$date": "soon"}, "many": {"$numberInt": "05"}}
    second = {**first, "n": 2, "when": {"$date": "2026-01-01T00:00:00Z"}}
    fields = {name: second[name] for name in ("n", "when")}
    insert = s.insert(id, at=first["at"], many=first["many"])
    landing.land([insert, s.update(id, **fields), s.drop()], documents=form)
    key, documents = text(id), [first, second]
    for shown in ShownForm:
        options = {"lake": str(landing.path), "view": "changes", "documents": shown.value}
        batches = [batch for part in whole_lake(options) for batch in read(part)]
        rows = [row for batch in batches for row in batch.to_pylist()]
        assert [row["key"] for row in rows] == [key] * 3
        found = [row["document"] for row in rows[:2]]
        match shown:
            case ShownForm.BSON:
                assert found == [bson.encode(each) for each in documents]
            case ShownForm.VARIANT:
                values = [VariantVal(each["value"], each["metadata"]) for each in found]
                plain = {"$oid": "x", "n": 1}
                assert [v.toPython() for v in values] == [{**d, "_id": plain} for d in documents]
            case _:
                raws = [bson.encode(each) for each in documents]
                canonical = shown is ShownForm.CANONICAL
                assert found == [to_json(raw, canonical=canonical) for raw in raws]


@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize("form", [Documents.BSON, Documents.CANONICAL])
def test_events_without_an_id_are_of_no_document(
    form: Documents, folded: bool, landing: Landing
) -> None:
    """A scope's pipeline may remove it; without it in the document alone, the key counts."""
    s = Stream()
    events = [s.drop("folds")] if folded else []
    events += [s.insert(1, n=1)]
    events += [s.insert(2) | {"documentKey": key} for key in ({}, {"shard": 1})]
    events += [s.replace(1, n=2) | {"fullDocument": {"n": 2}}, s.insert(None)]
    landing.land(events, documents=form)
    one, null = text(1), "null"
    assert _changes(landing) == [
        ("orders", one, "upsert", {"_id": 1, "n": 1}),
        ("orders", one, "upsert", {"n": 2}),
        ("orders", null, "upsert", {"_id": None}),
    ]
    parts = whole_lake({"lake": str(landing.path)})
    rows = [row for part in parts for each in read(part) for row in each.to_pylist()]
    assert [row["key"] for row in rows[folded:]] == [one, None, None, one, null]


def test_an_update_of_a_document_that_a_look_up_did_not_find(landing: Landing) -> None:
    """The known one stays, with the update applied; an unknown one is not there."""
    s = Stream()
    landing.land([s.insert(1, n=1), s.update(1, image=None, n=2), s.update(2, image=None, n=2)])
    landing.land([s.update(3, n=2)])
    one, three = (f'{{"$numberInt":"{each}"}}' for each in (1, 3))
    assert _changes(landing)[1:] == [
        ("orders", one, "upsert", {"_id": 1, "n": 2}),
        ("orders", three, "upsert", None),
    ]


def test_a_delete_on_the_shard_that_a_document_has_left_is_of_no_effect(landing: Landing) -> None:
    s = Stream()

    def on(shard: str, event: dict[str, Any]) -> dict[str, Any]:
        return event | {"documentKey": event["documentKey"] | {"shard": shard}}

    landing.land([on("b", s.insert(1, shard="b")), on("a", s.delete(1)), on("b", s.delete(1))])
    assert [change[2] for change in _changes(landing)] == ["upsert", "delete"]


def test_retention_stops_changes_only_if_they_take_what_was_removed(landing: Landing) -> None:
    s, query = Stream(), Query(landing)
    first = landing.land([s.insert(1), s.insert(1, "customers")])
    query.batches(view="changes")
    landing.land([s.drop("customers"), s.insert(2, "customers")])
    query.batches(view="changes")
    first.unlink()
    landing.land([s.drop("customers")])
    assert [row["operation"] for row in query.batches(view="changes")[0]] == ["delete"]
    landing.land([s.drop("orders")])
    with pytest.raises(PipelineRefused, match=r"seg-000000000001.parquet: the segments before it"):
        query.batches(view="changes")
    anew = Query(landing)
    assert [row["operation"] for batch in anew.batches(view="changes") for row in batch] == [
        "upsert",
        "delete",
    ]
