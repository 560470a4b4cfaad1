"""What is hashed and masked of events, wherever it is in them."""

import hashlib
import hmac
from datetime import UTC, datetime
from typing import Any

import bson
import pytest
from bson import Int64, ObjectId, json_util
from bson.json_util import CANONICAL_JSON_OPTIONS
from hypothesis import given
from hypothesis import strategies as st

from tailrace.event import ChangeEvent
from tailrace.event.field_protection import FieldProtection
from tailrace.event.value_change import hashed, last_kept, masked
from tailrace.testing import Changes

KEY = b"a key"


def digest(value: Any) -> str:
    """The hash as docs/fields.md defines it, made by others: PyMongo and Python's hmac."""
    options = CANONICAL_JSON_OPTIONS
    text = json_util.dumps(
        {"": value}, json_options=options, separators=(",", ":"), ensure_ascii=False
    )
    return hmac.new(KEY, text.removeprefix('{"":')[:-1].encode(), hashlib.sha256).hexdigest()


def protection(*hashes: str, mask: str = "") -> FieldProtection:
    masks = {mask: masked("***")} if mask else {}
    return FieldProtection({path: hashed(KEY) for path in hashes} | masks, hashed(KEY))


def protected(document: dict[str, Any], *hashes: str, mask: str = "") -> dict[str, Any]:
    made = protection(*hashes, mask=mask).of_document(bson.encode(document))
    return bson.decode(made)


@pytest.mark.parametrize(
    "value",
    [
        "123-45-6789", 'quoted " and \\ and \n', "ümlaut", "", 7, Int64(7), 1.5, True, b"bytes",
        ObjectId("65a0b0c0d0e0f0a0b0c0d0e0"), datetime(2024, 5, 1, tzinfo=UTC),
        bson.Decimal128("1.50"), bson.Timestamp(1, 2),
    ],
    ids=repr,
)  # fmt: skip
def test_a_hash_is_the_hmac_of_the_canonical_json(value: Any) -> None:
    assert protected({"_id": 1, "ssn": value, "n": 1}, "ssn") == {
        "_id": 1,
        "ssn": digest(value),
        "n": 1,
    }


def test_a_key_that_is_longer_than_a_block_is_used_as_hmac_says() -> None:
    key = b"k" * 65
    made = FieldProtection({"a": hashed(key)}).of_document(bson.encode({"a": "x"}))
    assert bson.decode(made)["a"] == hmac.new(key, b'"x"', hashlib.sha256).hexdigest()


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"a": {"b": "x", "c": "x"}}, {"a": {"b": "***", "c": "x"}}),
        ({"a": [{"b": "x"}, {"c": 1}, "x", [{"b": 2}]]},
         {"a": [{"b": "***"}, {"c": 1}, "x", [{"b": "***"}]]}),
        ({"a": {"b": ["x", None, {"y": 1, "z": [True]}]}},
         {"a": {"b": ["***", None, {"y": "***", "z": ["***"]}]}}),
        ({"a": {"0": {"b": "x", "c": "x"}, "1": [{"b": 1}], "2": "x", "b": "x", "b.b": "x"}},
         {"a": {"0": {"b": "***", "c": "x"}, "1": [{"b": "***"}], "2": "x", "b": "***",
                "b.b": "x"}}),
        ({"a": {"12": {"3": {"b": "x"}}, "x1": {"b": "x"}}},
         {"a": {"12": {"3": {"b": "***"}}, "x1": {"b": "x"}}}),
        ({"0": {"a": {"b": "x"}}}, {"0": {"a": {"b": "x"}}}),
        ({"a": {"b": None}}, {"a": {"b": None}}),
        ({"a": {"b": {}}}, {"a": {"b": {}}}),
        ({"a": "x", "b": "x", "a.b": "x"}, {"a": "x", "b": "x", "a.b": "x"}),
        ({"c": {"a": {"b": 1}}, "a": {"b": 1}, "d": 2},
         {"c": {"a": {"b": 1}}, "a": {"b": "***"}, "d": 2}),
    ],
)  # fmt: skip
def test_a_path_reaches_into_arrays_and_covers_what_is_below_it(
    document: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert protected(document, mask="a.b") == expected


DISGUISED = [b"a\0", b"\2a\0", b"\2a\0\2\0\0\0x\0", b"\3b\0\5\0\0\0\0", b"\2ba\0", b"b\0\2a\0"]
"""Bytes in values that look like elements with the names of the paths below."""
NAMES = st.sampled_from(["a", "b", "ba", "ab", "aa", "x", ""])
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**62), 2**62)
    | st.floats(allow_nan=False)
    | st.lists(st.sampled_from(DISGUISED), max_size=3).map(b"".join)
    | st.lists(st.sampled_from(DISGUISED), max_size=3).map(lambda parts: b"".join(parts).decode())
    | st.sampled_from([ObjectId(b"\2a\0\2\0\0\0x\0a\0b"), bson.Regex("a", "x"), bson.Code("a\0b")])
)
VALUES = st.recursive(
    LEAVES,
    lambda values: (
        st.lists(values, max_size=3) | st.dictionaries(NAMES, values, max_size=4)
    ),
    max_leaves=8,
)  # fmt: skip


def with_stars(value: Any, node: Any) -> Any:
    """A decoded value as it becomes. ``node``: the paths below it; ``None`` at the end of one."""
    if isinstance(value, list):
        return [
            with_stars(one, node) if node is None or isinstance(one, dict | list) else one
            for one in value
        ]
    if isinstance(value, dict):
        return {
            name: with_stars(one, node and node[name]) if node is None or name in node else one
            for name, one in value.items()
        }
    return "***" if node is None and value is not None else value


@given(st.dictionaries(NAMES, VALUES, max_size=6))
def test_values_that_look_like_fields_are_told_from_fields(document: dict[str, Any]) -> None:
    paths = {"a": None, "b": {"a": None, "b": None}, "ba": None}
    named = FieldProtection(dict.fromkeys(["a", "b.a", "b.b", "ba"], masked("***")))
    made = named.of_document(bson.encode(document))
    assert bson.decode(made) == bson.decode(bson.encode(with_stars(document, paths)))


def test_a_name_that_begins_as_the_type_of_a_field_is_told_from_it() -> None:
    document = {"ssn": "x", "a": "x", "\2ssn": "x", "b": "\2ssn"}
    assert protected(document, mask="\2ssn") == {**document, "\2ssn": "***"}


def test_a_name_that_is_repeated_is_changed_each_time() -> None:
    element = b"\x02a\0\x02\0\0\0x\0"
    raw = (len(element) * 2 + 5).to_bytes(4, "little") + element * 2 + b"\0"
    assert protection(mask="a").of_document(raw).count(b"***") == 2


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("4111111111111111", "***1111"),
        (Int64(4111111111111112), "***1112"),
        (-12345, "***2345"),
        ("1111", "***"),
        ("ñandú", "***andú"),
        (1.25, "***"),
        (None, None),
    ],
)
def test_a_mask_keeps_the_last_characters_of_a_longer_value(value: Any, expected: Any) -> None:
    made = FieldProtection({"a": last_kept(4, "***")}).of_document(bson.encode({"a": value}))
    assert bson.decode(made) == {"a": expected}


UPDATE = {
    "_id": {"_data": "82"},
    "operationType": "update",
    "clusterTime": bson.Timestamp(1, 1),
    "wallTime": datetime(2024, 5, 1),
    "fullDocument": {"_id": 1, "ssn": "S", "who": {"card": "C", "name": "Ann"}},
    "ns": {"db": "shop", "coll": "orders"},
    "documentKey": {"ssn": "S", "who.card": "C", "_id": 1},
    "updateDescription": {
        "updatedFields": {
            "ssn": "S",
            "who.card": "C",
            "list.0.card": "C",
            "list.1": {"card": "C", "n": 1},
            "who.card.deep": "C",
            "who.2.card": "C",
            "who": {"card": "C", "2": {"card": "C"}},
            "0.ssn": "another",
            "n": 1,
        },
        "removedFields": ["who.card"],
        "truncatedArrays": [{"field": "list", "newSize": 3}],
    },
    "fullDocumentBeforeChange": {"_id": 1, "ssn": "S"},
}


@pytest.mark.parametrize("first", ["_id", "operationType"], ids=["as the server", "reshaped"])
def test_images_key_and_update_of_an_event_are_changed_alike(first: str) -> None:
    event = ChangeEvent.from_document({first: UPDATE[first], **UPDATE})
    (found,) = protection("ssn", "who.card", "list.card", "_id").of([event])
    s, c = digest("S"), digest("C")
    assert found.document == {
        **UPDATE,
        "_id": {"_data": f"hmac-sha-256:{digest(UPDATE['_id'])}"},
        "fullDocument": {"_id": digest(1), "ssn": s, "who": {"card": c, "name": "Ann"}},
        "documentKey": {"ssn": s, "who.card": c, "_id": digest(1)},
        "updateDescription": {
            "updatedFields": {
                "ssn": s,
                "who.card": c,
                "list.0.card": c,
                "list.1": {"card": c, "n": 1},
                "who.card.deep": c,
                "who.2.card": c,
                "who": {"card": c, "2": {"card": c}},
                "0.ssn": "another",
                "n": 1,
            },
            "removedFields": ["who.card"],
            "truncatedArrays": [{"field": "list", "newSize": 3}],
        },
        "fullDocumentBeforeChange": {"_id": digest(1), "ssn": s},
        "wallTime": found.document["wallTime"],
    }
    assert found.token == found.fresh().token == event.token
    assert found.cluster_time == event.cluster_time


@pytest.mark.parametrize("first", ["_id", "operationType"], ids=["as the server", "reshaped"])
@pytest.mark.parametrize("rule", [{"mask": "who.card"}, {"hashes": "ssn"}], ids=str)
def test_a_token_that_holds_a_hashed_or_masked_shard_key_is_hashed(
    first: str, rule: dict[str, str]
) -> None:
    token = {"_data": f"82{b'S'.hex()}{b'C'.hex()}"}  # as mongod, which has the key in it
    event = ChangeEvent.from_document({first: UPDATE[first], **UPDATE, "_id": token})
    by = protection(*([rule["hashes"]] if "hashes" in rule else []), mask=rule.get("mask", ""))
    found = by.of_event(event)
    assert found.id == {"_data": f"hmac-sha-256:{digest(token)}"}
    assert found.token == found.fresh().token == event.token
    more = protection("ssn", mask="who.card")
    assert more.of_noted(by.noted(found)).id == found.id


def test_a_token_whose_document_key_stays_is_the_events_id() -> None:
    event = ChangeEvent.from_document(UPDATE)
    assert protection("n").of_event(event).id == UPDATE["_id"]


def test_a_row_of_a_snapshot_keeps_its_id_where_only_another_field_is_hashed() -> None:
    changes = Changes()
    changes.insert({"_id": "ann", "ssn": "S"})
    event = changes.read("ann")
    assert protection("ssn").of_event(event).id == event.id


def test_the_id_of_a_row_of_a_snapshot_has_the_hash_of_the_documents_id() -> None:
    changes = Changes()
    changes.insert({"_id": "ann", "snapshot": 1})
    event = changes.read("ann")
    made = FieldProtection({"_id": hashed(KEY), "snapshot": masked("***")}).of_event(event)
    assert made.id == {**event.id, "_id": digest("ann")}
    assert made.full_document == {"_id": digest("ann"), "snapshot": "***"}
    assert made.token == event.token
    assert b"ann" not in made.raw


def test_an_event_without_these_fields_is_the_same_object() -> None:
    event = ChangeEvent.from_document({"_id": {"_data": "82"}, "operationType": "drop"})
    assert protection("ssn").of([event])[0] is event


def test_what_is_hashed_in_a_dead_letter_is_not_hashed_again_and_new_rules_apply_to_it() -> None:
    event = ChangeEvent.from_document(UPDATE)
    before = protection("ssn")
    (found,) = before.of([event])
    noted = before.noted(found)
    assert before.of_noted(noted).raw == found.raw
    more = protection("ssn", mask="who.card").of_noted(noted)
    assert more.full_document == {
        "_id": 1, "ssn": digest("S"), "who": {"card": "***", "name": "Ann"}
    }  # fmt: skip
    assert before.of_noted(event).raw == found.raw


def test_the_first_name_of_a_path_may_be_a_number() -> None:
    """No array is around it."""
    event = ChangeEvent.from_document(
        {
            "_id": {"_data": "82"},
            "fullDocument": {"_id": 1, "2024": [{"ssn": "S", "2024": "x"}], "a": {"2024": "x"}},
            "updateDescription": {"updatedFields": {"2024.0.ssn": "S", "a.2024.ssn": "x"}},
        }
    )
    found = protection("2024.ssn").of_event(event)
    s = digest("S")
    assert found.full_document == {
        "_id": 1, "2024": [{"ssn": s, "2024": "x"}], "a": {"2024": "x"}
    }  # fmt: skip
    updated = {"2024.0.ssn": s, "a.2024.ssn": "x"}
    assert found.update_description == {"updatedFields": updated}


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        (["items.0.sku"], "'items.0.sku' has an array's index"),
        (["items.0"], "'items.0' has an array's index"),
        (["a.b", "a"], "'a' lies above or below another path"),
        (["a", "a.b"], "'a.b' lies above or below another path"),
    ],
)
def test_a_path_that_cannot_be_meant_is_refused(paths: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        protection(*paths)
