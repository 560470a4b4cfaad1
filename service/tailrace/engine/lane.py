"""What a run knows of a handler's lanes: :mod:`lanes`, :mod:`batch_lane`, :mod:`commit_lane`."""

from __future__ import annotations

from typing import Protocol

from tailrace.engine.final_mark import Account
from tailrace.engine.in_flight import Place


class Lane(Account, Protocol):
    """What a watcher knows of a handler's lanes."""

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
