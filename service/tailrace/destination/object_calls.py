"""Calls an object with a coroutine method ``write``, which stores batches of events."""

import inspect
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import structlog
from prometheus_client import CollectorRegistry

from tailrace.destination.batch import Batch, ScopeContext
from tailrace.destination.position import position_text, stored_position
from tailrace.destination.positioned_comparison import PositionedComparison
from tailrace.engine import Commit, Comparison, OwnPosition, PerBatch, RunIdentity
from tailrace.event import ChangeEvent
from tailrace.model import SinkPosition

_METHODS = {
    "write": "batch",
    "begin": "scope",
    "on_ddl": "event",
    "commit": "scope",
    "rollback": "scope",
    "probe": "context",
    "comparison": "scope",
}
"""The methods that are called, and what each one gets."""


def require_methods(target: Any) -> None:
    """Raises ``ValueError`` unless the class or object has the methods of a destination."""
    for method, argument in _METHODS.items():
        function: Any = getattr(target, method, None)
        if function is None and method != "write":
            continue
        is_coroutine, opens = inspect.iscoroutinefunction(function), method == "comparison"
        if opens and is_coroutine:
            raise ValueError("has a comparison that is a coroutine: write '@asynccontextmanager'")
        if not (opens or is_coroutine):
            raise ValueError(f"has a {method} that is not a coroutine method: write 'async def'")
        bound = inspect.isclass(target)
        if not (
            _takes(function, 1 + bound) or (method == "on_ddl" and _takes(function, 2 + bound))
        ):
            raise ValueError(f"has a {method} that does not take one argument, the {argument}")
    if hasattr(target, "rollback") and not hasattr(target, "commit"):
        raise ValueError("has a rollback without a commit: write stores its batch, or fails")
    if hasattr(target, "commit") and not (hasattr(target, "rollback") or hasattr(target, "begin")):
        raise ValueError(
            "has a commit and neither rollback nor begin: what it accepted comes again after a "
            "failure, so it must be able to discard it"
        )


def _takes(function: Callable[..., Any], count: int) -> bool:
    """Whether it can be called with so many arguments."""
    try:
        inspect.signature(function).bind(*[None] * count)
    except TypeError:
        return False
    return True


class ObjectCalls:
    """Makes batches of one scope for an open object, and keeps what its destination stored last."""

    def __init__(self, name: str, target: Any, registry: CollectorRegistry) -> None:
        self._name = name
        self._target = target
        self._registry = registry
        self._commits, self._begins = hasattr(target, "commit"), hasattr(target, "begin")
        on_ddl = getattr(target, "on_ddl", None)
        self._ddl_takes_scope = on_ddl is not None and _takes(on_ddl, 2)
        self._attempts = 0
        self._stored: tuple[str | None, SinkPosition | None] = None, None
        """What ``begin`` returned last, or what was stored since."""
        self._accepted: tuple[str | None, SinkPosition | None] | None = None
        """What the next ``commit`` stores, without texts if there is no ``begin``."""
        self._run: RunIdentity | None = None
        """The run whose events the object has accepted."""

    def calls(self, **bounds: Any) -> PerBatch:
        """How the engine calls it; ``bounds`` are fields of :class:`PerBatch`."""
        return PerBatch(self._write, on_ddl=self._on_ddl, **bounds)

    @property
    def position(self) -> OwnPosition | None:
        """How the engine asks for its position; ``None`` without ``begin``."""
        return OwnPosition(self._begin) if self._begins else None

    def commit(self, **bounds: Any) -> Commit | None:
        """How the engine commits, within bounds of :class:`Commit`; ``None`` without ``commit``."""
        return Commit(self._commit, **bounds) if self._commits else None

    @property
    def comparison(self) -> Callable[[RunIdentity], AbstractAsyncContextManager[Comparison]] | None:
        """How its rows are compared with the source; ``None`` without ``comparison``.

        That may be ``None``, too: settings may say that the destination holds no rows.
        """
        can_be_asked = getattr(self._target, "comparison", None) is not None
        return self._comparison if can_be_asked else None

    @property
    def from_beginning(self) -> bool:
        """Whether its ``comparison`` reads all messages from their beginning."""
        return bool(getattr(self._target, "compares_from_beginning", False))

    @asynccontextmanager
    async def _comparison(self, identity: RunIdentity) -> AsyncIterator[Comparison]:
        async with self._target.comparison(self._context(identity)) as comparison:
            yield PositionedComparison(comparison, identity)

    async def _begin(self, identity: RunIdentity) -> SinkPosition | None:
        self._attempts += 1
        await self._roll_back(identity)
        text = await self._target.begin(self._context(identity))
        position = None if text is None else stored_position(text, identity)
        self._stored = text, position
        return position

    async def _write(self, events: Sequence[ChangeEvent], identity: RunIdentity) -> None:
        if self._commits and self._run is not identity:
            await self._roll_back(identity)
            self._run = identity
        if not self._begins:
            if self._commits:
                self._accepted = None, None
            await self._target.write(Batch(events, self._context(identity)))
            return
        former, before = self._stored
        if self._accepted is not None:
            before = self._accepted[1]
        after = SinkPosition.after_batch(events, before).of_run(
            identity.fingerprint, identity.observed_generation
        )
        stored = position_text(after, identity), after
        if self._commits:
            self._accepted = stored
        await self._target.write(Batch(events, self._context(identity), stored[0], former))
        if not self._commits:
            self._stored, self._attempts = stored, 0

    async def _commit(self, identity: RunIdentity) -> None:
        await self._target.commit(self._context(identity))
        if self._accepted is not None:
            self._stored, self._accepted = self._accepted, None
        self._attempts = 0

    async def _roll_back(self, identity: RunIdentity) -> None:
        """Lets the object discard what it accepted in a run that failed: it comes again."""
        if self._accepted is not None:
            if hasattr(self._target, "rollback"):
                await self._target.rollback(self._context(identity))
            self._accepted = None

    async def _on_ddl(self, event: ChangeEvent, identity: RunIdentity) -> None:
        if (on_ddl := getattr(self._target, "on_ddl", None)) is not None:
            given = (event, self._context(identity)) if self._ddl_takes_scope else (event,)
            await on_ddl(*given)

    def _context(self, identity: RunIdentity) -> ScopeContext:
        log = structlog.get_logger().bind(scope=identity.scope, handler=self._name)
        return ScopeContext(
            identity.scope,
            identity.epoch,
            max(self._attempts, 1),
            log,
            self._registry,
            identity.cluster,
            identity.dead_letter_keys,
        )
