"""A handler that takes its time as it is told, and lanes that tell what they did."""

from collections import Counter
from typing import Any

import anyio

from tailrace.engine.handle.document_lanes import DocumentLanes
from tailrace.event import ChangeEvent
from tests.unit.engine.changes import Document, Noting, delivery, line_of, number


class Probe:
    """A handler that takes its time as it is told, and notes who was inside together."""

    def __init__(self, pauses: list[int] | None = None) -> None:
        self.pauses = pauses or [0]
        self.begun: list[int] = []
        self.ended: list[int] = []
        self.inside: Counter[Any] = Counter()
        self.most = 0
        self.overlapping: list[Any] = []

    async def __call__(self, event: ChangeEvent) -> None:
        n = number(event)
        key = repr(event.document_key)
        if self.inside[key]:
            self.overlapping.append(key)
        self.begun.append(n)
        self.inside[key] += 1
        self.most = max(self.most, self.inside.total())
        for _ in range(self.pauses[n % len(self.pauses)]):
            await anyio.lowlevel.checkpoint()
        self.inside[key] -= 1
        self.ended.append(n)


class Lane:
    """Event lanes with what they report."""

    def __init__(self, handler: Any, workers: int = 8, wants: Any = None) -> None:
        self.watermark = Noting()
        self.finished = self.watermark.finished
        self.lanes = DocumentLanes(delivery(handler), wants, self.watermark, workers=workers)

    @property
    def opened(self) -> int:
        return self.watermark.begun

    async def run_all(self, documents: list[Document], batch_size: int = 64) -> None:
        """Feeds everything before the run, and closes."""
        self.lanes.feed(line_of(documents, batch_size))
        self.lanes.close()
        await self.lanes.run()
