"""Changes what is wanted of scopes: in the store, for the process that follows a scope."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import anyio

from tailrace.control.outcome import ActionRefused
from tailrace.errors import CheckpointCorrupt, CheckpointError, describe
from tailrace.model.desired_state import DesiredHandler, DesiredState

if TYPE_CHECKING:
    from tailrace.engine import DesiredStateStore, Watcher

_ATTEMPTS = 5
"""How often a change is tried that meets another operator's, or has no answer."""

SECONDS = 20.0
"""How long a change is tried in all: less than a client waits for the answer."""


@dataclass(frozen=True, slots=True)
class StoredState:
    """What the store has now, and whether it had the same before."""

    desired: DesiredState
    repeated: bool = False


async def store_desired_state(
    states: DesiredStateStore,
    scope: str,
    by: str,
    changes: Mapping[str, Any],
    handler: str | None = None,
) -> StoredState:
    """Stores the desired state with these fields changed, of a handler or of all. The same change
    twice is one.

    Raises :class:`ActionRefused` if others change it at the same time, the store fails, or a
    handler is to continue alone in a scope that is paused.
    """
    failure, tried = "", None
    with anyio.move_on_after(SECONDS) as limit:
        for _ in range(_ATTEMPTS):
            try:
                if tried is None:
                    last = await states.load(scope) or _none(scope, by)
                    if handler is not None and last.paused and "paused" in changes:
                        if changes["paused"]:
                            return StoredState(last, repeated=True)
                        raise _paused(last)
                    desired = _next(last, by, changes, handler)
                    changed = replace(desired, generation=last.generation, by=last.by, at=last.at)
                    if changed == last:
                        return StoredState(last, repeated=True)
                    tried = desired
                if await states.write(tried):
                    return StoredState(tried)
                tried = None
            except CheckpointCorrupt as error:  # a second try reads the same
                raise ActionRefused(409, str(error)) from error
            except CheckpointError as error:
                failure = describe(error)
    if limit.cancelled_caught:
        failure = failure or f"no answer from the store within {SECONDS:g} s"
    if not failure:
        raise ActionRefused(
            409, f"scope {scope!r}: another operator is changing this scope; try again"
        )
    if tried is None:
        raise ActionRefused(503, f"nothing was changed: {failure}. Try again when it answers")
    message = f"the store did not confirm it: {failure}. It is done if /status shows it"
    raise ActionRefused(503, f"{message}; try again when the store answers")


def subject_text(scope: str, handler: str | None) -> str:
    """What a change is about, for people."""
    return f"scope {scope!r}" if handler is None else f"handler {handler!r} of scope {scope!r}"


async def apply_change(
    states: DesiredStateStore,
    watcher: Watcher,
    by: str,
    changes: Mapping[str, Any],
    handler: str | None = None,
) -> StoredState:
    """As :func:`store_desired_state`, for a scope that may be followed here: then at once."""
    stored = await store_desired_state(states, watcher.name, by, changes, handler)
    watcher.apply(stored.desired)
    return stored


def _none(scope: str, by: str) -> DesiredState:
    """Stands for the desired state of a scope that has none.

    Its record may have been removed by hand. Then the next generation must still be greater than
    those that the checkpoint and the processes know, which count up from a time before.
    """
    now = datetime.now(UTC)
    return DesiredState(scope, int(now.timestamp() * 1000), paused=False, by=by, at=now)


def _paused(desired: DesiredState) -> ActionRefused:
    message = f"scope {desired.scope!r} is paused as a whole, by {desired.by}"
    help_ = f"'tailrace scopes resume {desired.scope}' continues it, with all its handlers"
    return ActionRefused(409, f"{message}: {help_}")


def _next(
    last: DesiredState, by: str, changes: Mapping[str, Any], handler: str | None
) -> DesiredState:
    desired = replace(last, generation=last.generation + 1, by=by, at=datetime.now(UTC))
    changed = dict(changes)
    if "seek" in changes:
        changed["seek_generation"] = desired.generation
    if (wanted := changes.get("snapshot")) is not None:
        before, since = (last if handler is None else last.of(handler)).snapshot, desired.generation
        if before is not None and before.id == wanted.id:
            since = before.since
        changed["snapshot"] = replace(wanted, since=since)
        changed["snapshot_generation"] = desired.generation
    if "replay" in changes:
        changed["replay_generation"] = desired.generation
    if handler is None:  # what is wanted of all takes the place of what was wanted of single ones
        nothing = {name: getattr(DesiredHandler(), name) for name in changed}
        of_handlers = {name: replace(own, **nothing) for name, own in last.handlers.items()}
        desired = replace(desired, **changed)
    else:
        own = replace(last.handlers.get(handler, DesiredHandler()), **changed)
        of_handlers = {**last.handlers, handler: own}
    wanted = {name: own for name, own in of_handlers.items() if own != DesiredHandler()}
    return replace(desired, handlers=wanted)
