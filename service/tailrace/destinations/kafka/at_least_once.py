"""The destination without transactions: each change at least once, in order per key."""

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self

from anyio import to_thread
from confluent_kafka import KafkaError

from tailrace.destination import Batch, Comparison, Opening, ProbeContext, ScopeContext
from tailrace.destinations.kafka.comparison import topics_comparison
from tailrace.destinations.kafka.connection import KafkaConnection
from tailrace.destinations.kafka.outcomes import About, about, classified, outage
from tailrace.destinations.kafka.probe import probe_topics
from tailrace.destinations.kafka.records import POSITION, Record, Records
from tailrace.destinations.kafka.sender import Sender, TooSlow
from tailrace.destinations.kafka.settings import KafkaHandlerSettings
from tailrace.destinations.kafka.topics import TopicNames, Topics, TopicsRefused
from tailrace.errors import PermanentError, Refused
from tailrace.event import ChangeEvent


class Kafka:
    """A producer, made with the first batch and again after a failure."""

    compares_from_beginning = True

    def __init__(self, opening: Opening, settings: KafkaHandlerSettings) -> None:
        names = TopicNames(settings.topic, settings.prefix)
        names.of_scopes(opening.follows)
        self.connection = KafkaConnection(opening.name, settings)
        self.topics = Topics(self.connection)
        self.records = Records(settings, names, opening.scope)
        self._names = names
        self._scope = opening.scope.name
        self._follows = opening.scope
        self._settings = settings
        self.sender: Sender | None = None
        self._portion: int | None = None
        """How many events are sent at once, if more took longer than they may."""
        # A process that was paused, and replaced meanwhile, must not send what it had.
        seconds = settings.timeout_seconds
        self._options = {"message.timeout.ms": max(round(seconds * 1000), 1)}

    async def __aenter__(self) -> Self:
        await to_thread.run_sync(self.connection.topics)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await to_thread.run_sync(self._drop)

    async def write(self, batch: Batch) -> None:
        # The process may be paused before the thread begins.
        await to_thread.run_sync(self._write, batch, time.monotonic())

    async def on_ddl(self, event: ChangeEvent) -> None:
        records = self.records.of_ddl(event, self._scope)
        await to_thread.run_sync(self.send, records, 1, time.monotonic())

    async def probe(self, context: ProbeContext) -> str:
        """What is possible: asks about the topics of the scopes, and creates none."""
        return await to_thread.run_sync(
            probe_topics, self.connection, self.topics, self._names.of_scopes(context.scopes)
        )

    @asynccontextmanager
    async def comparison(self, scope: ScopeContext) -> AsyncIterator[Comparison]:
        """Reads the topics of the scope from their beginning."""
        of = topics_comparison(self.connection, self._settings, self._names, self._follows, scope)
        async with of as comparison:
            yield comparison

    def _write(self, batch: Batch, began: float) -> None:
        records, count = self.records.of(batch), len(batch)
        size = self._portion or count
        for first in range(0, count, size):
            part = records
            if size < count:
                part = [record for record in records if first <= record.at < first + size]
            try:
                self.send(part, min(size, count), began)
            except TooSlow:
                self._portion = max(min(size, count) // 2, 1)
                raise
            began = time.monotonic()

    def send(self, records: list[Record], events: int, began: float) -> None:
        """Returns when the brokers have the records of so many events. Blocks.

        ``began``: when they were handed over, on the monotonic clock.
        """
        if not records:
            return
        self.require_topics(records)
        try:
            with classified(self.connection.name, "nothing can be sent"):
                if self.sender is None:
                    self.sender = Sender(self.connection, self._options)
                failed = self.sender.send(records, began)
            if failed:
                raise failure(self.connection.name, records, failed, events)
        except BaseException:
            self._drop()
            self.topics.forget()  # one may be gone: then nobody confirms anything
            raise

    def require_topics(self, records: Sequence[Record]) -> None:
        """Returns when the topics of the records exist; raises :class:`Refused` for events whose
        topic never will."""
        try:
            self.topics.require({record.topic for record in records})
        except TopicsRefused as error:
            raise Refused(
                {
                    record.at: error.reasons[record.topic]
                    for record in records
                    if record.topic in error.reasons
                }
            ) from error

    def _drop(self) -> None:
        sender, self.sender = self.sender, None
        if sender is not None:
            sender.drop()


def failure(
    name: str, records: Sequence[Record], failed: Mapping[int, KafkaError], events: int
) -> Exception:
    """What to raise for ``records`` of so many events of which some were not accepted.

    ``failed``: the errors by index of the event. Of several events, the one at fault is found when
    they are delivered one by one: the broker refuses those that were sent with it, too.
    """
    keyless = {record.at for record in records if record.key is None}
    reasons = {
        at: f"the broker says: {error.str()}"
        for at, error in failed.items()
        if at != POSITION and about(error, keyed=at not in keyless) is not About.DESTINATION
    }
    if reasons and events > 1:
        return PermanentError("; ".join(f"event {at}: {why}" for at, why in reasons.items()))
    return Refused(reasons) if reasons else outage(name, next(iter(failed.values())))
