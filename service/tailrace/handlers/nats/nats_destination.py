"""Publishes the messages of events to JetStream, in order per document."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Self

from anyio import to_thread

from tailrace.engine.batch import Batch, ScopeContext
from tailrace.envelope import messages
from tailrace.errors import PermanentError, Refused, Unavailable
from tailrace.event import ChangeEvent
from tailrace.event.memo import Memo
from tailrace.handlers.handler_type import Opening, Trial
from tailrace.handlers.namespace import Places
from tailrace.handlers.nats import NatsHandlerSettings
from tailrace.handlers.nats.publisher import NotStored, Outgoing, Publisher
from tailrace.handlers.nats.streams import accepts, create_stream, require_streams
from tailrace.handlers.nats.subjects import subject_of, subjects_of

MOST_PENDING = 1000
"""How many messages may wait for their acknowledgements."""

_IN_A_THREAD = 50
"""From this many events on, converting them takes longer than starting a thread."""

_TOO_LARGE = 10054
"""``JSStreamMessageExceedsMaximumErr``: larger than the stream's ``max_msg_size``."""


class NatsDestination:
    """A connection for each scope, made with the first batch and again after each failed call."""

    def __init__(self, opening: Opening, settings: NatsHandlerSettings) -> None:
        self._name = opening.name
        self._settings = settings
        self._follows = opening.follows
        self._places = Places(opening.follows)
        self._mapping = settings.fields.mapping()
        self._stream = {} if settings.stream is None else {"Nats-Expected-Stream": settings.stream}
        self._subjects: Memo[tuple[str, str, str], str] = Memo(
            lambda place: subject_of(settings.subject, *place)
        )
        self._largest: int | None = None
        """The ``max_msg_size`` of the stream at the start, if it has one."""
        self._publishers: dict[str, Publisher] = {}
        """By scope, the open connections."""

    async def __aenter__(self) -> Self:
        async with self._publisher("") as publisher:
            self._largest = await require_streams(
                self._name, self._settings, publisher.client, self._follows
            )
        return self

    async def __aexit__(self, *error: object) -> None:
        for scope in list(self._publishers):
            await self._close(scope)

    async def write(self, batch: Batch) -> None:
        await self._send(list(batch), batch.scope.name)

    async def on_ddl(self, event: ChangeEvent, scope: ScopeContext) -> None:
        await self._send([event], scope.name)

    async def attempt(self, trial: Trial) -> str:
        subjects = [subjects_of(self._settings.subject, scope) for scope in trial.scopes]
        async with self._publisher("") as publisher:
            for subject in subjects if not self._settings.create_stream else ():
                await accepts(publisher, subject, self._stream)
            server = publisher.client.connected_server_version
        named = ", ".join(dict.fromkeys(subjects)) or "no subject"
        return f"JetStream of NATS {server} takes {named}"

    async def _send(self, events: Sequence[ChangeEvent], scope: str) -> None:
        make = partial(self._outgoing, events, scope)
        large = len(events) >= _IN_A_THREAD
        outgoing = await to_thread.run_sync(make) if large else make()
        async with self._publisher(scope) as publisher:
            self._refuse_large(outgoing, publisher)
            ready = [each for each in outgoing if each is not None]
            try:
                for run in _runs(ready):
                    await publisher.publish(run)
            except NotStored as error:
                raise _failure(error, len(events)) from error

    def _outgoing(self, events: Sequence[ChangeEvent], scope: str) -> list[Outgoing | None]:
        """The message of each event; ``None`` where the envelope has none."""
        settings = self._settings
        mapped = events if self._mapping is None else self._mapping.of(events)
        canonical = settings.json_format == "canonical"
        made: list[Outgoing | None] = []
        for event, message in zip(
            events, messages(mapped, scope, settings.envelope, canonical=canonical), strict=True
        ):
            if message.is_empty:
                made.append(None)
                continue
            database, collection = self._places.of(event, scope)
            headers = {
                "Nats-Msg-Id": message.id,
                **self._stream,
                "Tailrace-Operation": event.operation_type,
                "Tailrace-Namespace": f"{database}.{collection}",
            }
            if message.key is not None:
                headers["Tailrace-Key"] = message.key.decode()
            subject = self._subjects[database, collection, scope]
            made.append(Outgoing(subject, message.value or b"", headers, event.key))
        return made

    def _refuse_large(self, outgoing: Sequence[Outgoing | None], publisher: Publisher) -> None:
        largest = min(publisher.client.max_payload, self._largest or publisher.client.max_payload)
        refused = {
            at: f"its message has {each.size} bytes, NATS takes {largest}: raise max_payload of "
            "the server and max_msg_size of the stream, or leave fields out"
            for at, each in enumerate(outgoing)
            if each is not None and each.may_exceed(largest) and each.size > largest
        }
        if refused:
            raise Refused(refused)

    @asynccontextmanager
    async def _publisher(self, scope: str) -> AsyncIterator[Publisher]:
        """The scope's connection; without a scope, one for this block.

        An error, also a cancellation, closes it.
        """
        try:
            if scope not in self._publishers:
                publisher = self._publishers[scope] = Publisher(self._name, self._settings)
                await publisher.open()
                if scope and self._settings.create_stream:
                    await create_stream(self._name, self._settings, publisher.client)
            yield self._publishers[scope]
        except BaseException:
            await self._close(scope)
            raise
        if not scope:
            await self._close(scope)

    async def _close(self, scope: str) -> None:
        await self._publishers.pop(scope).close()


def _runs(outgoing: Sequence[Outgoing]) -> Iterator[list[Outgoing]]:
    """The messages in parts, none of which has two of one document.

    Each part is acknowledged before the next is sent. So no later change of a document is stored
    when an earlier one is lost: its repeat would have a known id, and would be dropped.
    """
    run: list[Outgoing] = []
    keys: set[bytes | None] = set()
    for each in outgoing:
        if each.key in keys or len(run) == MOST_PENDING:
            yield run
            run, keys = [], set()
        run.append(each)
        keys.add(each.key)
    if run:
        yield run


def _failure(error: NotStored, events: int) -> Exception:
    """What JetStream's answer means for a batch of so many events."""
    if error.code == _TOO_LARGE:
        # Others of a larger batch may be stored: delivered alone, the event at fault is refused.
        return Refused({0: str(error)}) if events == 1 else PermanentError(str(error))
    return Unavailable(str(error))
