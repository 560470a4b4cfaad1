"""The values of a scope and of its handlers for one scrape."""

from collections.abc import Sequence

from tailrace.engine.status.scope_snapshot import scope_snapshot
from tailrace.engine.status.snapshot_status import documents_read
from tailrace.engine.status.status import Status
from tailrace.engine.status.subscription_state import subscription_state
from tailrace.observe.scrape import ScopeGauges, SubscriptionGauges


def gauges(status: Status) -> ScopeGauges:
    """Of the scope whose shared course has this status."""
    apart, checkpoint, lease = status.apart(), status.checkpoint, status.lease()
    in_flight = [each.shown for each in _courses(status) if each.shown is not None]
    return ScopeGauges(
        state=status.state.value,
        in_flight_events=sum(each.events for each in in_flight),
        in_flight_bytes=sum(each.size for each in in_flight),
        lags=status.lags,
        checkpoint_saved_at=checkpoint.saved_at.timestamp() if checkpoint else None,
        last_round_trip=status.stream.answered_at,
        resumes=status.stream.resumes,
        snapshot=documents_read(scope_snapshot(status)),
        lease=(lease.held, lease.epoch) if lease else None,
        streams=streams(status),
        subscriptions={
            name: SubscriptionGauges(
                subscription_state(apart.get(name, status), apart=name in apart).value,
                apart.get(name, status).lags_of(name),
            )
            for name in status.recorders
        },
    )


def streams(status: Status) -> int:
    """How many streams of the scope are open."""
    return sum(each.find is not None for each in _courses(status))


def _courses(status: Status) -> Sequence[Status]:
    """Every course of the scope that may read a stream, those of replays, too."""
    return [*status.courses, *status.replays().values()]
