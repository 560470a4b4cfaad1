"""Takes the position that an operator wants as the handlers' own, between two runs."""

from collections.abc import Sequence
from dataclasses import replace

import structlog
from bson.timestamp import Timestamp

from tailrace.engine.checkpoint_claim import CheckpointClaim, as_former
from tailrace.engine.plan.scope_plan import Runtime
from tailrace.engine.ports import RunIdentity
from tailrace.model import Checkpoint, Position
from tailrace.model.desired_state import DesiredHandler, DesiredState
from tailrace.model.gap import SET_ASIDE, Gap
from tailrace.model.subscription import Subscription


def to_move(
    desired: DesiredState | None, handlers: Sequence[str], claim: CheckpointClaim
) -> list[str]:
    """The handlers that an operator wants elsewhere, and that have not moved."""
    if desired is None:
        return []
    return [name for name in handlers if desired.of(name).seek_generation > claim.observed_by(name)]


async def seek(
    desired: DesiredState,
    handlers: Sequence[str],
    before: Checkpoint | None,
    claim: CheckpointClaim,
    identity: RunIdentity,
    runtime: Runtime,
) -> Checkpoint:
    """Saves the desired position as that of the handlers; returns the checkpoint.

    First it notes the positions that are replaced, and the gap if changes are skipped that were
    never handed over. After a crash in between, both are stored again, as the same records. Once
    the checkpoint is saved, they have moved. Raises :class:`tailrace.errors.CheckpointError`.
    """
    former: Sequence[Checkpoint] = ()
    if before is not None:
        await runtime.desired_states.note(as_former(before))
        former = await runtime.desired_states.positions(claim.scope)
    changed: dict[str, Subscription] = {}
    gaps: dict[Gap, list[str]] = {}
    for name in handlers:
        wish, at = desired.of(name), before.of(name) if before is not None else None
        assert wish.seek is not None  # noqa: S101 - the caller has looked
        if at is not None and (gap := _gap(desired, wish, furthest(name, at, former))) is not None:
            gaps.setdefault(gap, []).append(name)
        changed[name] = _moved(desired, wish, at, identity.fingerprint)
    for gap, missed in gaps.items():
        some = None if set(missed) >= set(claim.handlers) else tuple(missed)
        await runtime.store.record_gap(replace(gap, handlers=some))
    after = await claim.save(runtime.store, identity, changed)
    for name, subscription in changed.items():
        at = before.of(name) if before is not None else None
        structlog.get_logger().info(
            "scope.sought",
            scope=claim.scope,
            handler=name,
            by=desired.by,
            **{"from": at and str(at.position.start_point)},
            to=str(subscription.position.start_point),
        )
    return after


def _moved(
    desired: DesiredState, wish: DesiredHandler, before: Subscription | None, current: str
) -> Subscription:
    assert wish.seek is not None  # noqa: S101 - the caller has looked
    here = before.position if before is not None else None
    position = replace(
        wish.seek,
        stored="",
        chosen=True,
        handled=frozenset(),
        until=None,
        snapshot=here.snapshot if here is not None else None,
        started=_started(here, wish.seek),
        reread=here.reread_from(wish.seek.cluster_time, desired.at) if here is not None else {},
    )
    return Subscription(position, wish.fingerprint or current, wish.seek_generation)


def furthest(handler: str, now: Subscription, former: Sequence[Checkpoint]) -> Position:
    """The latest position of a handler, as far as they are kept: what is not after it is no gap.

    Without a name: of the one that stood last.
    """
    if now.position.cluster_time is None:
        return now.position
    subscriptions = [each.of(handler) if handler else each.last for each in former]
    of_it = [one.position for one in subscriptions if one is not None]
    known = [position for position in of_it if position.cluster_time is not None]
    return max([now.position, *known], key=lambda at: at.cluster_time or Timestamp(0, 0))


def _gap(desired: DesiredState, wish: DesiredHandler, reached: Position) -> Gap | None:
    """The changes that are skipped, as of the desired state; ``None`` if none are."""
    after = wish.seek
    assert after is not None  # noqa: S101 - the caller has looked
    since, until = reached.cluster_time, after.cluster_time
    if wish.set_aside:
        reason = f"{desired.by} set aside the {wish.set_aside}"
        return Gap(desired.scope, after.token, until, until, reason, SET_ASIDE, desired.at)
    if since is None or until is None or until <= since:
        return None
    reason = f"{desired.by} moved it forward"
    return Gap(desired.scope, reached.token, since, until, reason, "seek", desired.at)


def _started(before: Position | None, after: Position) -> Timestamp | None:
    """From when on changes have come, or come now: what is moved keeps what it has had."""
    times = [before.started if before is not None else None, after.cluster_time]
    return min((each for each in times if each is not None), default=None)
