"""One object for each handler and scope: who is opened, left and opened again, and when."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from tailrace import Batch, ScopeContext, Unavailable
from tailrace.config.delivery import DeliverySettings
from tailrace.config.handlers import AnyHandlerSettings
from tailrace.destination import keeper
from tailrace.destinations.jsonl import JsonlHandlerSettings
from tailrace.destinations.python import PythonHandlerSettings
from tailrace.engine import Handler
from tailrace.errors import ConfigurationError
from tailrace.event import ChangeEvent
from tailrace.handlers.pool import HandlerPlan, HandlerPool, handler_pool, handlers_of
from tailrace.model import Scope
from tailrace.model.failure_policy import Backoff
from tests.handlers import OWNER, begin, commit, deliver
from tests.unit.engine.changes import change, until

EVENT = ChangeEvent.from_document(change(1))
ORDERS, USERS, CARTS = (Scope(name, "shop", name) for name in ("orders", "users", "carts"))
DELIVERY = DeliverySettings()

LIFE: list[str] = []
"""What the objects of a test did."""
DOWN: list[int] = []
"""The numbers of the objects whose destinations are down."""


class Shelf:
    """An object that says what happens to it. Objects are numbered."""

    made = 0

    def __init__(self, path: str = "") -> None:
        kind = type(self)
        kind.made += 1
        self.number, self.path = kind.made, path
        self.written: Counter | None = None

    async def __aenter__(self) -> None:
        if self.path == "refused":
            raise ValueError("no such shelf")
        if self.number in DOWN:
            raise ConnectionError("no answer")
        LIFE.append(f"opened {self.number}")

    async def __aexit__(self, *error: object) -> None:
        LIFE.append(f"closed {self.number}")

    async def write(self, batch: Batch) -> None:
        LIFE.append(f"{self.number} {batch.scope}")
        if self.written is None:
            registry = batch.scope.registry
            self.written = Counter("shelf_written", "…", ["path"], registry=registry)
            Gauge("shelf_pool", "…", registry=registry).set(5)
            Histogram("shelf_seconds", "…", buckets=[1], registry=registry).observe(0.5)
        self.written.labels(self.path).inc()


class Patient(Shelf):
    """The second one closes after the first one."""

    made = 0

    async def __aexit__(self, *error: object) -> None:
        if self.number == 2:
            await until(lambda: "closed 1" in LIFE)
        await super().__aexit__(*error)


class SharedShelf(Shelf):
    made = 0
    shared = True

    async def begin(self, scope: ScopeContext) -> str | None:
        LIFE.append(f"{self.number} begin {scope}")
        return None


class Accepting:
    """Stores at its commit."""

    shared = True

    def __init__(self) -> None:
        LIFE.append("made")

    async def write(self, batch: Batch) -> None: ...

    async def commit(self, scope: ScopeContext) -> None: ...

    async def rollback(self, scope: ScopeContext) -> None:
        LIFE.append(f"rollback {scope}")


async def function(event: ChangeEvent) -> None:
    LIFE.append("called")


@pytest.fixture(autouse=True)
def at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "OPENING_BACKOFF", Backoff(0, 0))
    Shelf.made = SharedShelf.made = Patient.made = 0
    LIFE.clear()
    DOWN.clear()


def settings(target: str = "Shelf", **options: Any) -> PythonHandlerSettings:
    given = {"type": "python", "target": f"{__name__}:{target}", "options": options}
    return PythonHandlerSettings.model_validate(given)


def plan(of: AnyHandlerSettings, *scopes: Scope, name: str = "shelf") -> HandlerPlan:
    return HandlerPlan.of(name, of, scopes)


@asynccontextmanager
async def pooled(*plans: HandlerPlan, leased: bool = False) -> AsyncIterator[HandlerPool]:
    async with handler_pool(CollectorRegistry(), leased=leased) as pool:
        pool.use(await pool.add(plans, DELIVERY, waits=True))
        yield pool


async def reloaded(pool: HandlerPool, *plans: HandlerPlan, same: Sequence[str] = ()) -> None:
    """As a reload does it, for scopes that end at once."""
    pool.use(await pool.add(plans, DELIVERY, same))
    pool.sweep(())


def handlers(pool: HandlerPool, name: str = "shelf") -> Mapping[str, Handler]:
    """By scope."""
    return {scope: handlers_of(pool.open, DELIVERY)(scope)[name] for scope, _ in pool.open}


async def write(pool: HandlerPool, scope: str) -> None:
    await deliver(handlers(pool)[scope], EVENT, identity=replace(OWNER, scope=scope))


def metrics(pool: HandlerPool) -> Mapping[str, float]:
    samples = [sample for metric in pool.collect() for sample in metric.samples]
    found = {(each.name, *each.labels.values()): each.value for each in samples}
    assert len(found) == len(samples)
    return {" ".join(name): value for name, value in found.items() if "_created" not in name[0]}


# --- which objects there are ---------------------------------------------------------------------


async def test_two_scopes_of_a_handler_have_two_objects() -> None:
    async with pooled(plan(settings(), ORDERS, USERS)) as pool:
        await write(pool, "orders")
        await write(pool, "users")
        assert metrics(pool) == {  # as if one object served both
            "shelf_written_total ": 2,
            "shelf_pool": 10,
            "shelf_seconds_bucket 1.0": 2,
            "shelf_seconds_bucket +Inf": 2,
            "shelf_seconds_count": 2,
            "shelf_seconds_sum": 1,
        }
    assert LIFE == ["opened 1", "opened 2", "1 orders", "2 users", "closed 2", "closed 1"]


async def test_a_shared_object_serves_all_scopes_and_each_has_a_position_of_its_own() -> None:
    async with pooled(plan(settings("SharedShelf"), ORDERS, USERS)) as pool:
        for scope in ("orders", "users"):
            await begin(handlers(pool)[scope], replace(OWNER, scope=scope))
            await write(pool, scope)
        assert metrics(pool)["shelf_written_total "] == 2
    calls = ["1 begin orders", "1 orders", "1 begin users", "1 users"]
    assert ["opened 1", *calls, "closed 1"] == LIFE


async def test_what_a_shared_object_accepted_of_one_scope_is_rolled_back_for_that_one() -> None:
    """Also if the scope's handler was asked for anew meanwhile, as a reload does."""
    async with pooled(plan(settings("Accepting"), ORDERS, USERS)) as pool:
        for scope in ("orders", "users"):
            await deliver(handlers(pool)[scope], EVENT, identity=replace(OWNER, scope=scope))
        await commit(handlers(pool)["orders"])
        for scope in ("orders", "users"):
            later = replace(OWNER, scope=scope, epoch=2)
            await deliver(handlers(pool)[scope], EVENT, identity=later)
    assert LIFE == ["made", "rollback users"]


async def test_a_function_is_called_as_it_is() -> None:
    async with pooled(plan(settings("function"), ORDERS, USERS)) as pool:
        for handler in handlers(pool).values():
            assert handler.ready is None
            await deliver(handler, EVENT)
    assert LIFE == ["called", "called"]


async def test_a_destination_that_is_down_for_one_scope_does_not_keep_the_other() -> None:
    DOWN.append(1)
    async with pooled(plan(settings(), ORDERS, USERS)) as pool:
        with pytest.raises(Unavailable, match="Shelf is not open: ConnectionError: no answer"):
            await write(pool, "orders")
        await write(pool, "users")
        DOWN.clear()
        await until(lambda: "opened 1" in LIFE)
        await write(pool, "orders")
    assert LIFE[:4] == ["opened 2", "2 users", "opened 1", "1 orders"]


# --- reloads -------------------------------------------------------------------------------------


async def test_a_removed_scope_closes_its_own_object_and_an_added_one_opens_its_own() -> None:
    async with pooled(plan(settings(), ORDERS, USERS)) as pool:
        await reloaded(pool, plan(settings(), USERS, CARTS), same=["shelf"])
        await until(lambda: "closed 1" in LIFE)
        assert LIFE == ["opened 1", "opened 2", "opened 3", "closed 1"]
        await write(pool, "users")
        assert LIFE[-1] == "2 users"


async def test_a_scope_that_follows_another_collection_opens_its_object_anew() -> None:
    async with pooled(plan(settings(), ORDERS, USERS)) as pool:
        await reloaded(
            pool, plan(settings(), replace(ORDERS, collection="o"), USERS), same=["shelf"]
        )
        await until(lambda: "closed 1" in LIFE)
    assert LIFE[:4] == ["opened 1", "opened 2", "opened 3", "closed 1"]


async def test_a_handler_that_changed_opens_all_its_objects_anew() -> None:
    """The former ones close when no scope uses them any more."""
    other = plan(settings("SharedShelf"), ORDERS, USERS, name="other")
    async with pooled(plan(settings(), ORDERS, USERS), other) as pool:
        used = [pool.open["orders", "shelf"]]
        changed = plan(settings(path="x"), ORDERS, USERS)
        pool.use(await pool.add([changed, other], DELIVERY, ["other"]))
        pool.sweep(used)
        await until(lambda: "closed 2" in LIFE)
        assert LIFE == ["opened 1", "opened 2", "opened 1", "opened 3", "opened 4", "closed 2"]
        pool.sweep(())
        await until(lambda: LIFE[-1] == "closed 1")


async def test_a_reload_that_is_refused_closes_only_what_it_opened() -> None:
    async with pooled(plan(settings(), ORDERS)) as pool:
        refused = plan(settings(path="refused"), ORDERS, name="other")
        with pytest.raises(ConfigurationError, match="Shelf cannot be opened: ValueError"):
            await pool.add([plan(settings(), ORDERS, USERS), refused], DELIVERY, ["shelf"])
        assert LIFE == ["opened 1", "opened 2", "closed 2"]
        await write(pool, "orders")


async def test_a_shared_object_goes_over_to_a_scope_that_takes_the_place_of_all(
    tmp_path: Any,
) -> None:
    """Another one could not have the file."""
    lines = JsonlHandlerSettings(type="jsonl", path=str(tmp_path / "events.jsonl"))
    async with pooled(plan(lines, ORDERS)) as pool:
        former = handlers(pool)["orders"]
        await reloaded(pool, plan(lines, USERS), same=["shelf"])
        await deliver(former, EVENT)
        await deliver(handlers(pool)["users"], EVENT)
    assert len((tmp_path / "events.jsonl").read_text().splitlines()) == 2


# --- replicas ------------------------------------------------------------------------------------


async def test_an_object_is_open_while_this_process_has_the_lease_of_its_scope() -> None:
    shared = plan(settings("SharedShelf"), ORDERS, USERS, name="shared")
    async with pooled(plan(settings(), ORDERS, USERS), shared, leased=True) as pool:
        assert LIFE == ["opened 1"]  # the shared one
        LIFE.clear()
        async with pool.entered("orders"):
            await write(pool, "orders")
        with pytest.raises(Unavailable):
            await write(pool, "orders")
        async with pool.entered("orders"):
            await write(pool, "orders")
            assert metrics(pool)["shelf_written_total "] == 1
    first, second = ["opened 1", "1 orders", "closed 1"], ["opened 3", "3 orders", "closed 3"]
    assert [*first, *second, "closed 1"] == LIFE


async def test_a_takeover_waits_for_whatever_keeps_an_object_from_opening() -> None:
    """Its process follows other scopes, and cannot refuse to start any more."""
    refused = plan(settings(path="refused"), ORDERS)
    async with pooled(refused, leased=True) as pool, pool.entered("orders"):
        with pytest.raises(Unavailable, match="ValueError: no such shelf"):
            await write(pool, "orders")
    assert LIFE == []


async def test_a_reload_opens_what_changed_for_the_scopes_that_this_process_follows() -> None:
    async with pooled(plan(settings(), ORDERS, USERS), leased=True) as pool:
        async with pool.entered("orders"):
            with pytest.raises(ConfigurationError, match="no such shelf"):
                await pool.add([plan(settings(path="refused"), ORDERS, USERS)], DELIVERY)
            await reloaded(pool, plan(settings(path="x"), ORDERS, USERS))
        assert LIFE == ["opened 1", "opened 5", "closed 1"]
        async with pool.entered("orders"):
            await write(pool, "orders")
    assert LIFE[3:] == ["5 orders", "closed 5"]


async def test_one_that_is_slow_to_close_keeps_no_other_open() -> None:
    plans = [plan(settings("Patient"), ORDERS, name=name) for name in ("a", "b")]
    async with pooled(*plans, leased=True) as pool, pool.entered("orders"):
        pass
    assert LIFE == ["opened 1", "opened 2", "closed 1", "closed 2"]
