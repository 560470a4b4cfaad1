"""Each key of a scope, and of what all scopes share, reaches the plan of the scope.

The effect of a key is tested where the part is: the ``aggregate`` in ``stream``, chunks in
``snapshot``, lanes in ``engine``.
"""

from operator import attrgetter
from typing import Any

import pytest
from bson.timestamp import Timestamp

from tailrace.assembly import scope_plans
from tailrace.engine import ScopePlan
from tailrace.engine.plan.row_source import KnownSnapshots, RowSource
from tailrace.model import ResumeToken, StartPoint
from tests.handlers import handler
from tests.unit.config.files import minimal, parse
from tests.unit.snapshot.test_requests import Gone

TOKEN = {"_data": "8265A0B0C000000001"}

OPTIONS: dict[str, Any] = {
    "full_document": "whenAvailable",
    "full_document_before_change": "required",
    "show_expanded_events": True,
    "batch_size": 7,
    "max_await_time_ms": 70,
    "read_preference": "nearest",
    "split_large_events": True,
    "collation": {"locale": "de"},
    "comment": "who",
    "match_collection_uuid_for_update_lookup": False,
}
"""Keys of a scope that are options of its stream under the same name."""


async def nothing(_: object) -> None: ...


def plan(**sections: Any) -> ScopePlan:
    (made,) = scope_plans(
        parse(minimal(**sections)),
        lambda scope: {"log": handler("log", nothing)},
        lambda scope: Gone(),
    )
    return made


@pytest.mark.parametrize("key", OPTIONS)
def test_a_key_of_a_scope_is_an_option_of_its_stream(key: str) -> None:
    assert getattr(plan(scope={key: OPTIONS[key]}).options, key) == OPTIONS[key]


@pytest.mark.parametrize(
    ("sections", "attribute", "expected"),
    [
        ({"scope": {"pipeline": [{"$match": {}}]}}, "options.pipeline", ({"$match": {}},)),
        ({"scope": {"collection": "c"}}, "scope.collection", "c"),
        (
            {"scope": {"start_at": "1970-01-01T00:01:00Z"}},
            "start.at_operation_time",
            Timestamp(60, 0),
        ),
        ({"scope": {"resume_after": TOKEN}}, "start.resume_after", ResumeToken.of(TOKEN)),
        ({"scope": {"start_after": TOKEN}}, "start.start_after", ResumeToken.of(TOKEN)),
        ({"scope": {"on_invalidate": "stop"}}, "stop_on_invalidate", True),
        ({"scope": {"on_history_lost": "skip"}}, "skip_lost_history", True),
        ({"delivery": {"lanes": 3}}, "lanes", 3),
        ({"checkpoint": {"interval_seconds": 9}}, "checkpoint_seconds", 9),
        ({"catch_up": {"streams": 9}}, "catch_up_streams", 9),
        ({"supervisor": {"first_seconds": 2}}, "backoff.first_seconds", 2),
        ({"supervisor": {"cap_seconds": 99}}, "backoff.cap_seconds", 99),
    ],
    ids=lambda value: next(iter(next(iter(value.values())))) if isinstance(value, dict) else "",
)
def test_a_key_reaches_the_plan_of_its_scope(
    sections: dict[str, Any], attribute: str, expected: Any
) -> None:
    assert attrgetter(attribute)(plan()) != expected
    assert attrgetter(attribute)(plan(**sections)) == expected


@pytest.mark.parametrize(("limit", "idle"), [("", 4000), ("500000", 4000), ("3000", 2000)])
def test_an_idle_stream_waits_no_longer_than_the_driver_does(limit: str, idle: int) -> None:
    option = f"?socketTimeoutMS={limit}" if limit else ""
    options = plan(mongodb={"uri": f"mongodb://a/{option}"}).options
    assert (options.max_await_time_ms, options.idle_await_ms) == (1000, idle)


EARLY, LATE = "1970-01-01T00:01:00Z", "1970-01-01T00:02:00Z"
Begins = tuple[int | None, bool, bool]
"""The seconds of the start, whether it begins with a snapshot, and whether it begins apart."""


def begins(scope: dict[str, Any], **routes: dict[str, Any]) -> dict[str, Begins]:
    """How the scope (``""``) and each handler, which has a route of its own, begin."""
    sections = minimal(
        scope=scope,
        handlers={name: {"type": "log"} for name in routes},
        routes=[{"scope": "orders", "handlers": [name], **more} for name, more in routes.items()],
    )
    handlers = {name: handler(name, nothing) for name in routes}
    (made,) = scope_plans(parse(sections), lambda scope: handlers, lambda scope: Gone())
    found = {"": (made.start, made.rows, False)}
    for each in made.routed:
        assert each.start is not None
        found[each.name] = each.start, each.rows(), each.begins_apart
    return {name: (_seconds(at), _reads(rows), apart) for name, (at, rows, apart) in found.items()}


def _seconds(start: StartPoint) -> int | None:
    return start.at_operation_time.time if start.at_operation_time else None


def _reads(rows: RowSource) -> bool:
    return rows.begin(KnownSnapshots(None, fresh=True)) is not None


def test_a_handler_begins_as_its_route_says_and_the_others_as_the_scope_says() -> None:
    found = begins({"start_at": EARLY}, a={}, b={"snapshot": "initial"}, c={"start_at": LATE})
    assert found == {
        "": (60, False, False),
        "a": (60, False, False),
        "b": (60, True, True),
        "c": (120, False, True),
    }


@pytest.mark.parametrize("names", ["a", "ab"], ids=["single", "all alike"])
def test_handlers_that_all_begin_alike_begin_together(names: str) -> None:
    found = begins({}, **{name: {"snapshot": "initial", "start_at": LATE} for name in names})
    assert found == dict.fromkeys(["", *names], (120, True, False))


def test_if_no_handler_begins_as_the_scope_does_the_first_one_leads() -> None:
    found = begins({"start_at": EARLY}, a={"start_at": LATE}, b={"start_at": "now"})
    assert found == {
        "": (120, False, False),
        "a": (120, False, False),
        "b": (None, False, True),
    }


def test_a_route_may_do_without_the_snapshot_of_its_scope() -> None:
    found = begins({"snapshot": "initial"}, a={}, b={"snapshot": "never"})
    assert found == {"": (None, True, False), "a": (None, True, False), "b": (None, False, True)}
