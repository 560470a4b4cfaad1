"""Publishes the messages of events to JetStream, in order per document."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Self

from tailrace.destination import Batch, MessageMaker, Opening, ProbeContext, converted, namespace_of
from tailrace.destinations.nats import NatsHandlerSettings
from tailrace.destinations.nats.answers import LARGEST_HEADERS, NotStored, failure
from tailrace.destinations.nats.publisher import ConnectionLost, Outgoing, Publisher
from tailrace.destinations.nats.streams import accepts, create_stream, require_stream
from tailrace.destinations.nats.subjects import subject_of, subjects_of
from tailrace.errors import Refused
from tailrace.event import ChangeEvent
from tailrace.event.memo import Memo

MOST_PENDING = 1000
"""How many messages may wait for their acknowledgements."""

_LONGEST_ID = 500
"""A longer id is replaced by its hash: a token holds the key of its document, and the headers of a
message have a limit."""
_POWER_CUT = (
    "an acknowledged message can be lost at a power cut before the server has synced it "
    "(sync_interval, 2 minutes unless it is set)"
)
"""https://jepsen.io/analyses/nats-2.12.1"""


class NatsDestination:
    """A connection, made with the first batch and again after each failed call."""

    def __init__(self, opening: Opening, settings: NatsHandlerSettings) -> None:
        self._name = opening.name
        self._settings = settings
        self._scope = opening.scope
        self._messages = MessageMaker(settings, scope=opening.scope)
        self._stream = {} if settings.stream is None else {"Nats-Expected-Stream": settings.stream}
        self._subjects: Memo[tuple[str, str, str], str] = Memo(
            lambda source: subject_of(settings.subject, *source)
        )
        self._largest: int | None = None
        """The ``max_msg_size`` of the stream at the start, if it has one."""
        self._open: Publisher | None = None

    async def __aenter__(self) -> Self:
        async with self._publisher() as publisher:
            self._largest = await require_stream(
                self._name, self._settings, publisher.client, self._scope
            )
        await self._close()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._close()

    async def write(self, batch: Batch) -> None:
        await self._send(list(batch))

    async def on_ddl(self, event: ChangeEvent) -> None:
        await self._send([event])

    async def probe(self, context: ProbeContext) -> str:
        subjects = [subjects_of(self._settings.subject, scope) for scope in context.scopes]
        async with self._publisher() as publisher:
            for subject in subjects if not self._settings.create_stream else ():
                await accepts(publisher, subject, self._stream)
            server = publisher.client.connected_server_version
        named = ", ".join(dict.fromkeys(subjects)) or "no subject"
        return f"JetStream of NATS {server} takes {named}; {_POWER_CUT}"

    async def _send(self, events: Sequence[ChangeEvent]) -> None:
        outgoing = await converted(self._outgoing, events)
        was_open = self._open is not None
        try:
            await self._publish(outgoing)
        except ConnectionLost:
            if not was_open:
                raise
            await self._publish(outgoing)  # by a new one: the server ends idle connections

    async def _publish(self, outgoing: Sequence[Outgoing | None]) -> None:
        async with self._publisher(writes=True) as publisher:
            self._refuse_large(outgoing, publisher)
            ready = [each for each in outgoing if each is not None]
            try:
                for run in _runs(ready):
                    await publisher.publish(run)
            except NotStored as error:
                raise failure(error, len(outgoing)) from error

    def _outgoing(self, events: Sequence[ChangeEvent]) -> list[Outgoing | None]:
        """The message of each event; ``None`` where the envelope has none."""
        scope = self._scope.name
        made: list[Outgoing | None] = []
        for event, message in zip(events, self._messages.of(events, scope), strict=True):
            if message.is_empty:
                made.append(None)
                continue
            database, collection = namespace_of(event, self._scope)
            headers = {
                "Nats-Msg-Id": _message_id(message.id),
                **self._stream,
                "Tailrace-Operation": event.operation_type,
                "Tailrace-Namespace": f"{database}.{collection}",
                **dict(message.trace_headers),
            }
            if message.key is not None:
                headers["Tailrace-Key"] = message.key.decode()
            subject = self._subjects[database, collection, scope]
            made.append(Outgoing(subject, message.value or b"", headers, event.key))
        return made

    def _refuse_large(self, outgoing: Sequence[Outgoing | None], publisher: Publisher) -> None:
        largest = min(publisher.client.max_payload, self._largest or publisher.client.max_payload)
        refused = {
            at: reason
            for at, each in enumerate(outgoing)
            if each is not None
            and each.may_exceed(largest, LARGEST_HEADERS)
            and (reason := _too_large(each, largest))
        }
        if refused:
            raise Refused(refused)

    @asynccontextmanager
    async def _publisher(self, *, writes: bool = False) -> AsyncIterator[Publisher]:
        """The connection, which an error, also a cancellation, closes. Whoever ``writes`` first
        creates a missing stream."""
        if self._open is not None and self._open.is_lost:
            await self._close()
        try:
            if self._open is None:
                self._open = Publisher(self._name, self._settings)
                await self._open.open()
                if writes and self._settings.create_stream:
                    await create_stream(self._name, self._settings, self._open.client)
            yield self._open
        except BaseException:
            await self._close()
            raise

    async def _close(self) -> None:
        publisher, self._open = self._open, None
        if publisher is not None:
            await publisher.close()


def _runs(outgoing: Sequence[Outgoing]) -> Iterator[list[Outgoing]]:
    """The messages in parts, none of which has two of one document.

    Each part is acknowledged before the next is sent. So no later change of a document is stored
    when an earlier one is lost: its repeat would have a known id, and would be dropped.
    """
    run: list[Outgoing] = []
    keys: set[bytes | None] = set()
    for message in outgoing:
        if message.key in keys or len(run) == MOST_PENDING:
            yield run
            run, keys = [], set()
        run.append(message)
        keys.add(message.key)
    if run:
        yield run


def _too_large(message: Outgoing, largest: int) -> str:
    """Why it cannot be published; empty if it can."""
    if message.size > largest:
        return (
            f"its message has {message.size} bytes, NATS takes {largest}: raise max_payload of the "
            "server and max_msg_size of the stream, or leave fields out"
        )
    if message.headers_size > LARGEST_HEADERS:
        return (
            f"the headers of its message, one of which is its document key, have "
            f"{message.headers_size} bytes, JetStream takes {LARGEST_HEADERS}"
        )
    return ""


def _message_id(identity: str) -> str:
    """The header ``Nats-Msg-Id``, the same at each delivery."""
    if len(identity) <= _LONGEST_ID:
        return identity
    return f"sha256-{sha256(identity.encode()).hexdigest()}"
