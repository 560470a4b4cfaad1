"""Verifications that begin by themselves, as ``verify`` of a route says; and what is shown of all.

A round is a verification of the whole scope. It begins when the last one has ended for so long,
which the stored verification remembers, or at once if there was none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import anyio
import structlog

from tailrace.engine import Watcher
from tailrace.errors import TailraceError, Unavailable, describe
from tailrace.model.verification import SCHEDULE, Proof, Verification, VerificationRequest
from tailrace.observe.metrics import Metrics
from tailrace.observe.scrape import ProofGauges
from tailrace.snapshot.plan import NothingToRead
from tailrace.verify.followed import routed_of
from tailrace.verify.planning import none_readable
from tailrace.verify.progress import status_document
from tailrace.verify.verifications import Key, Verifications

if TYPE_CHECKING:
    from tailrace.config.verification import VerificationSettings

_LOOK_SECONDS = 1.0
_RETRY = timedelta(minutes=1)
"""How long after a failure to begin the next try comes."""
_REST = timedelta(minutes=1)
"""How long the result of what an operator has asked for stays at least: he may wait for it."""
_PREPARING_SECONDS = 30.0
_LATE = 2
"""A proof may be so many times as old as a round is due after the last one."""


@dataclass(frozen=True, slots=True)
class _Postponed:
    """Why a round could not begin, and when that is tried again."""

    reason: str
    until: datetime


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(slots=True, eq=False)
class Rounds:
    """The rounds of a process. ``configured``: by scope and handler, what a reload may replace."""

    verifications: Verifications
    configured: Callable[[], Mapping[Key, VerificationSettings]]
    metrics: Metrics
    now: Callable[[], datetime] = _now
    _wanted: Mapping[Key, VerificationSettings] = field(default_factory=dict)
    """What is configured, as last looked at."""
    _first: dict[Key, datetime] = field(default_factory=dict)
    """When a handler was first seen to want rounds."""
    _postponed: dict[Key, _Postponed] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.metrics.proofs = self.gauges

    async def run(self) -> None:
        """Goes on with verifications, and begins rounds when they are due, until it is
        cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.verifications.run, name="verifications")
            while True:
                await self.look()
                await anyio.sleep(_LOOK_SECONDS)

    async def look(self) -> None:
        """Begins the rounds that are due now."""
        self._wanted = self.configured()
        for known in (self._first, self._postponed):
            for key in known.keys() - self._wanted.keys():
                del known[key]
        for key in [*self._wanted]:
            self._first.setdefault(key, self.now())
            if (watcher := self._ready(key)) is not None:
                await self._begin(key, watcher)

    def due(self, key: Key) -> datetime | None:
        """When the next round begins, which may be in the past; ``None`` without a schedule."""
        if (wanted := self._wanted.get(key)) is None:
            return None
        last = self.verifications.now(*key)
        now, every = self.now(), timedelta(seconds=wanted.every)
        due = self._first.get(key, now)
        if last is not None and last.proof.ended is not None:
            due = _later(last.proof.ended, every, now)
        if last is not None and last.ended is not None and not last.is_round:
            due = max(due, _later(last.ended, _REST, now))
        return due

    def _ready(self, key: Key) -> Watcher | None:
        """The watcher of a handler of which a round is due and may begin."""
        due, now = self.due(key), self.now()
        if not self._is_known(key):
            return None
        postponed, watcher = self._postponed.get(key), self.verifications.followed(*key).watcher
        if due is None or now < due or (postponed is not None and now < postponed.until):
            return None
        return None if self.verifications.running(*key) or self._waits_for(key) else watcher

    def _waits_for(self, key: Key) -> str:
        """Why a round does not begin, though nothing is wrong; empty if it may."""
        followed = self.verifications.followed(*key)
        last, snapshot = self.verifications.now(*key), followed.snapshot
        if not snapshot and last is not None and followed.awaits(last.repair):
            snapshot = last.repair
        if snapshot:
            return f"waiting for snapshot {snapshot} of the handler"
        return followed.obstacle

    async def _begin(self, key: Key, watcher: Watcher) -> None:
        """Begins a round. What prevents that is logged once, and shown."""
        settings = self._wanted[key]
        request = VerificationRequest(documents_per_second=settings.documents_per_second)
        try:
            async with self.verifications.locks[watcher.name]:
                if self.verifications.running(*key) is not None or self._waits_for(key):
                    return  # an operator was faster
                with anyio.fail_after(_PREPARING_SECONDS):
                    record = await self._prepared(watcher, key[1], request)
                await self.verifications.start(record)
        except _PREVENTS as error:
            reason, before = describe(error), self._postponed.get(key)
            self._postponed[key] = _Postponed(reason, self.now() + _RETRY)
            if before is None or before.reason != reason:
                log = structlog.get_logger().bind(scope=key[0], handler=key[1])
                log.warning("verification.postponed", reason=reason)
        else:
            self._postponed.pop(key, None)

    async def _prepared(
        self, watcher: Watcher, handler: str, request: VerificationRequest
    ) -> Verification:
        if (routed := routed_of(watcher, handler)) is None:
            raise Unavailable(f"scope {watcher.name!r} has no handler {handler!r} yet")
        if routed.handler.comparison is None or routed.handler.from_beginning:
            raise _CannotBeAsked(f"handler {handler!r} cannot be asked for its rows")
        record = await self.verifications.prepare(watcher, routed, request, SCHEDULE)
        if reason := none_readable(record.collections.values(), handler):
            raise _CannotBeAsked(reason)
        return record

    # --- what is shown of them, and of those that operators asked for ---------------------------

    def gauges(self) -> Mapping[Key, ProofGauges]:
        """For one scrape: of the handlers that are followed here and verified, or are to be."""
        return dict(self._gauges())

    def _gauges(self) -> Iterator[tuple[Key, ProofGauges]]:
        for key in {*self._wanted, *self.verifications.known()}:
            if not self._is_known(key):
                continue
            last, wanted = self.verifications.now(*key), self._wanted.get(key)
            proof = last.proof if last is not None else Proof()
            late = None
            if wanted is not None:
                since = proof.since or self._first.get(key, self.now())
                proven = proof.through.time if proof.through is not None else since.timestamp()
                late = proven + _LATE * wanted.every
            done = proof.through is not None
            yield (
                key,
                ProofGauges(
                    proof.compared,
                    proof.through.time if proof.through is not None else None,
                    proof.differences if done else None,
                    late,
                ),
            )

    def added_to(self, scopes: dict[str, Any]) -> dict[str, Any]:
        """The status of scopes with the verification of each handler."""
        for scope, of in scopes.items():
            for handler, shown in of["handlers"].items():
                shown["verification"] = self._document(scope, handler)
        return scopes

    def _document(self, scope: str, handler: str) -> Mapping[str, Any] | None:
        """``None`` if the handler is not followed here or cannot be asked."""
        key = scope, handler
        routed = self.verifications.followed(scope, handler).routed
        if routed is None:
            return None
        by_itself = routed.handler.comparison is not None and not routed.handler.from_beginning
        if not by_itself and key not in self._wanted and not self.verifications.now(*key):
            return None
        if not self._is_known(key):
            return status_document(None, "", None)
        run, postponed = self.verifications.running(scope, handler), self._postponed.get(key)
        trouble = run.trouble if run is not None else ""
        due = self.due(key) if run is None else None
        if run is None and due is not None and self.now() >= due:
            trouble = self._waits_for(key)
        if run is None and postponed is not None:
            trouble = postponed.reason
        return status_document(self.verifications.now(scope, handler), trouble, due)

    def _is_known(self, key: Key) -> bool:
        """Whether a handler is followed here, and its stored verifications are known."""
        followed = self.verifications.followed(*key)
        watcher = followed.watcher if followed.routed is not None else None
        return watcher is not None and self.verifications.has_adopted(watcher)


def _later(ended: datetime, span: timedelta, now: datetime) -> datetime:
    """When that is so long ago; now, if the clock was wrong then."""
    return ended + span if ended - now < span else now


class _CannotBeAsked(TailraceError):
    """Nothing of a handler can be compared as it is."""


_PREVENTS = (TailraceError, NothingToRead, OSError, TimeoutError)
"""Errors with which a round cannot begin now."""
