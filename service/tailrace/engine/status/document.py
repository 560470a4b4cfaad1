"""The status of a scope as the JSON of ``/status``."""

from collections.abc import Mapping, Sequence
from typing import Any

from tailrace.engine.status.freshness import freshness_document
from tailrace.engine.status.gauges import (
    in_flight,
    last_round_trip,
    last_saved,
    streams,
    unsaved_since,
)
from tailrace.engine.status.lag import iso
from tailrace.engine.status.scope_snapshot import scope_snapshot
from tailrace.engine.status.snapshot_status import described
from tailrace.engine.status.status import Status
from tailrace.engine.status.subscription_state import SubscriptionState, subscription_state
from tailrace.model import Position
from tailrace.model.position import earliest
from tailrace.observe.handler_recorder import HandlerRecorder


def status_document(status: Status) -> dict[str, Any]:
    """Of a scope, for ``/status``: JSON types; tokens as digests."""
    saved, last, counts = last_saved(status), status.errors.last, status.counts
    lease, apart = status.lease(), status.apart()
    events, size = in_flight(status)
    snapshot = described(scope_snapshot(status), status.obstacle)
    return {
        "state": status.state.value,
        "reason": status.explanation,
        "since": status.since.isoformat(),
        "follows": str(status.scope),
        "kind": status.scope.kind,
        "position": _position(_last([each.position() for each in status.courses])),
        "streams": streams(status),
        "checkpoint": saved
        and {
            **(_position(saved.position) or {}),
            "epoch": saved.epoch,
            "sequence": saved.sequence,
            "saved_at": saved.saved_at.isoformat(),
        },
        "unsaved_since": iso(unsaved_since(status)),
        "lag_seconds": status.lags,
        "in_flight": {"events": events, "bytes": size},
        "last_round_trip": iso(last_round_trip(status)),
        "resumes": counts.resumes.total(),
        "restarts": counts.restarts,
        "events": counts.events,
        "rows": counts.rows,
        "handlers": {
            name: _handler(name, each, apart.get(name, status), name in apart, snapshot)
            for name, each in status.recorders.items()
        },
        "snapshot": snapshot,
        "lease": {"owner": lease.owner, "epoch": lease.epoch, "held": lease.held}
        if lease
        else None,
        "reported": lease
        and lease.report
        and {
            "by": lease.owner,
            "state": lease.report.state,
            "reason": lease.report.reason,
            "lag_seconds": lease.report.lag_seconds,
        },
        "last_error": last.message if last else None,
        "last_error_at": last.last_at if last else None,
        "errors": status.errors.documents(),
    }


def _handler(
    name: str,
    recorder: HandlerRecorder,
    status: Status,
    apart: bool,
    of_scope: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """A handler in a course with this status. Of a snapshot that is the scope's, too, the
    collections are not shown again."""
    state = subscription_state(status, apart=apart)
    watermark = status.shown.each.get(name) if status.shown is not None else None
    snapshot = described(status.snapshot_of(name), status.obstacle)
    if snapshot is not None and of_scope is not None and snapshot["id"] == of_scope["id"]:
        snapshot["collections"] = []
    return {
        **recorder.outcomes,
        "state": state.value,
        "reason": status.explanation if state is not SubscriptionState.ATTACHED else "",
        "since": status.since.isoformat(),
        "position": _position(status.position(name)),
        "lag_seconds": status.lags_of(name),
        "freshness": freshness_document(status, name),
        "in_flight": {
            "events": watermark.events if watermark is not None else 0,
            "bytes": watermark.size if watermark is not None else 0,
        },
        "snapshot": snapshot,
        "columns": {} if recorder.columns is None else recorder.columns(),
        "retries": recorder.retries,
        "overdue": recorder.overdue,
        "waiting": recorder.waiting,
        "down_since": iso(recorder.down_since),
        "down_cause": recorder.down_cause or None,
        "call_since": iso(recorder.call_since),
        "call": recorder.call or None,
    }


def _last(positions: Sequence[Position | None]) -> Position | None:
    """The position of the handlers that stand last."""
    known = [each for each in positions if each is not None]
    return earliest(known, lambda each: each) if known else None


def _position(position: Position | None) -> dict[str, Any] | None:
    """``single_changes``: how many later changes are handled, too."""
    if position is None:
        return None
    token = position.token
    return {
        "kind": position.kind.value,
        "token": token.digest if token else None,
        "cluster_time": iso(position.cluster_time),
        "single_changes": len(position.handled),
    }
