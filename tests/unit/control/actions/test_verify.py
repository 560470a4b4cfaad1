"""What a repair reads again."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import bson
from bson.timestamp import Timestamp

from tailrace.control.actions.repair import RepairPlan, repair_plan
from tailrace.event.document_key import key_text
from tailrace.model.snapshot import DocumentId
from tailrace.model.verification import (
    ComparedCollection,
    Counts,
    Difference,
    Kind,
    Verification,
    VerificationRequest,
)


def record(*differences: Difference, more: int = 0) -> Verification:
    found = Verification("orders", "copy", "1", 1, VerificationRequest(), "ann", datetime.now(UTC))
    for name in ("orders", "users"):
        kinds = [each.kind for each in differences if each.collection == f"shop.{name}"]
        counts = Counts().plus(equal=5, missing=more if name == "orders" else 0)
        for kind in kinds:
            counts = counts.plus(**{kind.value: 1})
        of = ComparedCollection("00" * 16, "shop", name, counts=counts)
        found = found.with_collection(of)
    return replace(found, keys=differences)


def difference(kind: Kind, id: Any, collection: str = "shop.orders") -> Difference:
    raw = bson.encode({"_id": id})
    text = key_text(raw).removeprefix('{"_id":').removesuffix("}")
    return Difference(collection, text, kind, (), Timestamp(1, 1), DocumentId(raw))


def test_different_and_missing_rows_come_by_their_keys() -> None:
    found = record(difference(Kind.MISSING, 1), difference(Kind.DIFFERENT, "a", "shop.users"))
    matching = '{"_id": {"$in": [{"$numberInt":"1"}, "a"]}}'
    assert repair_plan(found) == RepairPlan("copy", 2, ("shop.orders", "shop.users"), matching)


def test_rows_without_documents_need_the_whole_collection() -> None:
    found = record(difference(Kind.MISSING, 1), difference(Kind.TOO_MANY, 2))
    assert repair_plan(found) == RepairPlan("copy", 2, ("shop.orders",), "")


def test_so_do_differences_that_are_not_listed_and_keys_that_a_filter_takes_for_patterns() -> None:
    assert repair_plan(record(difference(Kind.MISSING, 1), more=1)) == RepairPlan(
        "copy", 2, ("shop.orders",), ""
    )
    pattern = difference(Kind.MISSING, bson.Regex("a"))
    assert repair_plan(record(pattern)) == RepairPlan("copy", 1, ("shop.orders",), "")


def test_nothing_is_repaired_where_nothing_differs() -> None:
    assert repair_plan(record()) is None
