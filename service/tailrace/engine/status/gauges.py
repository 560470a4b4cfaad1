"""The values of a scope and of its handlers for one scrape."""

from collections.abc import Sequence

from tailrace.engine.status.freshness import breached
from tailrace.engine.status.scope_snapshot import scope_snapshot
from tailrace.engine.status.snapshot_status import documents_read
from tailrace.engine.status.status import Status
from tailrace.engine.status.subscription_state import subscription_state
from tailrace.model import Checkpoint
from tailrace.observe.scrape import ScopeGauges, SubscriptionGauges


def gauges(status: Status) -> ScopeGauges:
    """Of the scope whose shared course has this status."""
    apart, checkpoint, lease = status.apart(), last_saved(status), status.lease()
    events, size = in_flight(status)
    return ScopeGauges(
        state=status.state.value,
        in_flight_events=events,
        in_flight_bytes=size,
        lags=status.lags,
        checkpoint_saved_at=checkpoint.saved_at.timestamp() if checkpoint else None,
        last_round_trip=last_round_trip(status),
        resumes=status.counts.resumes,
        snapshot=documents_read(scope_snapshot(status)),
        lease=(lease.held, lease.epoch) if lease else None,
        streams=streams(status),
        subscriptions={
            name: SubscriptionGauges(
                subscription_state(apart.get(name, status), apart=name in apart).value,
                apart.get(name, status).lags_of(name),
                breached(apart.get(name, status), name),
            )
            for name in status.recorders
        },
    )


def streams(status: Status) -> int:
    """How many streams of the scope are open."""
    return sum(each.find is not None for each in _courses(status))


def in_flight(status: Status) -> tuple[int, int]:
    """The events of the scope that are in flight, and their bytes."""
    shown = [each.shown for each in _courses(status) if each.shown is not None]
    return sum(each.events for each in shown), sum(each.size for each in shown)


def last_saved(status: Status) -> Checkpoint | None:
    """The checkpoint of the scope: it is one record, which every course saves."""
    known = [each.checkpoint for each in _courses(status) if each.checkpoint is not None]
    return max(known, key=lambda each: each.version, default=None)


def last_round_trip(status: Status) -> float | None:
    """When the server last answered, of the open streams the one that has waited for longest; as a
    Unix time."""
    reading = [each.stream.answered_at for each in _courses(status) if each.find is not None]
    return min(filter(None, reading), default=status.stream.answered_at)


def unsaved_since(status: Status) -> float | None:
    """Since when a position of the scope cannot be saved, as a Unix time."""
    since = [each.saving.failing_since for each in _courses(status)]
    return min(filter(None, since), default=None)


def _courses(status: Status) -> Sequence[Status]:
    """Every course of the scope that may read a stream, those of replays, too."""
    return [*status.courses, *status.replays().values()]
