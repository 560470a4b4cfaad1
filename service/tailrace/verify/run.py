"""One verification in the process that follows its scope: when it goes on, and how it ends."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import anyio
import structlog

from tailrace.engine import Comparison
from tailrace.errors import (
    CheckpointError,
    CheckpointFenced,
    CommandFailed,
    DeadLetterError,
    DriverError,
    InvalidPosition,
    ScopeHalted,
    Unavailable,
    describe,
)
from tailrace.model.failure_policy import Backoff
from tailrace.model.verification import Phase, Verification, VerificationState
from tailrace.snapshot.error_codes import ACCESS, is_refusal
from tailrace.snapshot.pace import ChunkPace
from tailrace.snapshot.plan import NothingToRead
from tailrace.verify.bounded import BoundedComparison
from tailrace.verify.findings import Findings
from tailrace.verify.followed import FollowedHandler, is_copied
from tailrace.verify.looks import Looker
from tailrace.verify.planning import NOT_COPIED, none_readable, planned
from tailrace.verify.ports import VerificationStore
from tailrace.verify.source import Source
from tailrace.verify.steps import Steps

_CHUNK_DOCUMENTS = 2000
"""Documents at once: more would let the stream wait for too long."""
_FIRST_DOCUMENTS = 16
"""The size of the first chunk, while the size of documents is unknown."""
_LONGEST_REST = 1.0
"""The longest pause beside changes, in seconds: a verification ends on a loaded machine, too."""
SAVE_SECONDS = 1.0
_SAVE_SHARE = 20
"""A save of thousands of differences takes a while: so many times longer passes until the next."""
_OBSTACLE_SECONDS = 0.2
_PAUSED_SECONDS = 60.0
_PASSING = (DriverError, Unavailable, OSError, TimeoutError, DeadLetterError)
"""Errors of the source, the destination or the store that a later try may not have."""
_MOST_FAILURES = 5
"""So many errors in a row that are neither of the server nor of an outage end the verification."""


class VerificationRun:
    """The run of one verification in the process that follows its scope."""

    def __init__(
        self,
        findings: Findings,
        followed: FollowedHandler,
        source: Source,
        store: VerificationStore,
    ) -> None:
        self.findings = findings
        self.trouble = ""
        """Why nothing is compared now."""
        self.changed = anyio.Event()
        """Set when an operator has paused, resumed or cancelled it."""
        self._followed = followed
        self._source = source
        self._store = store
        request = findings.record.request
        self._pace = ChunkPace(_CHUNK_DOCUMENTS, request.documents_per_second, _LONGEST_REST)
        self._pace.documents = _FIRST_DOCUMENTS
        self._steps = Steps(findings, source, self._pace, followed.reached, followed.is_busy)
        self._backoff = Backoff(0.1, 5.0)
        self._save_at = 0.0
        self._saved: Verification | None = None
        self._log = structlog.get_logger().bind(
            scope=followed.scope, handler=followed.handler, verification=findings.record.id
        )

    @property
    def record(self) -> Verification:
        """How far it is."""
        return self.findings.record

    async def run(self) -> None:
        """Compares until all is compared, or it is cancelled. Failures are waited out."""
        failures = unknown = 0
        while not self.record.is_over:
            before = self.record.counts.compared
            try:
                await self._ready()
                if self.record.is_over:
                    break
                async with self._followed.open() as comparison:
                    await self._compare(BoundedComparison(comparison))
            except CheckpointFenced:
                raise
            except (ScopeHalted, InvalidPosition) as error:
                await self.end(VerificationState.FAILED, describe(error))
            except _PASSING as error:
                if isinstance(error, CommandFailed) and _is_final(error):
                    await self.end(VerificationState.FAILED, describe(error))
                    break
                failures = 1 if self.record.counts.compared > before else failures + 1
                await self._wait_out(error, failures)
            except Exception as error:  # noqa: BLE001 - whatever a destination raises
                unknown = 1 if self.record.counts.compared > before else unknown + 1
                if unknown == _MOST_FAILURES:
                    await self.end(VerificationState.FAILED, describe(error))
                    break
                await self._wait_out(error, unknown)

    async def _wait_out(self, error: Exception, failures: int) -> None:
        self.trouble = describe(error)
        delay = self._backoff.delay(failures)
        # As an outage of the handler, it is told once, and `verify --status` shows how it is now.
        log = {1: self._log.info, 2: self._log.warning}.get(failures, self._log.debug)
        log("verification.interrupted", error=self.trouble, delay_seconds=round(delay, 3))
        await self._sleep(delay)

    async def end(self, state: VerificationState, reason: str = "") -> None:
        """Ends it for good."""
        self.findings.record = self.record.over(state, reason, datetime.now(UTC))
        self.trouble = ""
        await self.save()
        counts = self.record.counts
        self._log.info(
            "verification.ended",
            state=state.value,
            reason=reason,
            compared=counts.compared,
            different=counts.different,
            missing=counts.missing,
            too_many=counts.too_many,
            in_flux=counts.in_flux,
            set_aside=counts.set_aside,
        )

    async def save(self) -> None:
        """Stores how far it is; if that fails, the next one may work."""
        record, began = self.record, anyio.current_time()
        try:
            await self._store.save(record)
            self._saved = record
        except CheckpointFenced:
            raise
        except CheckpointError as error:
            self._log.warning("verification.not_saved", error=describe(error))
        now = anyio.current_time()
        self._save_at = now + max(SAVE_SECONDS, _SAVE_SHARE * (now - began))

    @property
    def is_saved(self) -> bool:
        """Whether the store has all of it."""
        return self._saved is self.record

    async def save_end(self) -> None:
        """Returns when its end is stored: else another process would go on with it."""
        while not self.is_saved:
            await anyio.sleep(SAVE_SECONDS)
            await self.save()

    # --- when ----------------------------------------------------------------------------------

    async def _ready(self) -> None:
        """Returns when the next step may begin: not paused, and no change has to wait."""
        while not self.record.is_over:
            if self.record.state is VerificationState.PAUSED:
                await self._sleep(_PAUSED_SECONDS)
                continue
            if ended := self._followed.ended:
                await self.end(VerificationState.FAILED, ended)
                return
            obstacle = self._followed.obstacle
            if not obstacle:
                self.trouble = ""
                await self._pace.wait()
                return
            self.trouble = obstacle
            await self._sleep(_OBSTACLE_SECONDS)

    async def _sleep(self, seconds: float) -> None:
        """Waits, or until an operator changes something."""
        with anyio.move_on_after(seconds):
            await self.changed.wait()
        if self.changed.is_set():
            self.changed = anyio.Event()

    # --- what ----------------------------------------------------------------------------------

    async def _compare(self, comparison: Comparison) -> None:
        full_document = self._followed.plan.options.full_document
        looker = Looker(self._source, comparison, self._followed.reached, full_document)
        self._refuse_left_out()
        while self.record.state is VerificationState.RUNNING:  # while paused, nothing is open
            await self._ready()
            if self.record.is_over:
                return
            of = next((one for one in self.record.collections.values() if not one.is_over), None)
            if of is None and not await self._replanned():
                await self._finish()
                return
            if of is not None:
                await self._steps.step(looker, of)
            if anyio.current_time() >= self._save_at:
                await self.save()

    async def _finish(self) -> None:
        """Ends it when nothing more is to be compared: failed, if nothing could be."""
        collections = self.record.collections.values()
        if reason := none_readable(collections, self.record.handler):
            await self.end(VerificationState.FAILED, reason)
        else:
            await self.end(VerificationState.DONE)

    def _refuse_left_out(self) -> None:
        """Ends collections of which the handler gets only some changes since a reload."""
        routed = self._followed.routed
        for of in self.record.collections.values():
            if routed and not of.is_over and not is_copied(routed, of.database, of.collection):
                self.findings.update(replace(of, phase=Phase.REFUSED, note=NOT_COPIED))

    async def _replanned(self) -> bool:
        """Adds what took the place of collections that are gone; returns whether there is any."""
        known, routed = self.record.collections, self._followed.routed
        watcher = self._followed.watcher
        if watcher is None or routed is None:
            raise Unavailable("the scope is not followed here now")
        if self.record.request.keys or all(
            one.phase is not Phase.DROPPED for one in known.values()
        ):
            return False
        try:
            scope, request = watcher.plan.scope, self.record.request
            collections = await planned(self._source.server, scope, request, routed)
        except NothingToRead:
            return False
        new = {
            name: one
            for name, one in collections.items()
            if name not in known
            or known[name].uuid != one.uuid
            or known[name].phase is Phase.DROPPED
        }
        for name, one in new.items():
            self.findings.forget(name)
            self.findings.update(one)
        return any(not one.is_over for one in new.values())


def _is_final(error: CommandFailed) -> bool:
    """Whether the server will refuse the same again."""
    return is_refusal(error) and error.code not in ACCESS
