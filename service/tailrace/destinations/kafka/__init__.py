"""The type ``kafka``. confluent-kafka is an extra, and takes 10 MB: imported when needed.

One change takes this way: :mod:`records` makes records of a batch and refuses those that are too
large, :mod:`topics` names their topics and creates what is missing, :mod:`sender` sends them and
waits for the brokers, :mod:`outcomes` says what an error means. :mod:`at_least_once` and
:mod:`exactly_once` are the two destinations; the latter keeps its position by :mod:`positions`.
"""

from typing import TYPE_CHECKING

from tailrace.destination import Opening, destination_type
from tailrace.destinations.kafka.settings import KafkaHandlerSettings
from tailrace.errors import ConfigurationError, Problem, how_to_install

if TYPE_CHECKING:
    from tailrace.destinations.kafka.at_least_once import Kafka


def _create(opening: Opening, settings: KafkaHandlerSettings) -> "Kafka":
    if settings.exactly_once:
        from tailrace.destinations.kafka.exactly_once import ExactlyOnceKafka

        return ExactlyOnceKafka(opening, settings)
    from tailrace.destinations.kafka.at_least_once import Kafka

    return Kafka(opening, settings)


def _check(name: str, settings: KafkaHandlerSettings) -> None:
    from tailrace.destinations.kafka.connection import unusable

    if message := unusable(settings):
        raise ConfigurationError(Problem(f"handlers.{name}.client", message))


KAFKA = destination_type(
    KafkaHandlerSettings,
    _create,
    _check,
    needs=("confluent_kafka",),
    install=how_to_install("kafka"),
    is_comparable=lambda settings: False,
)
