"""Delivers a batch that the endpoint fails as a whole: in halves, down to single events.

Perhaps it is too large or too slow for a limit, or one event is at fault. If the endpoint accepts
nothing, neither a part nor once more what it has accepted before, that is an outage.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field

import anyio

from tailrace.destination import ScopeContext
from tailrace.destinations.http.answer import RequestFailed
from tailrace.destinations.http.endpoint import EndpointRequest
from tailrace.errors import Refused
from tailrace.event import ChangeEvent
from tailrace.event.naming import named
from tailrace.model.failure_policy import Backoff

_BETWEEN_TRIES = Backoff(0.5, 5.0)

Part = Sequence[int]
"""Indices in the batch."""
Request = Callable[[Sequence[ChangeEvent], Part], Awaitable[EndpointRequest | None]]


@dataclass(slots=True)
class Halving:
    """One batch. ``most``: how often an event may fail alone before it counts as refused.

    ``accepted``: what the endpoint has accepted last, if no later change of its documents can have
    been sent: to send it again is a repetition that can come anyway, and shows that the endpoint is
    up.
    """

    events: Sequence[ChangeEvent]
    scope: ScopeContext
    request: Request
    passes: Callable[[EndpointRequest | None], Awaitable[bool]]
    most: int
    accepted: EndpointRequest | None
    divided: bool = False
    """Whether a part of several events failed, and none of them alone."""
    _is_up: bool = False
    """Whether something was accepted since the last failure."""
    _failing: dict[int, RequestFailed] = field(default_factory=dict)
    """Single events by their index, and their errors."""
    _held: list[int] = field(default_factory=list)
    """Later events of their documents."""

    async def deliver(self, parts: Iterable[Part]) -> None:
        """Returns when all events are accepted.

        Raises :class:`RequestFailed` for an outage, and :class:`Refused` for events that fail while
        others are accepted.
        """
        await self._send(deque(parts))
        while self._failing:
            await self._try_again()
            held, self._held = self._held, []
            await self._send(deque([held]))

    async def _send(self, parts: deque[Part]) -> None:
        """Sends what can be sent; what fails alone is in ``_failing`` then."""
        while parts:
            part = self._free(parts.popleft())
            if not part:
                continue
            try:
                await self._accept(part)
            except RequestFailed as error:
                is_up = self._is_up or await self.passes(self.accepted)
                self._is_up = False  # an outage may begin in the middle
                if not is_up and (len(part) > 1 or self._failing or not parts):
                    raise
                if len(part) == 1:
                    self.divided, self._failing[part[0]] = False, error
                else:
                    self.divided, half = True, len(part) // 2
                    parts.extendleft((part[half:], part[:half]))

    async def _accept(self, part: Part) -> None:
        request = await self.request(self.events, part)
        if request is not None:
            self._is_up, self.accepted = True, request

    def _free(self, part: Part) -> Part:
        """Those of a part whose documents have no event that fails."""
        keys = {self.events[at].key for at in self._failing}
        free = [at for at in part if self.events[at].key not in keys]
        self._held += [at for at in part if self.events[at].key in keys]
        return free

    async def _try_again(self) -> None:
        """Tries the events that fail until they are accepted, or have failed too often."""
        for at, error in self._failing.items():
            event = named(self.events[at])
            self.scope.log.warning("event.failing", **event, error=str(error), attempts=self.most)
        for tries in range(1, self.most + 1):
            await anyio.sleep(_BETWEEN_TRIES.delay(tries))
            for at in list(self._failing):
                try:
                    await self._accept([at])
                    del self._failing[at]
                except RequestFailed as error:
                    self._failing[at] = error
                    if not await self.passes(self.accepted):
                        raise
            if not self._failing:
                return
        raise Refused(
            {
                at: f"{error}, {self.most} times while it accepted others"
                for at, error in self._failing.items()
            }
        )
