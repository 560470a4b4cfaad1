"""The growing file of events, read as it grows."""

from __future__ import annotations

import json
from pathlib import Path

from tailrace.demo.plan import MARKERS


class EventFile:
    """Counts the whole lines so far, and notices a marker among them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = 0
        self.markers: list[str] = []
        self._position = 0

    def read_on(self) -> int:
        """Reads what was added since the last time; says how many lines there are now."""
        if not self.path.exists():
            return 0
        with self.path.open("rb") as file:
            file.seek(self._position)
            added = file.read()
        whole = added[: added.rfind(b"\n") + 1]
        self._position += len(whole)
        self.lines += whole.count(b"\n")
        if MARKERS.encode() in whole:
            for line in whole.splitlines():
                if MARKERS.encode() in line:
                    self._notice(json.loads(line))
        return self.lines

    def _notice(self, event: dict[str, dict[str, str]]) -> None:
        if event.get("ns", {}).get("coll") == MARKERS:
            self.markers.append(event["documentKey"]["_id"])
