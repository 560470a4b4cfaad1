"""Tells an event that fails alone, while the endpoint accepts others, from an outage.

An endpoint may answer 500 for one document for ever, or end without an answer. While it accepts
nothing, that is an outage, whatever it answers; so what counts is what happens to the others.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field

_FEW = 5
_SHARE = 8
"""Of the others at most this many, and one for so many that were accepted, may fail: if more do,
the endpoint is overloaded or down."""


@dataclass(frozen=True, slots=True)
class _Failure:
    """The last failure of an event, and the totals of that moment."""

    alone: int
    requests: int
    accepted: int
    first_failures: int


@dataclass(slots=True)
class LoneFailures:
    """Counts, for each event that fails, the failures between which others were accepted."""

    _requests: int = 0
    _accepted: int = 0
    _first_failures: int = 0
    _last_accepted: int = 0
    """The number of the latest request that was accepted."""
    _failing: dict[Hashable, _Failure] = field(default_factory=dict)

    def begin(self) -> int:
        """The number of a request that is about to be sent."""
        self._requests += 1
        return self._requests

    def accepted(self, event: Hashable, request: int) -> None:
        """The endpoint has judged the event: it is handled, or refused."""
        self._accepted += 1
        self._last_accepted = max(self._last_accepted, request)
        self._failing.pop(event, None)

    def forget(self, event: Hashable) -> None:
        """The event is not tried any more."""
        self._failing.pop(event, None)

    def down(self) -> None:
        """The endpoint fails what it has accepted before."""
        self._first_failures += 1

    def is_quiet(self, event: Hashable) -> bool:
        """Whether nothing has happened to others since the event failed last."""
        last = self._failing.get(event)
        return last is not None and (last.accepted, last.first_failures) == (
            self._accepted,
            self._first_failures,
        )

    def failed(self, event: Hashable) -> int:
        """How often the event has failed alone, this time included; 0: it may be an outage."""
        alone, last = 0, self._failing.get(event)
        if last is None:
            self._first_failures += 1
        else:
            others = self._first_failures - last.first_failures
            accepted = self._accepted - last.accepted
            if self._last_accepted > last.requests:  # sent after the last failure
                alone = last.alone + 1 if others <= _FEW + accepted // _SHARE else 0
            elif not others:
                alone = last.alone
        self._failing[event] = _Failure(alone, self._requests, self._accepted, self._first_failures)
        return alone
