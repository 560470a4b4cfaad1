"""Any update of any document, hashed and masked: no plain value, and all that the document has."""

from typing import Any

import bson
from bson import Int64
from hypothesis import given
from hypothesis import strategies as st

from tailrace.event import ChangeEvent
from tailrace.event.field_protection import FieldProtection
from tailrace.event.update_description import apply_update
from tailrace.event.value_change import hashed, last_kept, masked
from tests.unit.event.described import described

RULES = {"a": hashed(b"k"), "b.c": masked("***"), "b.d.a": last_kept(2, "***")}
PROTECTION = FieldProtection(RULES, hashed(b"k"))
MARK = "SECRET"
SECRETS = st.sampled_from([MARK, MARK.encode(), bson.Code(MARK, {"a": MARK}), Int64(9911111111)])
PLAIN = st.sampled_from([1, 2.5, "x", None, True])
NAMES = ["a", "b", "c", "d", "0", "17"]


def values(path: tuple[str, ...], depth: int) -> st.SearchStrategy[Any]:
    """What may be at a path: secrets wherever a rule covers it."""
    covered = any(".".join(path).startswith(rule) for rule in RULES)
    leaves = st.one_of(SECRETS, st.none()) if covered else PLAIN
    if not depth:
        return leaves
    return leaves | documents(path, depth - 1) | st.lists(values(path, depth - 1), max_size=3)


def documents(path: tuple[str, ...], depth: int) -> st.SearchStrategy[dict[str, Any]]:
    fields = {
        name: values((*path, name) if path == () or not name.isdigit() else path, depth)
        for name in NAMES
    }
    return st.fixed_dictionaries({}, optional=fields)


@given(documents((), 3), documents((), 3))
def test_an_update_has_no_plain_value_and_makes_what_the_whole_document_has(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    event = ChangeEvent.from_document(
        {
            "_id": {"_data": f"82{MARK.encode().hex()}"},
            "operationType": "update",
            "fullDocument": {"_id": 1, **after},
            "ns": {"db": "shop", "coll": "orders"},
            "documentKey": {"b.c": MARK, "_id": 1},
            "updateDescription": described(before, after),
            "fullDocumentBeforeChange": {"_id": 1, **before},
        }
    )
    found = PROTECTION.of_event(event)
    for plain in (
        MARK.encode(),
        MARK.encode().hex().encode(),
        Int64(9911111111).to_bytes(8, "little"),
    ):
        assert plain not in found.raw
    images = found.document["fullDocumentBeforeChange"], found.document["fullDocument"]
    assert apply_update(images[0], found.document["updateDescription"]) == images[1]
