"""The status of an answer whose rest cannot be read.

An endpoint that says 204 and sends a body, or headers that a strict parser refuses, has accepted
the request: sent again, it would be stored again, and the answer would be the same.
"""

import re
from functools import partial
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection

_LONGEST = 4096
"""So many bytes are looked through: the final status may come after interim answers (1xx)."""
_STATUS = re.compile(
    rb"(?:HTTP/1\.\d[ \t]+1\d\d\b[^\n]*\n(?:[^\r\n][^\n]*\n)*\r?\n)*"  # interim answers
    rb"HTTP/\d[.\d]*[ \t]+([2-9]\d\d)\s",
    re.IGNORECASE,
)
"""RFC 9112, 4, and as servers send it: more spaces, no reason, another version."""


class UnreadableAnswer(Exception):
    """The answer ends or breaks after its first line, which has this status."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the endpoint answers {status}, and what follows cannot be read")
        self.status = status


def session_parts(connections: int) -> dict[str, Any]:
    """The arguments with which a session raises :class:`UnreadableAnswer`."""
    return {"connector": _Connector(limit=connections), "response_class": _Response}


class _Protocol(ResponseHandler):
    """Remembers the beginning of what came for a request."""

    beginning = b""

    def set_response_params(self, **params: Any) -> None:
        self.beginning = b""
        super().set_response_params(**params)

    def data_received(self, data: bytes) -> None:
        if len(self.beginning) < _LONGEST:
            self.beginning += data[:_LONGEST]
        super().data_received(data)


class _Connector(aiohttp.TCPConnector):
    """aiohttp has no other way to the bytes of an answer that its parser refuses."""

    def __init__(self, *, limit: int) -> None:
        super().__init__(limit=limit)
        self._factory = partial(_Protocol, loop=self._loop)  # type: ignore[assignment]


class _Response(aiohttp.ClientResponse):
    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        protocol = connection.protocol
        try:
            return await super().start(connection)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            beginning = protocol.beginning if isinstance(protocol, _Protocol) else b""
            if (found := _STATUS.match(beginning)) is None:
                raise
            raise UnreadableAnswer(int(found[1])) from error
