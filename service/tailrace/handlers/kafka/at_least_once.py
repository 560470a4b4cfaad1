"""The destination without transactions: each change at least once, in order per key."""

import time
from types import TracebackType
from typing import Self

from anyio import to_thread
from confluent_kafka import KafkaError

from tailrace.engine.batch import Batch, ScopeContext
from tailrace.errors import PermanentError, Refused
from tailrace.event import ChangeEvent
from tailrace.handlers.handler_type import Opening, Trial
from tailrace.handlers.kafka.connection import KafkaConnection
from tailrace.handlers.kafka.outcomes import classified, lacks_topic, outage, refuses_record
from tailrace.handlers.kafka.records import Record, Records
from tailrace.handlers.kafka.sender import Sender
from tailrace.handlers.kafka.settings import KafkaHandlerSettings
from tailrace.handlers.kafka.topics import TopicNames, Topics
from tailrace.handlers.kafka.trial import try_topics


class Kafka:
    """One producer for each scope, made with the first batch and again after a failure."""

    def __init__(self, opening: Opening, settings: KafkaHandlerSettings) -> None:
        names = TopicNames(settings.topic, settings.prefix)
        names.of_scopes(opening.follows)
        self.connection = KafkaConnection(opening.name, settings)
        self.topics = Topics(self.connection)
        self.records = Records(settings, names)
        self._names = names
        self.senders: dict[str, Sender] = {}
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
        for scope in list(self.senders):
            await to_thread.run_sync(self._drop, scope)

    async def write(self, batch: Batch) -> None:
        # The process may be paused before the thread begins.
        await to_thread.run_sync(self._write, batch, time.monotonic())

    async def on_ddl(self, event: ChangeEvent, scope: ScopeContext) -> None:
        await to_thread.run_sync(self._write_ddl, event, scope.name, time.monotonic())

    async def attempt(self, trial: Trial) -> str:
        """What is possible: asks about the topics of the scopes, and creates none."""
        return await to_thread.run_sync(
            try_topics, self.topics, self._names.of_scopes(trial.scopes)
        )

    def _write(self, batch: Batch, began: float) -> None:
        self.send(batch.scope.name, self.records.of(batch), len(batch), began)

    def _write_ddl(self, event: ChangeEvent, scope: str, began: float) -> None:
        self.send(scope, self.records.of_ddl(event, scope), 1, began)

    def send(self, scope: str, records: list[Record], events: int, began: float) -> None:
        """Returns when the brokers have the records of so many events. Blocks.

        ``began``: when they were handed over, on the monotonic clock.
        """
        if not records:
            return
        self.topics.require({record.topic for record in records})
        try:
            with classified(self.connection.name, "nothing can be sent"):
                if scope not in self.senders:
                    self.senders[scope] = Sender(self.connection, self._options)
                failed = self.senders[scope].send(records, began)
        except BaseException:
            self._drop(scope)
            raise
        if failed:
            raise failure(self.connection.name, self.topics, failed, stored=events > 1)

    def _drop(self, scope: str) -> None:
        sender = self.senders.pop(scope, None)
        if sender is not None:
            sender.drop()


def failure(name: str, topics: Topics, failed: dict[int, KafkaError], *, stored: bool) -> Exception:
    """What to raise for records that were not accepted, by index of their events.

    ``stored``: others of the batch may have been. Then they cannot be set aside from it: the events
    are delivered again, one by one.
    """
    for error in failed.values():
        if lacks_topic(error):
            topics.forget()
        if not refuses_record(error):
            return outage(name, error)
    reasons = {index: f"the broker says: {error.str()}" for index, error in failed.items()}
    if stored:
        return PermanentError("; ".join(f"event {at}: {why}" for at, why in reasons.items()))
    return Refused(reasons)
