"""Repairs rows that a verification found to differ: a snapshot brings their documents again.

Its rows come in the stream of that handler alone, between its changes, so no change of the same
document is lost or set back. A row without a document goes with the end of a snapshot of its whole
collection, as docs/snapshots.md says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio

from tailrace.control.outcome import ActionRefused, Done

if TYPE_CHECKING:
    from tailrace.control.control import Control
    from tailrace.control.subject import Subject
    from tailrace.model.verification import Verification

_LOOK_SECONDS = 0.05
_MOST_KEYS = 1000
"""For more documents, their whole collections are read: each checkpoint holds the filter."""


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """What comes again to a handler: all documents of ``collections``, or those of a ``filter``.

    ``rows``: so many rows differ.
    """

    handler: str
    rows: int
    collections: tuple[str, ...]
    filter: str

    @property
    def text(self) -> str:
        """For people."""
        names = ", ".join(self.collections)
        if self.filter:
            return f"{self.rows:,} documents of {names} come again to {self.handler}"
        what = f"{self.rows:,} rows of {self.handler} are repaired"
        return f"{what} by a snapshot of {names}, whose end removes rows without a document"

    def document(self) -> Mapping[str, Any]:
        """In JSON types."""
        return {
            "handler": self.handler,
            "rows": self.rows,
            "collections": list(self.collections),
            "filter": self.filter,
        }


def repair_plan(record: Verification) -> RepairPlan | None:
    """How to repair what a verification has found; ``None`` if nothing differs."""
    from tailrace.event.document_key import is_like_pattern
    from tailrace.model.verification import Kind

    counts = record.counts
    if not counts.differences:
        return None
    names = tuple(name for name, each in record.collections.items() if each.counts.differences)
    keys = [each for each in record.keys if each.kind is not Kind.TOO_MANY]
    by_key = len(keys) == counts.differences <= _MOST_KEYS
    patterns = [each.key for each in keys if each.id is None or is_like_pattern(each.id.raw)]
    if not by_key or patterns:
        return RepairPlan(record.handler, counts.differences, names, "")
    chosen = ", ".join(dict.fromkeys(each.key for each in keys))
    return RepairPlan(record.handler, len(keys), names, f'{{"_id": {{"$in": [{chosen}]}}}}')


async def repair(control: Control, subject: Subject, by: str, *, dry_run: bool) -> Done:
    """Begins the snapshots that repair what the last verifications have found."""
    scope = subject.watcher.name
    records = await control.verifications.last(scope, subject.handlers)
    if any(not record.is_over for record in records):
        raise ActionRefused(409, f"{subject} is being verified: wait for its end")
    plans = [plan for record in records if (plan := repair_plan(record)) is not None]
    if not plans:
        raise ActionRefused(409, f"{subject}: its last verification found no difference")
    message = "; ".join(plan.text for plan in plans)
    details: dict[str, Any] = {"repairs": [dict(plan.document()) for plan in plans]}
    if dry_run:
        return Done(f"{message}. Dry run: nothing was read", details=details)
    snapshots = await _begin(control, subject, plans, by)
    for told, snapshot in zip(details["repairs"], snapshots, strict=True):
        told["snapshot"] = snapshot
    return Done(message, "", "repaired", details)


async def _begin(
    control: Control, subject: Subject, plans: Sequence[RepairPlan], by: str
) -> list[str]:
    from tailrace.control.actions.snapshot import rows_of
    from tailrace.control.desired_state import request_snapshot
    from tailrace.control.subject import Subject

    watcher, begun = subject.watcher, list[str]()
    async with control.locks["snapshot"]:
        for plan in plans:
            of = Subject(watcher, plan.handler)
            if of.is_halted:
                raise ActionRefused(409, f"{of} is halted: restart it first")
            wanted = rows_of(of, "start").start(plan.collections, plan.filter)
            if isinstance(wanted, str):
                raise ActionRefused(409, wanted)
            await _wait_for_last(of, control.patience_seconds)
            await request_snapshot(control.desired_states, watcher, wanted, by, plan.handler)
            begun.append(wanted.id)
    return begun


async def _wait_for_last(of: Subject, seconds: float) -> None:
    """Returns when the last snapshot is over. Raises :class:`ActionRefused` after this time."""
    from tailrace.control.actions.snapshot import require_handled

    with anyio.move_on_after(seconds):
        while True:
            with suppress(ActionRefused):
                require_handled(of.status)
                return
            await anyio.sleep(_LOOK_SECONDS)
    require_handled(of.status)
