"""Sends requests to the endpoint, and tells outages from refusals."""

import io
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from time import time
from typing import Self

import aiohttp
import anyio
from yarl import URL

from tailrace.destinations.http.access import CurrentAccess, EndpointAccess
from tailrace.destinations.http.answer import EndpointAnswer, RequestFailed, require_accepted
from tailrace.destinations.http.first_line import UnreadableAnswer, session_parts
from tailrace.destinations.http.settings import HttpHandlerSettings
from tailrace.destinations.http.signature import signatures
from tailrace.errors import Unavailable, describe
from tailrace.version import __version__

_MOST_REDIRECTS = 5
_MOST_OF_ANSWER = 65536
"""So many bytes of an answer are read; the connection of a longer one is closed."""
_BODY_SECONDS = 5.0
"""A body that takes longer is not waited for."""
_LOST = (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, aiohttp.ClientResponseError)
"""A connection that the endpoint was just closing, or that still has bytes of another answer."""
_NOT_LOST = (aiohttp.ClientConnectorError, aiohttp.ClientHttpProxyError)
_LARGE = 2**20
"""aiohttp writes larger bodies piece by piece if they are files."""


@dataclass(frozen=True, slots=True)
class EndpointRequest:
    """A request about some events. ``identity`` is the same each time they are sent."""

    identity: str
    body: bytes
    headers: Mapping[str, str]
    events: int = 1


class Endpoint:
    """The endpoint of a handler, with at most ``connections`` connections."""

    def __init__(self, settings: HttpHandlerSettings, connections: int) -> None:
        self._settings = settings
        self._access = CurrentAccess(settings)
        self._connections = connections
        self._session: aiohttp.ClientSession

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            **session_parts(self._connections),
            max_field_size=_MOST_OF_ANSWER,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=self._settings.timeout_seconds),
            auto_decompress=False,
            headers={"user-agent": f"tailrace/{__version__}", "accept-encoding": "identity"},
        )
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._session.close()

    def access(self) -> EndpointAccess:
        """Where requests go at present."""
        return self._access.get()

    async def send(self, request: EndpointRequest) -> None:
        """Returns if the endpoint has accepted the events; raises as :func:`require_accepted`.

        Without an answer it raises :class:`Unavailable`, and :class:`RequestFailed` if the request
        was sent.
        """
        access = self._access.get()
        headers = {**request.headers, **access.headers, "webhook-id": request.identity}
        timestamp = int(time())
        headers["webhook-timestamp"] = str(timestamp)
        if access.keys:
            headers["webhook-signature"] = signatures(
                access.keys, request.identity, timestamp, request.body
            )
        answer = await self._answered(request.body, headers, access)
        require_accepted(answer, self._settings.refused_statuses, request.events)

    async def _answered(
        self, body: bytes, headers: Mapping[str, str], access: EndpointAccess
    ) -> EndpointAnswer:
        """The answer, after redirects to the same host.

        A request on a connection that the endpoint was just closing is sent once more.
        """
        url, redirects, again, seconds = access.url, 0, True, self._settings.timeout_seconds
        while True:
            try:
                answer = await self._once(url, body, headers, access)
            except UnreadableAnswer as error:
                return EndpointAnswer(error.status)
            except TimeoutError as error:
                message = f"no answer within timeout_seconds ({seconds:g} s)"
                raise RequestFailed(message) from error
            except _LOST as error:
                lost = not isinstance(error, _NOT_LOST)
                if not (again and lost):
                    kind = RequestFailed if lost else Unavailable
                    raise kind(_unreachable(error)) from error
                again = False
                continue
            except (aiohttp.ClientError, OSError, ValueError) as error:
                raise Unavailable(_unreachable(error)) from error
            target = _followed(url, answer)
            if target is None or redirects == _MOST_REDIRECTS:
                return answer
            url, redirects = target, redirects + 1

    async def _once(
        self, url: URL, body: bytes, headers: Mapping[str, str], access: EndpointAccess
    ) -> EndpointAnswer:
        async with self._session.request(
            self._settings.method,
            url,
            data=body if len(body) <= _LARGE else io.BytesIO(body),
            headers=headers,
            allow_redirects=False,
            proxy=access.proxy,
            ssl=access.tls,
        ) as response:
            status, received = response.status, response.headers
            redirect = received.get("location", "") if 300 <= status < 400 else None
            start = await _beginning(response)
            return EndpointAnswer(status, received.get("retry-after"), start, redirect)


async def _beginning(response: aiohttp.ClientResponse) -> bytes:
    """The first bytes of the body, as far as they can be read: the status counts without them.

    A connection with more of it, or with a body where there must be none, is closed.
    """
    start = b""
    with suppress(aiohttp.ClientError, TimeoutError, OSError), anyio.move_on_after(_BODY_SECONDS):
        while len(start) < _MOST_OF_ANSWER and (part := await response.content.read(2**16)):
            start += part
    length = response.headers.get("content-length", "0")
    if not response.content.at_eof() or (response.status == 204 and length != "0"):
        response.close()
    return start


def _followed(url: URL, answer: EndpointAnswer) -> URL | None:
    """Where to send the same request, if the answer says so and it is the same host."""
    if answer.status not in (307, 308) or not answer.redirect:
        return None
    try:
        target = url.join(URL(answer.redirect))
        return target if target.origin() == url.origin() else None
    except ValueError:
        return None


def _unreachable(error: Exception) -> str:
    return f"the endpoint cannot be reached: {describe(error)}"
