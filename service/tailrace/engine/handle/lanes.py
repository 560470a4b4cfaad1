"""Makes the lanes of a handler; how the handler is called selects their kind."""

from __future__ import annotations

from tailrace.engine.handle.batch_lane import BatchLane
from tailrace.engine.handle.commit_lane import CommitLane
from tailrace.engine.handle.delivery import Delivery
from tailrace.engine.handle.document_lanes import DocumentLanes
from tailrace.engine.handle.lane import Lane
from tailrace.engine.handle.router import Wants
from tailrace.engine.position.handled_before import HandledBefore
from tailrace.engine.position.watermark import Watermark


def lane_of(
    delivery: Delivery,
    wants: Wants | None,
    most_workers: int,
    watermark: Watermark,
    before: HandledBefore | None,
) -> Lane:
    """Lanes by document for single events; one lane for sequences, or for those that commit."""
    handler = delivery.handler
    if handler.on_events is None:
        workers = min(handler.concurrency, most_workers)
        return DocumentLanes(delivery, wants, workers, watermark, before)
    if handler.commit is None:
        return BatchLane(delivery, wants, watermark, before)
    return CommitLane(delivery, wants, watermark, before)
