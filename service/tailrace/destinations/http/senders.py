"""The destination with one request for each event, and what both have in common."""

from typing import Self

import anyio

from tailrace.destination import Opening, ProbeContext
from tailrace.destinations.http.answer import RequestFailed
from tailrace.destinations.http.endpoint import Endpoint, EndpointRequest
from tailrace.destinations.http.lone_failures import LoneFailures
from tailrace.destinations.http.probe import probe_connection
from tailrace.destinations.http.requests import Requests
from tailrace.destinations.http.settings import HttpHandlerSettings
from tailrace.errors import PermanentError, Refused, Unavailable
from tailrace.event import ChangeEvent
from tailrace.event.naming import document_key

_LARGEST_KEPT = 2**16
"""The largest request that is kept to be sent again."""


class EndpointSender:
    """A handler's endpoint, with connections of its own."""

    def __init__(self, opening: Opening, settings: HttpHandlerSettings) -> None:
        self._settings = settings
        self._endpoint = Endpoint(settings, settings.at_once)
        self._scope = opening.scope.name
        self._requests = Requests(settings, opening.scope)
        self._last: EndpointRequest | None = None
        """What was accepted last, unless it is large."""

    async def __aenter__(self) -> Self:
        """Opens a connection first: an endpoint that is down is known before the first event."""
        await self._connected()
        await self._endpoint.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._endpoint.__aexit__(*error)

    async def probe(self, context: ProbeContext) -> str:
        """Sends no request: the endpoint must not take a probe for an event."""
        return await self._connected()

    async def _connected(self) -> str:
        return await probe_connection(self._endpoint.access(), self._settings.timeout_seconds)

    def remember(self, accepted: EndpointRequest | None) -> None:
        """Notes what was accepted last."""
        large = accepted is not None and len(accepted.body) > _LARGEST_KEPT
        self._last = None if large else accepted

    async def passes(self, accepted: EndpointRequest | None) -> bool:
        """Whether the endpoint takes once more what it has accepted."""
        if accepted is None:
            return False
        try:
            await self._endpoint.send(accepted)
        except Unavailable:
            return False
        except (Refused, PermanentError):
            pass  # it judges, so it is up
        return True


class EventSender(EndpointSender):
    """Sends each event in a request. The engine keeps the order of each document."""

    def __init__(self, opening: Opening, settings: HttpHandlerSettings) -> None:
        super().__init__(opening, settings)
        self._lone = LoneFailures()
        self._slots = anyio.Semaphore(settings.at_once)
        """For as many requests as may be sent at once. Events that failed, and wait until they are
        tried again, have none."""
        self._busy: set[bytes | None] = set()
        """The keys of documents of which an event is being delivered."""
        self._repeated: dict[bytes | None, anyio.Event] = {}
        """Those of which what was accepted last is sent once more, and the end of that."""
        self._last_key: bytes | None = None
        """The document of what was accepted last."""

    async def __call__(self, event: ChangeEvent) -> None:
        request = self._requests.of_event(event, self._scope)
        if request is None:
            return
        while (repeated := self._repeated.get(event.key)) is not None:
            await repeated.wait()
        self._busy.add(event.key)
        try:
            async with self._slots:
                await self._deliver(request, event)
        finally:
            self._busy.discard(event.key)

    async def _deliver(self, request: EndpointRequest, event: ChangeEvent) -> None:
        known_as, number = request.identity, self._lone.begin()
        try:
            await self._endpoint.send(request)
        except RequestFailed as error:
            if self._lone.is_quiet(known_as):
                await self._repeat()
            alone = self._lone.failed(known_as)
            if alone >= self._settings.lone_failures:
                self._lone.forget(known_as)  # it may come again, as after a halt
            self._judge(error, event, alone)
        except Refused:
            self._lone.accepted(known_as, number)
            raise
        self._lone.accepted(known_as, number)
        self.remember(request)
        self._last_key = event.key

    async def _repeat(self) -> None:
        """Sends what was accepted last once more, if no later change of its document is sent."""
        last, key = self._last, self._last_key
        if last is None or key in self._busy | self._repeated.keys():
            return
        done = self._repeated[key] = anyio.Event()
        number = self._lone.begin()
        try:
            if await self.passes(last):
                self._lone.accepted(None, number)
            else:
                self._lone.down()
        finally:
            del self._repeated[key]
            done.set()

    def _judge(self, error: RequestFailed, event: ChangeEvent, alone: int) -> None:
        most, key = self._settings.lone_failures, document_key(event) or "no key"
        if alone >= most:
            raise Refused({0: f"{error}, {alone} times while it accepted others"}) from error
        if not alone:
            raise error
        raise RequestFailed(
            f"{error} for one event ({key}), {alone} of {most} times (lone_failures) while it "
            "accepted others"
        ) from error
