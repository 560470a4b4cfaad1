"""What the service logs in a run: counted for the report, and kept for the seed that failed."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import structlog

if TYPE_CHECKING:
    from tests.simulation.world import World


class Logs:
    """``entries``: everything in order. A lost lease is a reason why changes may come again."""

    def __init__(self, began: float) -> None:
        self.began = began
        self.entries: list[MutableMapping[str, Any]] = []
        self.counts: Counter[str] = Counter()
        self.world: World | None = None

    @contextmanager
    def captured(self) -> Iterator[None]:
        """While the block runs, everything that is logged comes here."""
        processors = structlog.get_config()["processors"]  # the list that bound loggers share
        before = list(processors)
        processors[:] = [self._take]
        try:
            yield
        finally:
            processors[:] = before

    def _take(self, logger: Any, method: str, entry: MutableMapping[str, Any]) -> Any:
        entry["after"] = round(time.time() - self.began, 3)
        self.entries.append(entry)
        name = entry["event"]
        if not name.startswith("simulation."):
            more = f" {entry['state']}" if name == "watcher.entered" else ""
            self.counts[f"log: {name}{more}"] += 1
        if name == "lease.lost" and self.world is not None:
            self.world.reasons.note("a lost lease")
            for each in self.world.find(entry["scope"]).all:
                each.claimed = max(each.claimed, entry["epoch"] + 1)
        raise structlog.DropEvent
