"""What the demo has to say at its end, before anything is drawn."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Account:
    """The figures of one run; what is unknown is ``None``."""

    written: int = 0
    delivered: int = 0
    operations: dict[str, int] = field(default_factory=dict)
    duplicates: int = 0
    restarts: int = 0
    resumes: int = 0
    last_lag_seconds: float | None = None
    documents: int = 0
