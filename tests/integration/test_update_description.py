"""Checked against the server: its events, applied to the old document, give the new document.

No name contains a dot. Such names are told apart from paths by ``disambiguatedPaths``, which mongod
sends from 6.1.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import bson
from bson.int64 import Int64
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pymongo.change_stream import ChangeStream
from pymongo.collection import Collection
from pymongo.errors import WriteError

from tailrace.event.extended_json import to_json
from tailrace.event.update_description import apply_update
from tests.mongod import ReplicaSet

Document = dict[str, Any]

PADDING = {"padding": "x" * 400}
"""Large enough that the server prefers a delta to the whole document."""

NAMES = st.sampled_from(["a", "b", "c", "0", "1"])
ODD_NAMES = st.sampled_from(["$a", "$oid", "$date", "$code", "é", " ", "00", "-1"])
"""Legal since MongoDB 5.0, and not to be confused with operators, types or indexes."""
SCALARS = st.one_of(
    st.integers(-5, 5),
    st.integers(-5, 5).map(Int64),
    st.sampled_from([None, True, 1.0, -0.0, "text", "é"]),
)


def containers(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    names = st.one_of(NAMES, ODD_NAMES)
    return st.one_of(st.dictionaries(names, values, max_size=3), st.lists(values, max_size=4))


VALUES = st.recursive(SCALARS, containers, max_leaves=6)
DOCUMENTS = st.dictionaries(NAMES, VALUES, min_size=1, max_size=4)


@st.composite
def paths(draw: st.DrawFn, document: Document) -> str:
    """A path that mostly exists; sometimes it goes one step further."""
    value: Any = {name: document[name] for name in document if name not in ("_id", "padding")}
    path: list[str] = []
    while True:
        if isinstance(value, dict):
            there = sorted(name for name in value if not name.startswith("$"))
            name = draw(st.one_of(st.sampled_from(there), NAMES) if there else NAMES)
            value = value.get(name)
        else:
            index = draw(st.integers(0, len(value) + 1))
            name, value = str(index), value[index] if index < len(value) else None
        path.append(name)
        if not isinstance(value, dict | list) or draw(st.booleans()):
            return ".".join(path)


@st.composite
def updates(draw: st.DrawFn, document: Document) -> Any:
    """Operators on one or two paths, or a pipeline that replaces the document."""
    path = draw(paths(document))
    odd = {"$setField": {"field": {"$literal": draw(ODD_NAMES)}, "input": "$$ROOT"}}
    inside = {"$setField": {**odd["$setField"], "input": "$a"}}
    for setting in (odd, inside):
        setting["$setField"]["value"] = {"$literal": draw(VALUES)}
    choices = [
        {"$set": {path: draw(VALUES), draw(paths(document)): draw(VALUES)}},
        {"$set": {path: draw(VALUES)}},
        {"$unset": {path: ""}},
        {"$unset": {path: ""}, "$set": {draw(paths(document)): draw(SCALARS)}},
        {"$push": {path: {"$each": draw(st.lists(SCALARS, max_size=2)), "$slice": -3}}},
        {"$pop": {path: draw(st.sampled_from([-1, 1]))}},
        [{"$set": {path.split(".")[0]: {"$literal": draw(VALUES)}}}],
        [{"$replaceWith": {"$literal": {**document, **draw(DOCUMENTS), **PADDING}}}],
        [{"$unset": path.split(".")[0]}],
        [{"$replaceWith": odd}],
        [{"$set": {"a": inside}}],
    ]
    return draw(st.sampled_from(choices))


def test_the_servers_events_give_the_servers_documents(mongod: ReplicaSet, database: str) -> None:
    """For any update that the server accepts, applying its event gives its result, with types."""
    described = 0

    @settings(
        max_examples=30,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(st.data())
    def property_(data: Any) -> None:
        nonlocal described
        collection.delete_many({})
        before: Document = {"_id": 1, **data.draw(DOCUMENTS), **PADDING}
        collection.insert_one(before)
        for _ in range(4):
            update = data.draw(updates(before))
            try:
                changed = collection.update_one({"_id": 1}, update).modified_count
            except WriteError:
                continue  # a path into a scalar, or two paths that collide: never accepted
            after = bson.decode(bson.encode(collection.find_one({"_id": 1}) or {}))
            if changed:
                event = next_change(stream)
                if event["operationType"] == "update":
                    described += 1
                    result = apply_update(before, event["updateDescription"])
                    same_order = isinstance(update, dict)
                    assert text(result, same_order) == text(after, same_order), update
            before = after

    with watched(mongod, database) as (collection, stream):
        property_()
    assert described > 20


@contextmanager
def watched(
    server: ReplicaSet, database: str
) -> Iterator[tuple[Collection[Document], ChangeStream[Document]]]:
    """A collection and a stream of its changes."""
    with server.client() as client:
        collection = client[database].updates
        with collection.watch(show_expanded_events=True) as stream:
            yield collection, stream


def next_change(stream: ChangeStream[Document]) -> Document:
    """The next update or replace; the event that recreated the document is skipped."""
    while True:
        event = dict(stream.next())
        if event["operationType"] in ("update", "replace"):
            return event


def text(document: Document, same_order: bool) -> str:
    """With every type, and with the order of fields if an event can tell it: update_description."""
    return to_json(bson.encode(document if same_order else ordered(document)), canonical=True)


def ordered(value: Any) -> Any:
    """A copy with the fields of every document sorted by name."""
    if isinstance(value, dict):
        return {name: ordered(value[name]) for name in sorted(value)}
    return [ordered(item) for item in value] if isinstance(value, list) else value
