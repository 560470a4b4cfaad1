"""What actions work with: the scopes of a process that runs, and orders for them."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

import anyio

from tailrace.control.effects import OrderOutcome
from tailrace.control.orders import give
from tailrace.control.outcome import ActionRefused, Done
from tailrace.control.server_positions import ServerPositions
from tailrace.control.subject import Subject
from tailrace.engine import (
    CheckpointStore,
    CommandRunner,
    OrderStore,
    Runtime,
    Supervisor,
    Watcher,
    WatcherState,
)
from tailrace.verify.verifications import Verifications
from tailrace.why.inquiry import Inquiry


class Reload(Protocol):
    """Applies what has changed in the configuration of the process, or says what that is."""

    async def __call__(self, *, dry_run: bool) -> Done:
        """Raises :class:`ActionRefused`."""


@dataclass(frozen=True, slots=True)
class Control:
    """One process that runs. ``supervisor`` follows its scopes, ``runtime`` is what they share.

    ``server``: the source. ``inquiries``: by scope, what can be asked about its documents.
    ``verifications``: those of the process. An answer waits for ``patience_seconds`` until an order
    is obeyed. ``locks``, by name, are held by actions that must not be performed twice at once;
    they outlast a reload, which replaces the rest.
    """

    supervisor: Supervisor
    runtime: Runtime
    server: CommandRunner
    inquiries: Mapping[str, Inquiry]
    reload: Reload
    verifications: Verifications
    patience_seconds: float = 5.0
    locks: defaultdict[str, anyio.Lock] = field(default_factory=lambda: defaultdict(anyio.Lock))

    def watcher(self, scope: str) -> Watcher:
        """That of a scope. Raises :class:`ActionRefused`."""
        watcher = self.supervisor.find(scope)
        if watcher is None:
            names = ", ".join(each.name for each in self.supervisor.watchers)
            raise ActionRefused(404, f"there is no scope {scope!r}; there are: {names}")
        return watcher

    def subject(self, scope: str, handler: str | None = None) -> Subject:
        """The scope, or its handler, whose process need not be the one that obeys the order."""
        subject = Subject(self.watcher(scope), handler)
        if subject.watcher.status.state is WatcherState.STOPPED:
            raise ActionRefused(409, f"scope {scope!r} is stopped: it is not followed any more")
        return subject

    def positions(self, subject: Subject) -> AbstractAsyncContextManager[ServerPositions]:
        """Those of a scope on its server."""
        plan, runtime = subject.watcher.plan, self.runtime
        clock = runtime.clock.now
        server = ServerPositions(plan.scope, plan.options, runtime.driver, clock, self.server)
        return nullcontext(server)

    @property
    def checkpoints(self) -> CheckpointStore:
        """The store of positions."""
        return self.runtime.store

    @property
    def orders(self) -> OrderStore:
        """The store of orders."""
        return self.runtime.orders

    async def order(
        self,
        subject: Subject,
        by: str,
        changes: Mapping[str, Any],
        wait: float | None,
        *,
        obeyed: Callable[[str], bool] | None = None,
        restarts: bool = False,
    ) -> OrderOutcome:
        """Gives an order, and waits for a while until every handler that is meant has ``obeyed``.

        ``restarts``: what is halted begins again. Raises :class:`ActionRefused`.
        """
        scope, handler = subject.watcher.name, subject.handler
        given = await give(self.orders, scope, by, changes, handler)
        subject.watcher.obey(given.order)
        if restarts and subject.is_halted:
            self.supervisor.restart(scope, handler=handler)
            subject = Subject(self.watcher(scope), handler)
        watcher, number = subject.watcher, given.order.number
        effect = await subject.until(
            obeyed or (lambda name: watcher.obeyed_by(name) >= number),
            self.patience_seconds if wait is None else wait,
        )
        return OrderOutcome(subject, given, effect)
