"""A subscription: a handler of a scope, with its own position in the stream."""

from __future__ import annotations

from dataclasses import dataclass, field

from tailrace.model.position import Position
from tailrace.model.record_codec import INLINE
from tailrace.model.replay import Replay


@dataclass(frozen=True, slots=True)
class Subscription:
    """How far a handler of a scope is.

    ``fingerprint``: of the pipeline and options to which the position's tokens belong.
    ``observed_generation``: the last one of :class:`tailrace.model.desired_state.DesiredState`
    whose position it has taken. ``halted``: why it is halted, until it runs again; empty if it is
    not. ``replay``: of a subscription with an end, which changes come again.
    """

    position: Position = field(metadata=INLINE)
    fingerprint: str = ""
    observed_generation: int = 0
    halted: str = ""
    replay: Replay | None = None

    def is_same(self, other: Subscription) -> bool:
        """Whether one record can stand for both."""
        mine, theirs = self.position, other.position
        began = mine.started == theirs.started and mine.reread == theirs.reread
        return began and self == other
