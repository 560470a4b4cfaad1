"""Repairs rows that a verification found to differ: a snapshot brings just these keys again.

They come in the stream of that handler alone, between its changes, so no change of the same
document is lost or set back: a document as a row, and a key without a document as a delete.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import anyio

from tailrace.control.outcome import ActionRefused, Done

if TYPE_CHECKING:
    from tailrace.control.control import Control
    from tailrace.control.subject import Subject
    from tailrace.engine import Routed, Watcher
    from tailrace.model.verification import Verification

_LOOK_SECONDS = 0.05
_MOST_NAMED = 5
GOING_ON = ("waiting", "reading", "paused", "halted")
"""The states of the snapshot of a repair in which it may still bring something."""


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """What comes again to a handler: the documents with ``keys`` keys of ``verification``, and all
    of ``collections``, whose differences are not all listed.

    ``unusable``: the keys of rows that no document can have. ``untaken``: the operations that the
    routes of the handler do not let through, with what they mean.
    """

    handler: str
    verification: str
    keys: int
    collections: tuple[str, ...]
    unusable: tuple[str, ...]
    untaken: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether nothing comes."""
        return not (self.keys or self.collections)

    @property
    def filter(self) -> str:
        """Stands for the filter of a snapshot of keys alone, which proves nothing of others."""
        if self.collections:
            return ""
        return f'{{"$comment": "what differs by verification {self.verification}"}}'

    @property
    def text(self) -> str:
        """For people."""
        parts = []
        if self.keys:
            parts.append(f"{self.keys:,} keys come again to {self.handler}")
        if self.collections:
            names = ", ".join(self.collections)
            parts.append(
                f"all of {names} comes again to {self.handler}, of which more rows differ than "
                "are listed"
            )
        if self.unusable:
            keys = ", ".join(self.unusable[:_MOST_NAMED])
            more = f" and {left:,} more" if (left := len(self.unusable) - _MOST_NAMED) > 0 else ""
            parts.append(f"no document can have these keys, so remove their rows: {keys}{more}")
        return "; ".join(filter(None, [*parts, self.untaken]))

    def document(self) -> Mapping[str, Any]:
        """In JSON types."""
        return {
            "handler": self.handler,
            "keys": self.keys,
            "collections": list(self.collections),
            "not_repairable": list(self.unusable),
        }


def repair_plan(record: Verification, routed: Routed | None = None) -> RepairPlan | None:
    """How to repair what a verification has found; ``None`` if nothing differs."""
    if not record.counts.differences:
        return None
    unlisted = record.unlisted
    listed = [one for one in record.keys if one.collection not in unlisted]
    unusable = tuple(f"{one.collection} {one.key}" for one in record.keys if one.id is None)
    keys = len({(one.collection, one.id) for one in listed if one.id is not None})
    untaken = _untaken(record, routed) if routed is not None else ""
    return RepairPlan(record.handler, record.id, keys, unlisted, unusable, untaken)


def _untaken(record: Verification, routed: Routed) -> str:
    """What the routes of the handler take no events for."""
    from tailrace.verify.followed import takes

    lost = []
    for operation, what in (("read", "documents"), ("delete", "deletes of rows")):
        of = [one for one in record.collections.values() if one.counts.differences]
        if not all(takes(routed, operation, one.database, one.collection) for one in of):
            lost.append(f"the routes of {routed.name} take no {operation!r}, so no {what} come")
    return "; ".join(lost)


async def repair(control: Control, subject: Subject, by: str, *, dry_run: bool) -> Done:
    """Begins the snapshots that repair what the last verifications have found."""
    watcher = subject.watcher
    records = await control.verifications.last(watcher.name, subject.handlers)
    if any(not record.is_over for record in records):
        raise ActionRefused(409, f"{subject} is being verified: wait for its end")
    routed = {one.name: one for one in watcher.plan.routed}
    plans = {
        record.handler: plan
        for record in records
        if (plan := repair_plan(record, routed.get(record.handler))) is not None
    }
    if not plans:
        raise ActionRefused(409, f"{subject}: its last verification found no difference")
    message = "; ".join(plan.text for plan in plans.values())
    details: dict[str, Any] = {"repairs": [dict(plan.document()) for plan in plans.values()]}
    if dry_run:
        return Done(f"{message}. Dry run: nothing was read", details=details)
    begun = [(record, plans[record.handler]) for record in records if record.handler in plans]
    if all(plan.is_empty for _, plan in begun):
        raise ActionRefused(409, f"nothing can be repaired: {message}")
    snapshots = await _begin(control, subject, begun, by)
    for told in details["repairs"]:
        told["snapshot"] = snapshots.get(told["handler"])
    return Done(message, "", "repaired", details)


async def _begin(
    control: Control, subject: Subject, plans: Sequence[tuple[Verification, RepairPlan]], by: str
) -> Mapping[str, str]:
    """By handler, the id of the snapshot that repairs it."""
    from tailrace.control.desired_state import apply_change
    from tailrace.control.snapshots import rows_begun, start_of
    from tailrace.control.subject import Subject
    from tailrace.errors import CheckpointError, describe

    watcher, begun = subject.watcher, dict[str, str]()
    async with control.locks[f"snapshot of {watcher.name}"]:
        for record, plan in plans:
            if plan.is_empty:
                continue
            of = Subject(watcher, plan.handler)
            if of.is_halted:
                raise ActionRefused(409, f"{of} is halted: restart it first")
            if of.is_paused(plan.handler):
                raise ActionRefused(409, f"{of} is paused: resume it first")
            await _wait_for_last(of, control.patience_seconds)
            wanted = start_of(of, rows_begun(of, "start"), plan.collections, plan.filter)
            if isinstance(wanted, str):
                raise ActionRefused(409, wanted)
            wanted = replace(wanted, verification=record.id)
            try:
                await control.verifications.repaired_by(record, wanted.id)
            except CheckpointError as error:
                raise ActionRefused(503, describe(error)) from error
            changes = {"snapshot": wanted}
            await apply_change(control.desired_states, watcher, by, changes, plan.handler)
            begun[plan.handler] = wanted.id
    return begun


async def _wait_for_last(of: Subject, seconds: float) -> None:
    """Returns when the last snapshot is over. Raises :class:`ActionRefused` after this time."""
    from tailrace.control.snapshots import require_handled

    with anyio.move_on_after(seconds):
        while True:
            with suppress(ActionRefused):
                require_handled(of)
                return
            await anyio.sleep(_LOOK_SECONDS)
    require_handled(of)


def repair_state(subject: Subject, record: Verification) -> Mapping[str, str] | None:
    """How far the snapshot is that repairs a handler: ``state`` (``waiting``, ``reading``,
    ``paused``, ``halted``, ``done``, ``cancelled`` or ``replaced``) with a ``reason``.

    ``None`` if none was asked for.
    """
    from tailrace.verify.followed import FollowedHandler

    if not record.repair or subject.handler is None:
        return None
    status, id, watcher = subject.status, record.repair, subject.watcher
    seen = status.snapshot_of(subject.handler)
    # Until a run has begun, only the checkpoint says how far it is.
    has = seen.progress if seen is not None else watcher.claim.snapshot_of(subject.handler)
    followed = FollowedHandler(record.scope, subject.handler, lambda _: watcher)
    told = {"snapshot": id, "state": "waiting", "reason": ""}
    is_ours = has is not None and has.id == id
    if has is not None and is_ours and has.over:
        return {**told, "state": has.state.value, "reason": has.note}
    if not (is_ours or followed.awaits(id) or _is_starting(watcher)):
        reason = "it has not begun, or another one has taken its place: verify again"
        return {**told, "state": "replaced", "reason": reason}
    if subject.is_halted:
        return {**told, "state": "halted", "reason": status.explanation}
    if has is None or not is_ours:
        return {**told, "reason": status.explanation}
    trouble = seen.trouble if seen is not None else ""
    state = "paused" if has.paused else "reading"
    return {**told, "state": state, "reason": trouble or status.explanation}


def _is_starting(watcher: Watcher) -> bool:
    """Whether this process follows the scope, and does not know yet what is wanted of it."""
    from tailrace.engine import WatcherState

    return not watcher.scope.desired.is_loaded and watcher.status.state is not WatcherState.STANDBY
