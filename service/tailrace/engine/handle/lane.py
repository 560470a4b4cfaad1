"""The interface of the lanes of a handler, which a run feeds and closes."""

from __future__ import annotations

from typing import Protocol

from tailrace.engine.position.final_position import LaneReport
from tailrace.engine.position.watermark import Place


class Lane(LaneReport, Protocol):
    """How one handler of a run gets its events; places that it finishes move the watermark."""

    @property
    def backlog(self) -> int:
        """Places that were fed and are not opened yet."""

    def feed(self, places: list[Place]) -> None:
        """Appends places, without waiting."""

    def hurry(self) -> None:
        """Nothing more can come before what is here is handled: wait for no more."""

    def close(self, upto: int | None = None) -> None:
        """No more comes: finish what was fed, or only the places up to that number."""

    async def run(self) -> None:
        """Handles until closed. Raises what the delivery raised, after what runs has finished."""
