"""A producer of one scope: sends records and waits for the brokers, in one call of one thread.

It is idempotent: librdkafka repeats what a broker did not confirm, in order and without repeated
records. So nothing above it may repeat a record that it may still send: after a failure the
producer is dropped with all that it holds.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from anyio import from_thread
from confluent_kafka import KafkaError, KafkaException, Producer

from tailrace.destinations.kafka.connection import KafkaConnection, Noted
from tailrace.destinations.kafka.outcomes import ends_waiting, is_late, outage
from tailrace.destinations.kafka.records import Record
from tailrace.errors import Unavailable

_LOOK_SECONDS = 0.1
"""How often a call that waits looks whether it was cancelled."""
_LARGEST_QUEUE_KBYTES = 2_147_483_647
_OPTIONS: dict[str, Any] = {
    "enable.idempotence": True,
    "acks": "all",
    "partitioner": "murmur2_random",  # as Java's producers
    "allow.auto.create.topics": False,
    "delivery.report.only.error": True,
    # A batch is the bound.
    "queue.buffering.max.messages": 0,
    "queue.buffering.max.kbytes": _LARGEST_QUEUE_KBYTES,
}


class TooSlow(Unavailable):
    """The brokers answer, but confirm less in time than they were sent."""


class Sender:
    """A producer that is used until its first failure. Its methods block, and may be cancelled.

    ``more``: further options of librdkafka.
    """

    def __init__(self, connection: KafkaConnection, more: dict[str, Any]) -> None:
        self._name = connection.name
        self._patience = connection.settings.timeout_seconds
        self._transactional = "transactional.id" in more
        self._noted = Noted()
        options = connection.options(self._noted.note) | _OPTIONS
        options["message.max.bytes"] = connection.settings.max_message_bytes
        self.producer = Producer(options | more)

    def send(self, records: Sequence[Record], began: float | None = None) -> dict[int, KafkaError]:
        """Returns when the brokers have all; returns what they refuse, by index of the event.

        In a transaction it returns with the first one: librdkafka sends no more then. ``began``:
        when the records were handed over; what is older than ``timeout_seconds`` is not sent.

        Raises :class:`Unavailable` if they do not answer: what they have is not known then.
        """
        failed: dict[int, KafkaError] = {}
        self._produce(records, failed)
        if began is not None and time.monotonic() - began > self._patience:
            raise Unavailable(f"handlers.{self._name}: the process was paused: not sent")
        self._wait(
            lambda: 0 if self._transactional and failed else self.producer.flush(_LOOK_SECONDS)
        )
        late = sum(map(is_late, failed.values()))
        if late and late < len({record.at for record in records}):
            raise TooSlow(
                f"handlers.{self._name}: the brokers confirmed only a part of the batch in "
                f"{self._patience:g} s (timeout_seconds): it is sent in smaller parts from now on"
            )
        if late and self._noted.error is not None:
            raise outage(self._name, self._noted.error)
        return dict(failed)  # the end of a transaction adds what was not sent

    def wait_for(self, call: Callable[[float], object]) -> None:
        """Calls a method of the producer that begins or ends a transaction until it has an answer.

        Raises :class:`Unavailable` if there is none, and what the call raises otherwise.
        """

        def left() -> int:
            try:
                call(_LOOK_SECONDS)
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
                if error.args[0].code() != KafkaError._TIMED_OUT:  # as while it is loading
                    time.sleep(_LOOK_SECONDS)
                self.producer.poll(0)  # an abort waits for what it has purged to be reported
                return 1
            return 0

        self._wait(left)

    def _produce(self, records: Sequence[Record], failed: dict[int, KafkaError]) -> None:
        produce, note = self.producer.produce, partial(_note, failed)
        for index, topic, key, value, headers in records:
            done = partial(note, index)
            try:
                produce(topic, value, key, on_delivery=done, headers=headers)
            except KafkaException as error:
                failed.setdefault(index, error.args[0])

    def _wait(self, step: Callable[[], int]) -> None:
        """Calls ``step`` until it returns 0, what is left to do. It may take ``_LOOK_SECONDS``."""
        left, since = step(), time.monotonic()
        while left:
            from_thread.check_cancelled()
            error = self._noted.error
            if error is not None and ends_waiting(error):
                raise outage(self._name, error)
            before, left = left, step()
            now = time.monotonic()
            if left < before:
                since = now
            elif now - since > self._patience:
                if error is not None:
                    raise outage(self._name, error)
                raise Unavailable(
                    f"handlers.{self._name}: the brokers confirmed nothing in "
                    f"{self._patience:g} s (timeout_seconds)"
                )

    def drop(self) -> None:
        """Forgets all that is not sent, and closes the connections."""
        self.producer.purge()
        with suppress(KafkaException):  # of a producer with a fatal error
            self.producer.flush(0)
        del self.producer  # close() would wait for the end of a transaction


def _note(failed: dict[int, KafkaError], index: int, error: KafkaError, message: object) -> None:
    failed.setdefault(index, error)
