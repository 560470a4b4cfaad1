"""The destination with transactions: each change once, for consumers of committed records.

A batch and the position after it are one transaction. What keeps out a process that was replaced:
its transactional id, which the next process takes over in ``begin``; the epoch, which that process
stores then; and the former position, which it reads after that.
"""

from typing import Any

from anyio import to_thread
from confluent_kafka import KafkaError, KafkaException

from tailrace.destination import Batch, Opening, ProbeContext, ScopeContext
from tailrace.destinations.kafka.at_least_once import Kafka, failure
from tailrace.destinations.kafka.outcomes import classified, fences
from tailrace.destinations.kafka.positions import PositionsTopic, Stored
from tailrace.destinations.kafka.records import Record
from tailrace.destinations.kafka.sender import Sender
from tailrace.destinations.kafka.settings import KafkaHandlerSettings
from tailrace.errors import BatchTooLarge, Fenced, PermanentError, Unavailable


class ExactlyOnceKafka(Kafka):
    """A transactional producer, made by ``begin``."""

    def __init__(self, opening: Opening, settings: KafkaHandlerSettings) -> None:
        super().__init__(opening, settings)
        self._positions = PositionsTopic(self.connection, self._scope)
        self._stored: Stored | None = None
        """What is stored unless another process writes."""

    async def begin(self, scope: ScopeContext) -> str | None:
        return await to_thread.run_sync(self._begin, scope)

    async def probe(self, context: ProbeContext) -> str:
        """As without transactions. No transactional id is used: that would fence the daemon."""
        message = await super().probe(context)
        return f"{message}; {await to_thread.run_sync(self._positions.try_topic)}"

    def _begin(self, scope: ScopeContext) -> str | None:
        self._drop()
        # This process may have died in a transaction: it is open until the id is taken over.
        self._require_epoch(scope, self._positions.last(waits=False))
        try:
            self.sender = self._taken_over()
            stored = self._positions.last()
            self._require_epoch(scope, stored)
            if stored == Stored() and (self._stored is not None or scope.epoch > 1):
                scope.log.warning(
                    "position.lost",
                    topic=self.connection.settings.positions_topic,
                    consequence="the scope goes on from its checkpoint: changes may come twice",
                )
            self._stored = stored
            if stored.epoch < scope.epoch:
                stored = Stored(scope.epoch, stored.position)
                self._commit([], 0, stored)
        except BaseException:
            self._drop()
            raise
        self._stored = stored
        return stored.position

    def _taken_over(self, more: dict[str, Any] | None = None) -> Sender:
        """A producer that fenced those before it, and ended their transactions.

        ``more``: further options of librdkafka.
        """
        settings = self.connection.settings
        options: dict[str, Any] = {
            "transactional.id": f"{settings.positions_topic}.{self.connection.name}.{self._scope}",
            "transaction.timeout.ms": round(settings.transaction_timeout_seconds * 1000),
        }
        with classified(self.connection.name, "positions_topic: no transaction can begin"):
            sender = Sender(self.connection, options | (more or {}))
            sender.wait_for(sender.producer.init_transactions)
        return sender

    @staticmethod
    def _require_epoch(scope: ScopeContext, stored: Stored) -> None:
        if stored.epoch > scope.epoch:
            raise Fenced(f"the epoch of a later process is stored: {stored.epoch}")

    def _write(self, batch: Batch, began: float) -> None:
        records = self.records.of(batch)
        stored = self._stored
        if stored is None or stored.position != batch.former:
            raise Fenced("another position is stored than before this batch")
        after = Stored(stored.epoch, batch.position)
        self._commit(records, len(batch), after)
        self._stored = after

    def send(self, records: list[Record], events: int, began: float) -> None:
        if records:
            self._commit(records, events, None)

    def _commit(self, records: list[Record], events: int, after: Stored | None) -> None:
        """Sends the records of so many events and the position after them, if it moves, in one
        transaction."""
        self.require_topics(records)
        position = [] if after is None else [self._positions.record(after)]
        try:
            with classified(self.connection.name, "the transaction failed"):
                self._transaction([*records, *position], events)
        except BaseException as error:
            self._drop()
            self.topics.forget()  # one may be gone: then nobody confirms anything
            self._positions.forget()
            if isinstance(error.__cause__, KafkaException) and fences(error.__cause__.args[0]):
                raise self._fenced() from error
            raise

    def _transaction(self, records: list[Record], events: int) -> None:
        sender = self.sender
        if sender is None:
            raise Unavailable("the producer was dropped after a failure")
        producer = sender.producer
        producer.begin_transaction()
        failed = sender.send(records)
        for error in failed.values():
            if fences(error):
                raise KafkaException(error)
        if failed:
            sender.wait_for(producer.abort_transaction)
            raised = failure(self.connection.name, records, failed, events)
            if isinstance(raised, PermanentError) and (alone := self._refused_alone(records)):
                raised = failure(self.connection.name, records, alone, 1)
            raise raised
        sender.wait_for(producer.commit_transaction)

    def _refused_alone(self, records: list[Record]) -> dict[int, KafkaError]:
        """What the broker refuses if each record is sent alone: none is refused with another.

        The transaction is always aborted: whose turn it is, only ``begin`` knows.
        """
        self._drop()
        sender = self.sender = self._taken_over({"batch.num.messages": 1})
        sender.producer.begin_transaction()
        failed = sender.send(records)
        sender.wait_for(sender.producer.abort_transaction)
        return failed

    def _fenced(self) -> Exception:
        """What to raise if the broker has a newer producer.

        If nothing else was stored, the transaction may only have taken longer than it may, as in a
        paused process, or a request of the producer before came late. No event is at fault: the
        next ``begin`` tells, and half of the batch may be fast enough.
        """
        if self._positions.last() != self._stored:
            return Fenced("another process writes with this transactional id")
        return BatchTooLarge(
            f"handlers.{self.connection.name}.transaction_timeout_seconds: the broker ended the "
            "transaction: it was open for longer, or another producer has begun to write"
        )
