"""The destination with one request for several events."""

from collections.abc import Sequence

from anyio import to_thread

from tailrace.destination import Batch, Opening, ScopeContext
from tailrace.destinations.http.answer import RequestFailed
from tailrace.destinations.http.endpoint import EndpointRequest
from tailrace.destinations.http.halving import Halving
from tailrace.destinations.http.senders import EndpointSender
from tailrace.destinations.http.settings import HttpHandlerSettings
from tailrace.errors import Refused
from tailrace.event import ChangeEvent

_IN_THREAD_BYTES = 2**18
"""Converting so many bytes of events takes some milliseconds: it is done in a thread."""


class BatchSender(EndpointSender):
    """Sends each batch in a request, and each DDL event in one of its own."""

    def __init__(self, opening: Opening, settings: HttpHandlerSettings) -> None:
        super().__init__(opening, settings)
        self._in_order = settings.at_once == 1
        self._size: int | None = None
        """How many events are sent at once, if a batch failed as a whole."""

    async def write(self, batch: Batch) -> None:
        await self._deliver(list(batch), batch.scope, alone=self._in_order)

    async def on_ddl(self, event: ChangeEvent, scope: ScopeContext) -> None:
        await self._deliver([event], scope, alone=True)

    async def _deliver(
        self, events: Sequence[ChangeEvent], scope: ScopeContext, *, alone: bool
    ) -> None:
        """``alone``: nothing else of the scope is in flight."""
        count = len(events)
        size, self._size = min(self._size or count, count), None
        halving = Halving(
            events,
            scope,
            self.request,
            self.passes,
            self._settings.lone_failures,
            self._last if alone else None,
        )
        try:
            await halving.deliver(
                [range(at, min(at + size, count)) for at in range(0, count, size)]
            )
        except RequestFailed:
            self._size = max(size // 2, 1)
            raise
        finally:
            self.remember(halving.accepted)
        if halving.divided:
            self._size = max(size // 2, 1)
        elif size < count:
            self._size = size + max(size // 8, 1)

    async def request(
        self, events: Sequence[ChangeEvent], part: Sequence[int]
    ) -> EndpointRequest | None:
        """Sends a request with the events at these indices; returns it if there is one."""
        some = [events[at] for at in part]
        if sum(event.size for event in some) < _IN_THREAD_BYTES:
            made = self._requests.of_batch(some, self._scope)
        else:
            made = await to_thread.run_sync(self._requests.of_batch, some, self._scope)
        if made is None:
            return None
        try:
            await self._endpoint.send(made.request)
        except Refused as error:
            reasons = {part[made.sent[at]]: why for at, why in error.reasons.items()}
            raise Refused(reasons) from None
        return made.request
