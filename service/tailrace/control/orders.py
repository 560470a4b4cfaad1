"""Gives orders for scopes: records in the store, which the process that follows a scope obeys."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import anyio

from tailrace.control.outcome import ActionRefused
from tailrace.engine import OrderStore, Watcher
from tailrace.errors import CheckpointCorrupt, CheckpointError, describe
from tailrace.model.order import HandlerOrder, Order
from tailrace.model.snapshot import SnapshotRequest

_ATTEMPTS = 5
"""How often an order is tried that meets another process's, or has no answer."""

SECONDS = 20.0
"""How long an order is tried in all: less than a client waits for the answer."""


@dataclass(frozen=True, slots=True)
class Given:
    """An order, and whether the one before it already said the same."""

    order: Order
    repeated: bool = False


async def give(
    orders: OrderStore, scope: str, by: str, changes: Mapping[str, Any], handler: str | None = None
) -> Given:
    """Gives an order with these fields changed, of a handler or of all. The same order twice is
    one.

    Raises :class:`ActionRefused` if others give orders at the same time, the store fails, or a
    handler is to continue alone in a scope that is paused.
    """
    failure, tried = "", None
    with anyio.move_on_after(SECONDS) as limit:
        for _ in range(_ATTEMPTS):
            try:
                if tried is None:
                    last = await orders.load(scope) or _none(scope, by)
                    if handler is not None and last.paused and "paused" in changes:
                        if changes["paused"]:
                            return Given(last, repeated=True)
                        raise _paused(last)
                    order = _next(last, by, changes, handler)
                    if replace(order, number=last.number, by=last.by, at=last.at) == last:
                        return Given(last, repeated=True)
                    tried = order
                if await orders.give(tried):
                    return Given(tried)
                tried = None
            except CheckpointCorrupt as error:  # a second try reads the same
                raise ActionRefused(409, str(error)) from error
            except CheckpointError as error:
                failure = describe(error)
    if limit.cancelled_caught:
        failure = failure or f"no answer from the store within {SECONDS:g} s"
    if not failure:
        raise ActionRefused(409, f"scope {scope!r}: others give it orders now: ask again")
    if tried is None:
        raise ActionRefused(503, f"nothing was changed: {failure}. Ask again when it answers")
    message = f"the store did not confirm it: {failure}. It is done if /status shows it"
    raise ActionRefused(503, f"{message}; ask again when the store answers")


def subject_text(scope: str, handler: str | None) -> str:
    """What an order is about, for people."""
    return f"scope {scope!r}" if handler is None else f"handler {handler!r} of scope {scope!r}"


async def order_snapshot(
    orders: OrderStore,
    watcher: Watcher,
    wanted: SnapshotRequest,
    by: str,
    handler: str | None = None,
) -> None:
    """Stores what is wanted of a snapshot. Raises :class:`ActionRefused`."""
    given = await give(orders, watcher.name, by, {"snapshot": wanted}, handler)
    watcher.obey(given.order)


def _none(scope: str, by: str) -> Order:
    """Stands for the order of a scope that has none.

    Its record may have been removed by hand. Then the next number must still be greater than those
    that the checkpoint and the processes know, which count up from a time before.
    """
    now = datetime.now(UTC)
    return Order(scope, int(now.timestamp() * 1000), paused=False, by=by, at=now)


def _paused(order: Order) -> ActionRefused:
    message = f"scope {order.scope!r} is paused as a whole, by {order.by}"
    help_ = f"'tailrace scopes resume {order.scope}' continues it, with all its handlers"
    return ActionRefused(409, f"{message}: {help_}")


def _next(last: Order, by: str, changes: Mapping[str, Any], handler: str | None) -> Order:
    order = replace(last, number=last.number + 1, by=by, at=datetime.now(UTC))
    changed = dict(changes)
    if "seek" in changes:
        changed["sought"] = order.number
    if "snapshot" in changes:
        changed["asked"] = order.number
    if "replay" in changes:
        changed["replayed"] = order.number
    if handler is None:  # what is wanted of all takes the place of what was wanted of single ones
        nothing = {name: getattr(HandlerOrder(), name) for name in changed}
        of_handlers = {name: replace(own, **nothing) for name, own in last.handlers.items()}
        order = replace(order, **changed)
    else:
        own = replace(last.handlers.get(handler, HandlerOrder()), **changed)
        of_handlers = {**last.handlers, handler: own}
    wanted = {name: own for name, own in of_handlers.items() if own != HandlerOrder()}
    return replace(order, handlers=wanted)
