"""What is reported about a configuration's cost for the source server."""

from typing import Any

import pytest

from tailrace.config.scopes import ScopeSettings
from tailrace.cost import of_catch_up, of_options, of_streams
from tests.unit.config.files import minimal, parse

LOOKS_UP = {"full_document": "updateLookup"}
PAIRS = [{"db": "shop", "coll": name} for name in ("a", "b", "c")]


def scopes(*given: dict[str, Any]) -> list[ScopeSettings]:
    named = [{"name": f"s{number}", **scope} for number, scope in enumerate(given)]
    routes = [{"scope": scope["name"], "handlers": ["log"]} for scope in named]
    return list(parse(minimal(scopes=named, routes=routes)).scopes)


def on(collection: str | None = None, database: str | None = "shop", **more: Any) -> dict[str, Any]:
    given = {"database": database, "collection": collection, **more}
    return {key: value for key, value in given.items() if value is not None}


def test_streams_are_counted_by_what_they_are_opened_on() -> None:
    first, *advice = of_streams(scopes(on("a"), on("b", **LOOKS_UP), on(None, None, comment="x")))
    assert first.startswith("3 change streams (1 on a cluster, 2 on a collection): ")
    assert advice == []


def test_a_single_stream_is_counted_in_the_singular() -> None:
    (line,) = of_streams(scopes(on("a")))
    assert line.startswith("1 change stream (1 on a collection): ")


def test_scopes_of_collections_of_one_database_could_be_one() -> None:
    others = (on("c", "other"), on("d", max_await_time_ms=5))
    _, *advice = of_streams(scopes(on("a"), on("b"), *others))
    (line,) = advice
    assert line.startswith("scopes s0 and s1 follow collections of shop with the same options")
    assert "{$match: {ns.coll: {$in: [a, b]}}}" in line
    assert line.endswith("needs one stream fewer")


@pytest.mark.parametrize("around", [on(), on(None, None)], ids=["database", "cluster"])
def test_what_another_scope_follows_too_needs_no_stream(around: dict[str, Any]) -> None:
    _, *advice = of_streams(scopes(on("a"), around, on("b"), on("c", **LOOKS_UP)))
    (line,) = advice
    assert line.startswith("scope s1 also follows what scopes s0 and s2 follow")
    assert line.endswith("with 2 fewer streams")


def test_the_streams_of_handlers_that_are_behind_are_told_by_scope() -> None:
    named = [{"name": name, "database": name} for name in ("many", "two", "one")]
    names = ["a", "b", "c", "d"]
    settings = parse(
        minimal(
            scopes=named,
            handlers={name: {"type": "log"} for name in names},
            routes=[
                {"scope": "many", "handlers": names},
                {"scope": "two", "handlers": names[:2]},
                {"scope": "one", "handlers": names[:1]},
            ],
        )
    )
    (line,) = of_catch_up(settings)
    assert line.startswith("up to 3 more while handlers are behind")
    assert "(2 for many, 1 for two; catch_up.streams bounds them)" in line
    assert not [*of_catch_up(parse(minimal()))]


FILTERS: dict[str, tuple[Any, int]] = {
    "in": ({"ns": {"$in": PAIRS}}, 3),
    "or": ({"operationType": "insert", "$or": [{"ns": each} for each in PAIRS]}, 3),
    "names": ({"$or": [{"ns.db": "shop", "ns.coll": name} for name in "ab"]}, 2),
    "one": ({"ns": PAIRS[0]}, 0),
    "collection": ({"ns.coll": {"$in": ["a", "b"]}}, 0),
    "other": ({"documentKey._id": {"$in": [1, 2]}}, 0),
}


@pytest.mark.parametrize("name", FILTERS)
def test_a_filter_on_pairs_costs_more_than_one_on_collections(name: str) -> None:
    condition, pairs = FILTERS[name]
    found = list(of_options(*scopes(on(pipeline=[{"$match": condition}]))))
    assert [line.split(" of ")[0] for line in found] == (
        [f"its pipeline compares {pairs} pairs"] if pairs else []
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (LOOKS_UP, True),
        ({"full_document": "lookup"}, False),
        ({"full_document": "required"}, False),
        (LOOKS_UP | {"pipeline": [{"$match": {"fullDocument.total": {"$gt": 5}}}]}, False),
    ],
)
def test_documents_can_be_looked_up_for_less_unless_the_pipeline_needs_them(
    options: dict[str, Any], message: bool
) -> None:
    found = list(of_options(*scopes(on("a", **options))))
    assert [line.startswith("full_document: lookup gives the same") for line in found] == [
        True
    ] * message
