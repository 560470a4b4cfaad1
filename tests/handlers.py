"""Handlers made of plain functions, which need not take the identity of the run."""

from collections.abc import Awaitable, Callable
from typing import Any

from prometheus_client import CollectorRegistry

from tailrace.config.delivery import DeliverySettings
from tailrace.destination.handler_type import Opening
from tailrace.engine import Commit, Handler, OwnPosition, PerBatch, PerEvent, RunIdentity
from tailrace.engine.ports import called_with, event_list, raw_list
from tailrace.event import ChangeEvent
from tailrace.model import Scope, SinkPosition
from tailrace.model.failure_policy import FailurePolicy

ORDERS = Scope("orders", "shop", "orders")

Function = Callable[[Any], Awaitable[Any]]


def handler(
    name: str,
    on_event: Function | None = None,
    on_events: Function | None = None,
    *,
    raw: bool = False,
    concurrency: int = 64,
    by_key: int = 1,
    batch_size: int = 1000,
    batch_bytes: int = 0,
    position: Callable[[RunIdentity], Awaitable[Any]] | None = None,
    skipped: Callable[[RunIdentity, Any], Awaitable[None]] | None = None,
    commit: Commit | None = None,
    failure: FailurePolicy | None = None,
    **bounds: Any,
) -> Handler:
    """A handler of single events or of sequences; ``bounds`` are other fields of ``PerBatch``.

    ``by_key``: how many sequences at once.
    """
    calls: PerEvent | PerBatch
    if on_event is not None:
        calls = PerEvent(without_identity(on_event), concurrency)
    else:
        assert on_events is not None
        payload = raw_list if raw else event_list
        call = without_identity(on_events)
        calls = PerBatch(call, payload, batch_size, batch_bytes, concurrency=by_key, **bounds)
    own = OwnPosition(position, skipped) if position is not None else None
    return Handler(name, calls, own, commit, failure or FailurePolicy())


def without_identity(function: Function) -> Callable[[Any, RunIdentity], Awaitable[Any]]:
    return lambda given, identity: function(given)


def opening(name: str, lanes: int = 64) -> Opening:
    return Opening(name, ORDERS, DeliverySettings(lanes=lanes), CollectorRegistry(), (ORDERS,))


OWNER = RunIdentity("orders", "rs0", "", 1)


async def deliver(to: Handler, *events: ChangeEvent, identity: RunIdentity = OWNER) -> Any:
    """One call with the events, as the engine makes it."""
    call, payload = called_with(to.calls, events)
    return await call(payload, identity)


async def begin(to: Handler, identity: RunIdentity = OWNER) -> SinkPosition | None:
    """Asks the destination for its position, as at the start of a run."""
    assert to.position is not None
    return await to.position.load(identity)


async def commit(to: Handler, identity: RunIdentity = OWNER) -> None:
    assert to.commit is not None
    await to.commit.call(identity)
