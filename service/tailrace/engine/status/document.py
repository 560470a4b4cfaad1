"""The status of a scope as the JSON of ``/status``."""

from typing import Any

from tailrace.engine.status.lag import iso
from tailrace.engine.status.snapshot_status import described
from tailrace.engine.status.status import Status
from tailrace.model import Position


def status_document(status: Status) -> dict[str, Any]:
    """For ``/status``: JSON types; tokens as digests."""
    watermark, saved, last = status.shown, status.checkpoint, status.errors.last
    lease = status.lease()
    return {
        "state": status.state.value,
        "reason": status.explanation,
        "since": status.since.isoformat(),
        "follows": str(status.scope),
        "kind": status.scope.kind,
        "position": _position(watermark.position) if watermark else None,
        "checkpoint": saved
        and {
            **_position(saved.position),
            "epoch": saved.epoch,
            "sequence": saved.sequence,
            "saved_at": saved.saved_at.isoformat(),
        },
        "unsaved_since": iso(status.saving.failing_since),
        "lag_seconds": status.lags,
        "in_flight": {
            "events": watermark.events if watermark else 0,
            "bytes": watermark.size if watermark else 0,
        },
        "last_round_trip": iso(status.stream.answered_at),
        "resumes": status.stream.resumes.total(),
        "restarts": status.restarts,
        "events": status.events,
        "rows": status.rows,
        "handlers": {
            name: {
                **each.outcomes,
                "retries": each.retries,
                "overdue": each.overdue,
                "waiting": each.waiting,
                "down_since": iso(each.down_since),
                "down_cause": each.down_cause or None,
                "call_since": iso(each.call_since),
                "call": each.call or None,
            }
            for name, each in status.recorders.items()
        },
        "snapshot": described(status.handled_snapshot, status.obstacle),
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


def _position(position: Position) -> dict[str, Any]:
    """``single_changes``: how many later changes are handled, too."""
    token = position.token
    return {
        "kind": position.kind.value,
        "token": token.digest if token else None,
        "cluster_time": iso(position.cluster_time),
        "single_changes": len(position.handled),
    }
