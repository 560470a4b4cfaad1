"""The verifications of a process: those of the scopes that it follows go on, the others wait."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import anyio
import structlog
from anyio.abc import TaskGroup
from bson.objectid import ObjectId

from tailrace.engine import Routed, Watcher
from tailrace.engine.ports import DeadLetterStore
from tailrace.errors import CheckpointError, CheckpointFenced, describe
from tailrace.model.verification import (
    Verification,
    VerificationRequest,
    VerificationState,
)
from tailrace.verify.findings import Findings
from tailrace.verify.followed import FollowedHandler
from tailrace.verify.planning import planned
from tailrace.verify.ports import VerificationStore
from tailrace.verify.run import VerificationRun
from tailrace.verify.source import Source, SourceServer

_LOOK_SECONDS = 1.0
_LAST_SAVE_SECONDS = 2.0

Key = tuple[str, str]
"""A scope and a handler of it."""


@dataclass(slots=True, eq=False)
class _Task:
    """A run, and what ends it."""

    run: VerificationRun
    followed: FollowedHandler
    epoch: int
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    ended: anyio.Event = field(default_factory=anyio.Event)


@dataclass(slots=True, eq=False)
class Verifications:
    """``watchers``: those of the process now. ``server``: the source now; a reload may replace
    both."""

    watchers: Callable[[], Iterable[Watcher]]
    server: Callable[[], SourceServer]
    store: VerificationStore
    letters: DeadLetterStore
    locks: defaultdict[str, anyio.Lock] = field(default_factory=lambda: defaultdict(anyio.Lock))
    """By scope, held while one is prepared and begun: of two at once, one is refused."""
    _tasks: dict[Key, _Task] = field(default_factory=dict)
    _adopted: dict[str, int] = field(default_factory=dict)
    """By scope, the epoch in which its stored verifications were taken over."""
    _last: dict[Key, Verification] = field(default_factory=dict)
    """Of the scopes that were taken over: to read thousands of differences takes a while."""
    _group: TaskGroup | None = None
    _failed: bool = False

    def _find(self, scope: str) -> Watcher | None:
        return next((each for each in self.watchers() if each.name == scope), None)

    def followed(self, scope: str, handler: str) -> FollowedHandler:
        """A handler as verifications see it."""
        return FollowedHandler(scope, handler, self._find)

    async def run(self) -> None:
        """Goes on with the verifications of followed scopes, until it is cancelled."""
        async with anyio.create_task_group() as self._group:
            while True:
                for task in list(self._tasks.values()):
                    watcher = task.followed.watcher
                    if watcher is None or watcher.claim.epoch != task.epoch:
                        task.scope.cancel()
                self.leave()
                for watcher in list(self.watchers()):
                    await self.adopt(watcher)
                await anyio.sleep(_LOOK_SECONDS)

    def leave(self) -> None:
        """Forgets what is followed here no more: another process has newer results now."""
        for scope, handler in list(self._last):
            if self.followed(scope, handler).routed is None:
                del self._last[scope, handler]
        for scope in [name for name in self._adopted if not self.followed(name, "").watcher]:
            del self._adopted[scope]

    async def adopt(self, watcher: Watcher) -> None:
        """Goes on with what the store has of a scope, if this process follows it since now."""
        scope, epoch = watcher.name, watcher.claim.epoch
        followed = self.followed(scope, "")
        if followed.watcher is None or self.has_adopted(watcher):
            return
        if any(name == scope for name, _ in self._tasks):
            return  # those of the former epoch are ending
        try:
            stored = await self.store.load(scope)
        except CheckpointError as error:
            if not self._failed:
                structlog.get_logger().warning("verifications.unreadable", error=describe(error))
            self._failed = True
            return
        self._failed = False
        if self.has_adopted(watcher):
            return  # another request was answered sooner, and newer ones may have begun since
        self._adopted[scope] = epoch
        for record in stored:
            self._last[scope, record.handler] = record
            if not record.is_over and (scope, record.handler) not in self._tasks:
                self._begin(replace(record, epoch=epoch))

    def _begin(self, record: Verification) -> VerificationRun:
        assert self._group is not None  # noqa: S101 - for the type checker
        followed = self.followed(record.scope, record.handler)
        source = Source(self.server, lambda: followed.plan)
        run = VerificationRun(Findings(record, self.letters), followed, source, self.store)
        task = _Task(run, followed, record.epoch)
        self._tasks[record.scope, record.handler] = task
        name = f"verification of {record.handler} in {record.scope}"
        self._group.start_soon(self._follow, task, name=name)
        return run

    async def _follow(self, task: _Task) -> None:
        record, run = task.run.record, task.run
        log = structlog.get_logger().bind(scope=record.scope, handler=record.handler)
        try:
            with task.scope:
                await run.run()
            if run.record.is_over:
                await run.save_end()
        except CheckpointFenced as error:
            log.info("verification.left", reason=describe(error))
        finally:
            if not run.is_saved:
                with (
                    suppress(CheckpointError),
                    anyio.move_on_after(_LAST_SAVE_SECONDS, shield=True),
                ):
                    await run.save()
            self._last[record.scope, record.handler] = run.record
            del self._tasks[record.scope, record.handler]
            task.ended.set()

    # --- what operators ask for ----------------------------------------------------------------

    def running(self, scope: str, handler: str) -> VerificationRun | None:
        """The run of a handler's verification, if it goes on here."""
        task = self._tasks.get((scope, handler))
        return task.run if task is not None else None

    async def prepare(
        self, watcher: Watcher, routed: Routed, request: VerificationRequest, by: str
    ) -> Verification:
        """One that may begin. Raises :class:`tailrace.snapshot.plan.NothingToRead` and errors of
        the server."""
        at = await Source(self.server, lambda: watcher.plan).now()
        collections = await planned(self.server(), watcher.plan.scope, request, routed)
        began, epoch = datetime.now(UTC), watcher.claim.epoch
        record = Verification(
            watcher.name, routed.name, str(ObjectId()), epoch, request, by, began, at=at
        )
        return replace(record, collections=collections)

    async def start(self, record: Verification) -> None:
        """Begins one, in place of a round that goes on. Raises :class:`CheckpointError` if it
        cannot be stored."""
        key = record.scope, record.handler
        if (replaced := self._tasks.get(key)) is not None:
            if replaced.run.record.is_over:
                raise CheckpointError("the end of the last verification is not stored yet")
            replaced.scope.cancel()
            await replaced.ended.wait()
        if (last := self._last.get(key)) is not None:
            record = replace(record, proof=last.proof)
        if record.request.is_whole and record.proof.since is None:
            record = replace(record, proof=replace(record.proof, since=record.began))
        try:
            await self.store.save(record)
        except CheckpointError:
            if replaced is not None:
                self._begin(replaced.run.record)
            raise
        structlog.get_logger().info(
            "verification.begun",
            scope=record.scope,
            handler=record.handler,
            verification=record.id,
            by=record.by,
            collections=len(record.collections),
        )
        self._begin(record)

    async def repaired_by(self, record: Verification, snapshot: str) -> None:
        """Notes the snapshot that brings what a verification that is over has found to differ.

        Raises :class:`CheckpointError` if it cannot be stored.
        """
        record = replace(record, repair=snapshot)
        await self.store.save(record)
        self._last[record.scope, record.handler] = record

    async def change(self, run: VerificationRun, state: VerificationState) -> None:
        """Pauses or resumes one, or cancels it. Raises :class:`CheckpointError` if that cannot be
        stored: then nothing changes, here and in the next process."""
        over = state is VerificationState.CANCELLED
        wanted = replace(run.record, state=state)
        await self.store.save(run.record.over(state, "", datetime.now(UTC)) if over else wanted)
        if over:
            await run.end(state)
            if task := self._tasks.get((run.record.scope, run.record.handler)):
                task.scope.cancel()
        else:
            run.findings.record = replace(run.record, state=state)
            await run.save()
        run.changed.set()

    def now(self, scope: str, handler: str) -> Verification | None:
        """The last verification of a handler that is followed here."""
        if (run := self.running(scope, handler)) is not None:
            return run.record
        return self._last.get((scope, handler))

    def known(self) -> Iterable[Key]:
        """The handlers of followed scopes that were verified."""
        return [*self._last, *self._tasks]

    def has_adopted(self, watcher: Watcher) -> bool:
        """Whether the stored verifications of a scope are known."""
        return self._adopted.get(watcher.name) == watcher.claim.epoch

    async def last(self, scope: str, handlers: Iterable[str]) -> Sequence[Verification]:
        """The last verification of each of these handlers that has had one."""
        watcher = self.followed(scope, "").watcher
        if watcher is None or not self.has_adopted(watcher):
            stored = {each.handler: each for each in await self.store.load(scope)}
        else:
            stored = {name: each for (of, name), each in self._last.items() if of == scope}
        for handler in handlers:
            if (run := self.running(scope, handler)) is not None:
                stored[handler] = run.record
        return [stored[handler] for handler in handlers if handler in stored]
