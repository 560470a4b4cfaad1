"""What a changed key means for a running process."""

from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from tailrace.config.difference import at_once, needs_restart, scope_changes
from tailrace.errors import ConfigurationError
from tailrace.handlers.pool import handler_pool
from tailrace.reload.clients import ClientPlan
from tailrace.reload.desired_config import DesiredConfig
from tailrace.reload.difference import difference
from tests.unit.config.files import minimal, parse

ALL, INHERITED, NOW, RESTART = "every scope", "scopes whose handlers inherit it", "now", "restart"

CHANGES: list[tuple[str, dict[str, Any], str]] = [
    ("mongodb.uri", {"mongodb": {"uri": "mongodb://other/"}}, ALL),
    ("mongodb.driver", {"mongodb": {"driver": "pymongo"}}, ALL),
    ("mongodb.connect_timeout_seconds", {"mongodb": {"connect_timeout_seconds": 3}}, NOW),
    ("checkpoint.interval_seconds", {"checkpoint": {"interval_seconds": 9}}, ALL),
    ("catch_up.streams", {"catch_up": {"streams": 9}}, ALL),
    ("supervisor.cap_seconds", {"supervisor": {"cap_seconds": 9}}, ALL),
    ("delivery.lanes", {"delivery": {"lanes": 9}}, ALL),
    ("delivery.max_in_flight_bytes", {"delivery": {"max_in_flight_bytes": 99}}, ALL),
    ("delivery.retry", {"delivery": {"retry": {"attempts": 9}}}, INHERITED),
    ("delivery.on_failure", {"delivery": {"on_failure": "halt"}}, INHERITED),
    ("delivery.dead_letters", {"delivery": {"dead_letters": {"max_ratio": 0.9}}}, ALL),
    ("shutdown.grace_seconds", {"shutdown": {"grace_seconds": 9}}, NOW),
    ("logging.level", {"logging": {"level": "debug"}}, NOW),
    ("http.token", {"http": {"token": "0123456789abcdef"}}, NOW),
    ("http.liveness_seconds", {"http": {"liveness_seconds": 9}}, NOW),
    ("http.port", {"http": {"port": 9}}, RESTART),
    ("http.host", {"http": {"host": "::1"}}, RESTART),
    ("store", {"store": {"type": "memory"}}, RESTART),
    ("store.path", {"store": {"path": "other.db"}}, RESTART),
    ("replicas", {"replicas": {}}, RESTART),
    ("telemetry", {"telemetry": {}}, RESTART),
    ("routes.verify", {}, NOW),
    ("routes.max_lag", {}, NOW),
    ("pipeline.tables", {"pipeline": {"tables": "elsewhere"}}, NOW),
    ("nothing", {"pipeline": {"batch_events": 9}}, ""),
]


@pytest.mark.parametrize(("key", "change", "effect"), CHANGES, ids=[key for key, *_ in CHANGES])
def test_a_changed_key_has_one_effect(key: str, change: dict[str, Any], effect: str) -> None:
    """The scope ``firm`` has a handler with its own settings for failures."""
    old = minimal(
        mongodb={"uri": "mongodb://one/"},
        handler={"type": "log", "retry": {"attempts": 2}, "on_failure": "dead_letter"},
    )
    old["scopes"] += [{"name": "firm", "database": "shop"}]
    old["routes"] += [{"scope": "firm", "handlers": ["mine"]}]
    new = old | {name: old.get(name, {}) | section for name, section in change.items()}
    of_routes = {"routes.verify": {"verify": {"every": "1d"}}, "routes.max_lag": {"max_lag": "1m"}}
    new["routes"] = [{**each, **of_routes.get(key, {})} for each in old["routes"]]
    one, other = parse(old), parse(new)
    assert needs_restart(one, other) == [key] * (effect == RESTART)
    assert at_once(one, other) == [key] * (effect == NOW)
    because = {name: each.because for name, each in scope_changes(one, other, ()).items()}
    changed = {ALL: {"orders", "firm"}, INHERITED: {"orders"}}.get(effect, set())
    assert because == {n: (key,) if n in changed else () for n in ("orders", "firm")}


@pytest.mark.parametrize("key", [{"snapshot": "initial"}, {"start_at": "2024-05-01T00:00:00Z"}])
def test_how_the_handlers_of_a_route_begin_belongs_to_their_scope(key: dict[str, Any]) -> None:
    one, other = parse(minimal()), parse(minimal(route=key))
    assert scope_changes(one, other, ())["orders"].because == ("routes",)


async def test_streams_for_which_a_process_has_no_connections_need_a_restart() -> None:
    names = ["log", "b", "c", "d"]
    many = minimal(handlers={name: {"type": "log"} for name in names}, route={"handlers": names})
    old, new = (
        DesiredConfig(settings, {}, ClientPlan.of(settings.mongodb))
        for settings in (parse(many), parse(many | {"catch_up": {"streams": 3}}))
    )
    async with handler_pool(CollectorRegistry()) as pool:
        assert difference(old, new, pool, 4).begun == ["orders"]
        with pytest.raises(ConfigurationError) as refused:
            difference(old, new, pool, 3)
    (problem,) = refused.value.problems
    assert str(problem).startswith("scopes: may need 4 streams (catch_up.streams: 3), and this pro")
