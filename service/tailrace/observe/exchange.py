"""A request and its answer, as the HTTP server passes them to an application."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Request:
    """What is known before the body is read. ``path`` is decoded, ``query`` is not.

    ``client``: the address that sent it; empty if unknown.
    """

    method: str
    path: str
    headers: Mapping[bytes, bytes]
    query: str = ""
    client: str = ""

    @property
    def has_body(self) -> bool:
        return (
            self.headers.get(b"content-length", b"0") != b"0"
            or b"transfer-encoding" in self.headers
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """What is sent."""

    status: int
    body: bytes
    kind: str = TEXT
    headers: tuple[tuple[bytes, bytes], ...] = ()


class Pace(Enum):
    """When a request is answered."""

    AT_ONCE = "at once"
    IN_TURN = "one at a time"
    WAITS = "a few at a time: it waits for a store, a server or a handler"


@dataclass(frozen=True, slots=True)
class Call:
    """How a request that is not refused is answered: ``answer`` gets its body."""

    pace: Pace
    answer: Callable[[bytes], Awaitable[Answer]]


class Application(Protocol):
    """Decides about a request before its body is read."""

    def find(self, request: Request) -> Answer | Call:
        """The answer to a request that is refused, or the call that answers it."""


def line(status: int, message: str, *headers: tuple[bytes, bytes]) -> Answer:
    """A line of text. A sentence that quotes what was sent may hold halves of surrogate pairs."""
    return Answer(status, f"{message}\n".encode(errors="backslashreplace"), headers=headers)
