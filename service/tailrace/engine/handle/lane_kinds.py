"""The lane of each kind of handler."""

from collections.abc import Callable

from tailrace.engine.handle.batch_lane import BatchLane
from tailrace.engine.handle.commit_delivery import CommitDelivery
from tailrace.engine.handle.commit_lane import CommitLane
from tailrace.engine.handle.delivery import Delivery
from tailrace.engine.handle.document_lanes import DocumentLanes
from tailrace.engine.handle.key_lanes import KeyLanes
from tailrace.engine.handle.lane import Lane
from tailrace.engine.ports import PerEvent
from tailrace.engine.position.handled_before import HandledBefore
from tailrace.engine.position.watermark import Watermark
from tailrace.event import ChangeEvent


def lane_of(
    delivery: Delivery,
    wants: Callable[[ChangeEvent], bool] | None,
    watermark: Watermark,
    before: HandledBefore | None,
    most: int,
) -> Lane:
    """The handler's lane, by the kind of its calls and by their order; ``most`` calls at once.

    ``before`` removes the events that the handler has already.
    """
    handler, snapshot = delivery.handler, watermark.position.snapshot
    rows = set(snapshot.handled) if snapshot is not None else set()
    workers = min(handler.calls.concurrency, most)
    if isinstance(handler.calls, PerEvent):
        return DocumentLanes(delivery, wants, watermark, before, rows, workers=workers)
    if isinstance(delivery, CommitDelivery):
        return CommitLane(delivery, wants, watermark, before, rows)
    if handler.calls.concurrency > 1:
        return KeyLanes(delivery, wants, watermark, before, rows, workers=workers)
    return BatchLane(delivery, wants, watermark, before, rows)
