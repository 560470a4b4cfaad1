"""The destination: one request for each event, or for each batch."""

from collections.abc import Sequence
from typing import Self

from anyio import to_thread

from tailrace.engine.batch import Batch, ScopeContext
from tailrace.errors import Refused
from tailrace.event import ChangeEvent
from tailrace.handlers.handler_type import Opening, Trial
from tailrace.handlers.http.endpoint import Endpoint
from tailrace.handlers.http.requests import Requests
from tailrace.handlers.http.settings import HttpHandlerSettings
from tailrace.handlers.http.trial import try_connection

_IN_THREAD_BYTES = 2**18
"""Converting so many bytes of events takes some milliseconds: it is done in a thread."""


def sender(opening: Opening, settings: HttpHandlerSettings) -> "EventSender | BatchSender":
    """The destination of a handler. Requests of different scopes have their own connections."""
    connections = settings.at_once * max(1, len(opening.follows))
    kind = EventSender if settings.batch_size == 1 else BatchSender
    return kind(settings, Endpoint(settings, connections))


class _Sender:
    def __init__(self, settings: HttpHandlerSettings, endpoint: Endpoint) -> None:
        self._settings = settings
        self._endpoint = endpoint
        self._requests = Requests(settings)

    async def __aenter__(self) -> Self:
        """Opens a connection first: an endpoint that is down is known before the first event."""
        await self._connected()
        await self._endpoint.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._endpoint.__aexit__(*error)

    async def attempt(self, trial: Trial) -> str:
        """Sends no request: the endpoint must not take a trial for an event."""
        return await self._connected()

    async def _connected(self) -> str:
        return await try_connection(self._endpoint.access(), self._settings.timeout_seconds)


class EventSender(_Sender):
    """Sends each event in a request. The engine keeps the order of each document."""

    async def __call__(self, event: ChangeEvent, scope: str) -> None:
        request = self._requests.of_event(event, scope)
        if request is not None:
            await self._endpoint.send(request)


class BatchSender(_Sender):
    """Sends each batch in a request, and each DDL event in one of its own."""

    async def write(self, batch: Batch) -> None:
        await self._send(batch, batch.scope.name)

    async def on_ddl(self, event: ChangeEvent, scope: ScopeContext) -> None:
        await self._send([event], scope.name)

    async def _send(self, events: Sequence[ChangeEvent], scope: str) -> None:
        if sum(event.size for event in events) < _IN_THREAD_BYTES:
            made = self._requests.of_batch(events, scope)
        else:
            made = await to_thread.run_sync(self._requests.of_batch, events, scope)
        if made is None:
            return
        try:
            await self._endpoint.send(made.request)
        except Refused as error:
            raise Refused({made.sent[at]: why for at, why in error.reasons.items()}) from None
