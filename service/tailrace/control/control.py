"""What actions work with: the scopes of a process that runs, and what is wanted of them."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

import anyio

from tailrace.control.desired_state import apply_change
from tailrace.control.effects import ApplyOutcome
from tailrace.control.outcome import ActionRefused, Done
from tailrace.control.server_positions import ServerPositions
from tailrace.control.subject import Subject
from tailrace.engine import (
    CheckpointStore,
    DesiredStateStore,
    Runtime,
    Supervisor,
    Watcher,
    WatcherState,
)
from tailrace.model.verification import Difference
from tailrace.stream import CommandRunner
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
    ``verifications``: those of the process. An answer waits for ``patience_seconds`` until a
    change is applied. ``locks``, by name, are held by actions that must not be performed twice at
    once; they outlast a reload, which replaces the rest, as ``reasons`` do: why rows differ, by the
    id of a verification.
    """

    supervisor: Supervisor
    runtime: Runtime
    server: CommandRunner
    inquiries: Mapping[str, Inquiry]
    reload: Reload
    verifications: Verifications
    patience_seconds: float = 5.0
    reasons: dict[str, Mapping[Difference, str]] = field(default_factory=dict)
    locks: defaultdict[str, anyio.Lock] = field(default_factory=lambda: defaultdict(anyio.Lock))

    def watcher(self, scope: str) -> Watcher:
        """That of a scope. Raises :class:`ActionRefused`."""
        watcher = self.supervisor.find(scope)
        if watcher is None:
            names = ", ".join(each.name for each in self.supervisor.watchers)
            raise ActionRefused(404, f"there is no scope {scope!r}; there are: {names}")
        return watcher

    def subject(self, scope: str, handler: str | None = None) -> Subject:
        """The scope, or its handler, whose process need not be the one that applies the change."""
        subject = Subject(self.watcher(scope), handler)
        if subject.watcher.status.state is WatcherState.STOPPED:
            if self.supervisor.is_changing(scope):
                message = f"scope {scope!r} is being changed by a reload, and goes on after that"
                raise ActionRefused(503, f"{message}: try again in a while")
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
    def desired_states(self) -> DesiredStateStore:
        """The store of desired states."""
        return self.runtime.desired_states

    async def apply(
        self,
        subject: Subject,
        by: str,
        changes: Mapping[str, Any],
        wait: float | None,
        *,
        is_applied: Callable[[str], bool] | None = None,
        restarts: bool = False,
    ) -> ApplyOutcome:
        """Stores a change, and waits for a while until it ``is_applied`` to every handler.

        ``restarts``: what is halted begins again. Raises :class:`ActionRefused`.
        """
        scope, handler = subject.watcher.name, subject.handler
        stored = await apply_change(self.desired_states, subject.watcher, by, changes, handler)
        if restarts and subject.is_halted:
            self.supervisor.restart(scope, handler=handler)
            subject = Subject(self.watcher(scope), handler)
        watcher, generation = subject.watcher, stored.desired.generation
        effect = await subject.until(
            is_applied or (lambda name: watcher.claim.observed_by(name) >= generation),
            self.patience_seconds if wait is None else wait,
        )
        return ApplyOutcome(subject, stored, effect)
