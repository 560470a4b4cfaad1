"""Calls an object with a coroutine method ``write``, which stores batches of events."""

import inspect
from collections.abc import Sequence
from typing import Any

import structlog
from prometheus_client import CollectorRegistry

from tailrace.engine import OwnPosition, PerBatch, RunIdentity
from tailrace.engine.batch import Batch, ScopeContext
from tailrace.event import ChangeEvent
from tailrace.handlers.position import position_text, stored_position
from tailrace.model import SinkPosition

_METHODS = {"write": "batch", "begin": "scope", "on_ddl": "event"}
"""The methods that are called, and what each one gets."""


def require_methods(target: Any) -> None:
    """Raises ``ValueError`` unless the class or object has the methods of a destination."""
    for method, argument in _METHODS.items():
        found = getattr(target, method, None)
        if found is None and method != "write":
            continue
        if not inspect.iscoroutinefunction(found):
            raise ValueError(f"has a {method} that is not a coroutine method: write 'async def'")
        try:
            taken = (None, None) if inspect.isclass(target) else (None,)
            inspect.signature(found).bind(*taken)
        except TypeError:
            raise ValueError(
                f"has a {method} that does not take one argument, the {argument}"
            ) from None


class Destination:
    """Makes batches for an object that is open, and keeps what its destination stored last."""

    def __init__(self, name: str, target: Any, registry: CollectorRegistry) -> None:
        self._name = name
        self._target = target
        self._registry = registry
        self._attempts: dict[str, int] = {}
        self._stored: dict[str, tuple[str | None, SinkPosition | None]] = {}
        """By scope, what ``begin`` returned last, or what ``write`` stored since."""

    def calls(self, **bounds: Any) -> PerBatch:
        """How the engine calls it; ``bounds`` are fields of :class:`PerBatch`."""
        return PerBatch(self._write, on_ddl=self._on_ddl, **bounds)

    @property
    def position(self) -> OwnPosition | None:
        """How the engine asks for its position; ``None`` without ``begin``."""
        return OwnPosition(self._begin) if hasattr(self._target, "begin") else None

    async def _begin(self, identity: RunIdentity) -> SinkPosition | None:
        scope = identity.scope
        self._attempts[scope] = self._attempts.get(scope, 0) + 1
        self._stored.pop(scope, None)
        text = await self._target.begin(self._context(identity))
        position = None if text is None else stored_position(text, identity)
        self._stored[scope] = text, position
        return position

    async def _write(self, events: Sequence[ChangeEvent], identity: RunIdentity) -> None:
        scope = identity.scope
        if not hasattr(self._target, "begin"):
            await self._target.write(Batch(events, self._context(identity)))
            return
        former, before = self._stored[scope]
        # A batch holds only rows, or only changes: the last change is the position then.
        new = events if events[-1].operation_type == "read" else events[-1:]
        after = SinkPosition.after(new, before).of_pipeline(identity.fingerprint)
        text = position_text(after, identity)
        await self._target.write(Batch(events, self._context(identity), text, former))
        self._stored[scope] = text, after
        self._attempts[scope] = 0

    async def _on_ddl(self, event: ChangeEvent, identity: RunIdentity) -> None:
        if (on_ddl := getattr(self._target, "on_ddl", None)) is not None:
            await on_ddl(event)

    def _context(self, identity: RunIdentity) -> ScopeContext:
        log = structlog.get_logger().bind(scope=identity.scope, handler=self._name)
        attempt = max(self._attempts.get(identity.scope, 1), 1)
        return ScopeContext(identity.scope, identity.epoch, attempt, log, self._registry)
