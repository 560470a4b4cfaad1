"""One connection to NATS, which publishes messages to JetStream and awaits their acknowledgements.

After any error it must be closed: only a connection that never reconnects stores what it sends in
order, without a gap in the middle. The next connection sends what was not acknowledged again, with
the same ids.
"""

import json
import re
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import anyio
from anyio import to_thread
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import AuthorizationError, ConnectionClosedError, Error, StaleConnectionError
from nats.js.errors import APIError

from tailrace.destinations.nats import NatsHandlerSettings
from tailrace.destinations.nats.answers import NotStored
from tailrace.errors import Unavailable, describe

_CONNECT_SECONDS = 5
_CLOSING_SECONDS = 1.0
_REFUSED_LOGIN = re.compile("authorization|authentication", re.IGNORECASE)
"""In what the server says; https://docs.nats.io/reference/reference-protocols/nats-protocol#ok-err."""
_ENDED = (StaleConnectionError, ConnectionClosedError, OSError)
_NAMES_OF_HEADERS = 200
"""At most the bytes of a message's headers without their values."""
_FOREIGN = (
    "an answer for the subject {subject!r} is no acknowledgement of JetStream: something else than "
    "a stream answers there; create a stream, or correct 'subject'"
)
"""Whoever subscribes to the subject may answer. An acknowledgement has ``stream`` and ``seq``:
https://docs.nats.io/reference/reference-protocols/nats_api_reference."""
_AT_ONCE = 100
"""After this many messages, other tasks get a turn."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message that is ready to be published."""

    subject: str
    payload: bytes
    headers: dict[str, str]
    key: bytes | None
    """What the order of messages is about; ``None``: about all."""

    @property
    def headers_size(self) -> int:
        """The bytes of the headers."""
        lines = sum(len(name) + len(text.encode()) + 4 for name, text in self.headers.items())
        return len("NATS/1.0\r\n\r\n") + lines

    @property
    def size(self) -> int:
        """The bytes that count for the server's ``max_payload``: headers and payload."""
        return self.headers_size + len(self.payload)

    def may_exceed(self, size: int, headers_size: int) -> bool:
        """Whether :attr:`size` or :attr:`headers_size` may be greater; it is cheaper to ask."""
        headers = 4 * sum(map(len, self.headers.values())) + _NAMES_OF_HEADERS
        return len(self.payload) + headers > size or headers > headers_size


class ConnectionLost(Unavailable):
    """The connection has ended: what was not acknowledged may be stored or not."""


class Publisher:
    """A connection of handler ``name``."""

    def __init__(self, name: str, settings: NatsHandlerSettings) -> None:
        self.client = Client()
        self._name = name
        self._settings = settings
        self._answers = ""
        """The subject under which JetStream's answers arrive."""
        self._sent = 0
        self._waiting: dict[str, str] = {}
        """The subject of each message that is not acknowledged, by the subject of its answer."""
        self._failure: Exception | None = None
        self._changed = anyio.Event()
        self._limit = anyio.CancelScope()

    async def open(self) -> None:
        """Connects to one of the servers. Raises :class:`Unavailable`."""
        settings = self._settings
        with unavailable(f"handlers.{self._name}"):
            login = await to_thread.run_sync(_login, settings)
            await self.client.connect(
                list(settings.servers),
                name=f"tailrace {self._name}",
                error_cb=self._failed,
                closed_cb=self._closed,
                allow_reconnect=False,
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                connect_timeout=_CONNECT_SECONDS,
                skip_subject_validation=True,  # names are encoded, and the rest is of the settings
                **login,
            )
            self._answers = self.client.new_inbox()
            await self.client.subscribe(f"{self._answers}.*", cb=self._answered)

    @property
    def is_lost(self) -> bool:
        """Whether the connection has failed, as an idle one may."""
        return self._failure is not None

    async def close(self) -> None:
        """Closes the connection. Does not raise."""
        with anyio.move_on_after(_CLOSING_SECONDS, shield=True), suppress(Exception):
            await self.client.close()

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        """Publishes the messages and returns when all are stored.

        Raises :class:`NotStored` for the first that is not, :class:`ConnectionLost`, and
        :class:`Unavailable`.
        """
        seconds = self._settings.acknowledgement_seconds
        if self._failure is not None:
            raise self._failure  # the connection was lost since the last call
        with anyio.CancelScope(deadline=anyio.current_time() + seconds) as self._limit:
            for at, message in enumerate(messages):
                self._sent += 1
                answer = f"{self._answers}.{self._sent}"
                self._waiting[answer] = message.subject
                with unavailable(f"handlers.{self._name}"):
                    await self.client.publish(
                        message.subject, message.payload, answer, message.headers
                    )
                if at % _AT_ONCE == _AT_ONCE - 1:
                    await anyio.lowlevel.checkpoint()
            while self._waiting and self._failure is None:
                self._changed = anyio.Event()
                await self._changed.wait()
        if self._failure is not None:
            raise self._failure
        if self._waiting:
            raise Unavailable(
                f"JetStream has not acknowledged {len(self._waiting)} of {len(messages)} messages: "
                f"no answer for {seconds:g} s (acknowledgement_seconds)"
            )

    async def _answered(self, answer: Msg) -> None:
        subject = self._waiting.pop(answer.subject, None)
        if subject is None:
            return
        self._limit.deadline = anyio.current_time() + self._settings.acknowledgement_seconds
        if answer.headers and answer.headers.get("Status") == "503":
            message = f"no stream takes the subject {subject!r}: create one, or correct 'subject'"
            self._fail(Unavailable(message))
        elif b'"error"' in answer.data and (error := json.loads(answer.data).get("error")):
            self._fail(NotStored(subject, error.get("err_code", 0), error.get("description", "")))
        elif not (b'"stream"' in answer.data and b'"seq"' in answer.data):
            self._fail(Unavailable(_FOREIGN.format(subject=subject)))
        elif not self._waiting:
            self._changed.set()

    async def _failed(self, error: Exception) -> None:
        if self.client.is_connected:  # otherwise the connect raises it
            kind = ConnectionLost if isinstance(error, _ENDED) else Unavailable
            self._fail(kind(f"NATS: {describe(error)}"))

    async def _closed(self) -> None:
        self._fail(ConnectionLost("the connection to NATS was lost"))

    def _fail(self, error: Exception) -> None:
        self._failure = self._failure or error
        self._changed.set()


@contextmanager
def unavailable(path: str) -> Iterator[None]:
    """Turns errors of the client and of the network into :class:`Unavailable`."""
    try:
        yield
    except APIError:
        raise
    except (Error, OSError, TimeoutError) as error:
        message = f"NATS: {describe(error)}"
        if isinstance(error, AuthorizationError) or _REFUSED_LOGIN.search(str(error)):
            message = (
                "the NATS server refuses the login: correct user, password, token or "
                f"credentials_file of {path}"
            )
        raise (ConnectionLost if isinstance(error, _ENDED) else Unavailable)(message) from error


def _login(settings: NatsHandlerSettings) -> dict[str, Any]:
    """The arguments of a connect that are read from files. Blocks for a moment."""
    login: dict[str, Any] = {}
    for name in ("user", "password", "token"):
        if (secret := getattr(settings, name)) is not None:
            login[name] = secret.read()
    if settings.credentials_file is not None:
        login["user_credentials"] = settings.credentials_file
    if settings.ca_file is not None or settings.certificate_file is not None:
        login["tls"] = context = ssl.create_default_context(cafile=settings.ca_file)
        if settings.certificate_file is not None:
            context.load_cert_chain(settings.certificate_file, settings.key_file)
    return login
