"""Whether a scope's position can be saved."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from tailrace.engine.status.lag import iso

_PATIENCE_SECONDS = 10.0
"""How long a save without an answer is no trouble: elections take as long."""


@dataclass(slots=True)
class Saving:
    """The attempts to save since the last one that succeeded."""

    clock: Callable[[], float] = time.time
    began: float | None = None
    """When the first of them began, as a Unix time."""
    error: str = ""
    """Why the last of them failed."""

    def begin(self) -> None:
        """A save begins."""
        if self.began is None:
            self.began = self.clock()

    def fail(self, error: str) -> None:
        """It failed."""
        self.error = error

    def clear(self) -> None:
        """It succeeded, or the run has ended, and the next one begins at what is saved."""
        self.began, self.error = None, ""

    @property
    def failing_since(self) -> float | None:
        """Since when no save has succeeded, if the last one failed or takes too long."""
        late = self.began is not None and self.clock() - self.began > _PATIENCE_SECONDS
        return self.began if self.error or late else None

    @property
    def trouble(self) -> str:
        """What is wrong, for people; empty if nothing is."""
        if self.failing_since is None:
            return ""
        error = self.error or "the store does not answer"
        return (
            f"its position is not saved since {iso(int(self.failing_since))}: {error}. Changes are "
            "handled meanwhile, and come again after a restart"
        )
