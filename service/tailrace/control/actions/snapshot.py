"""Starts, pauses, resumes and cancels snapshots: for whichever process follows the scope."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from tailrace.control.action import Action
from tailrace.control.bodies import HandlerQuery, Metavar
from tailrace.control.outcome import ActionRefused, Done

if TYPE_CHECKING:
    from tailrace.control.control import Control
    from tailrace.engine.plan.row_source import RowSource
    from tailrace.model.snapshot import SnapshotRequest


class SnapshotBody(HandlerQuery):
    """Starts, pauses, resumes or cancels the snapshot of a scope, or of one handler."""

    action: Literal["start", "pause", "resume", "cancel"] = "start"
    """What to do with the scope's snapshot."""
    collections: Annotated[list[str], Metavar("NAME")] = Field(default=[], max_length=1000)
    """`start`: only these collections; without any, all of the scope."""
    filter: Annotated[str, Metavar("JSON")] = ""
    """`start`: only documents that match this filter, in Extended JSON."""


async def _snapshot(control: Control, scope: str, body: SnapshotBody, by: str) -> Done:
    from tailrace.control.desired_state import apply_change
    from tailrace.control.follower import require_here
    from tailrace.control.snapshots import require_handled, rows_begun, start_of

    subject, action = control.subject(scope, body.handler), body.action
    watcher = subject.watcher
    require_here(watcher)
    if subject.is_halted:
        message = f"{subject} is halted, and its snapshot with it: restart it first"
        raise ActionRefused(409, message)
    calls: dict[str, Callable[[RowSource], SnapshotRequest | str]] = {
        "start": lambda rows: start_of(subject, rows, tuple(body.collections), body.filter),
        "pause": lambda rows: rows.pause(paused=True),
        "resume": lambda rows: rows.pause(paused=False),
        "cancel": lambda rows: rows.cancel(),
    }
    seen = subject.status.handled_snapshot
    before = f"snapshot {seen.progress.id} {seen.progress.state.value}" if seen else "none"
    # A request is made of what is under way, and stored.
    async with control.locks[f"snapshot of {scope}"]:
        try:
            wanted = calls[action](rows_begun(subject, action))
        except ValueError as error:
            raise ActionRefused(400, str(error)) from error
        if isinstance(wanted, str):
            raise ActionRefused(409, wanted)
        if action == "start":
            require_handled(subject)
        changes = {"snapshot": wanted}
        await apply_change(control.desired_states, watcher, by, changes, subject.handler)
    return Done(f"{subject}: {action} of its snapshot is accepted", before, action)


SNAPSHOT = Action("POST", "/scopes/{name}/snapshot", SnapshotBody, _snapshot)
