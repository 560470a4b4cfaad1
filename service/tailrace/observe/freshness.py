"""How old what a handler has may be, and how old it is: a silence makes it older."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Freshness:
    """Of one handler on one scope, for as long as the process lives.

    ``max_lag``: how many seconds it may be behind; ``None`` if no route says so.
    """

    max_lag: float | None = None
    monotonic: Callable[[], float] = time.monotonic
    _current: float = field(init=False)
    """When it had everything, as last known; at first the start of the process."""

    def __post_init__(self) -> None:
        self._current = self.monotonic()

    def age(self, behind: float | None) -> float:
        """Seconds by which the handler is behind the server, as just computed. While that is not
        known (``None``), the last age that was known, and the time since."""
        now = self.monotonic()
        if behind is not None:
            self._current = now - behind
        return now - self._current

    def breached(self, behind: float | None) -> bool | None:
        """Whether it is further behind than it may be; ``None`` if no route says how far."""
        age = self.age(behind)
        return None if self.max_lag is None else age > self.max_lag
