"""How clients of one handler connect: librdkafka's options, made anew for each client."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from tailrace.destinations.kafka.outcomes import classified, ends_waiting, outage
from tailrace.destinations.kafka.settings import KafkaHandlerSettings
from tailrace.errors import Unavailable

ANSWER_SECONDS = 5.0
"""How long a broker may take for an answer about topics."""


@dataclass(frozen=True, slots=True)
class KafkaConnection:
    """The servers of handler ``name``. Secrets are read whenever a client is made."""

    name: str
    settings: KafkaHandlerSettings

    def options(self, note: Callable[[KafkaError], Any]) -> dict[str, Any]:
        """The options of any client. ``note`` gets the errors of its connections.

        Raises :class:`Unavailable` if a secret cannot be read.
        """
        settings = self.settings
        options = common_options(settings)
        options["error_cb"] = note
        if settings.password is not None:
            options["sasl.password"] = settings.password.read()
        return options

    def admin(self, note: Callable[[KafkaError], Any] = lambda error: None) -> AdminClient:
        """A client for questions about topics, and for their creation."""
        return AdminClient(self.options(note))

    def topics(self) -> dict[str, int]:
        """How many partitions each topic has. Blocks for seconds at most.

        Raises :class:`Unavailable` if no broker answers.
        """
        noted = Noted()
        with classified(self.name, "no broker answers"):
            admin = self.admin(noted.note)
            try:
                listed = admin.list_topics(timeout=ANSWER_SECONDS).topics
                return {name: len(topic.partitions) for name, topic in listed.items()}
            except KafkaException as error:
                admin.poll(0)
                if noted.error is not None:
                    raise outage(self.name, noted.error) from error
                raise


@dataclass(slots=True)
class Noted:
    """The error of a client's connections that tells most."""

    error: KafkaError | None = field(default=None)

    def note(self, error: KafkaError) -> None:
        """Keeps the first one, unless a later one ends all waiting."""
        summary = error.code() == KafkaError._ALL_BROKERS_DOWN
        if self.error is None or (ends_waiting(error) and not ends_waiting(self.error)):
            self.error = None if summary else error


def common_options(settings: KafkaHandlerSettings) -> dict[str, Any]:
    """The options of any client, without the password."""
    options: dict[str, Any] = {
        "client.id": "tailrace",
        "log_level": 0,
        **settings.client,
        "bootstrap.servers": settings.bootstrap_servers,
        "security.protocol": settings.security_protocol,
    }
    if "debug" not in settings.client:
        options["logger"] = _silent()
    if settings.sasl_mechanism is not None:
        options["sasl.mechanism"] = settings.sasl_mechanism
    if settings.username is not None:
        options["sasl.username"] = settings.username
    if settings.ssl_ca_location is not None:
        options["ssl.ca.location"] = settings.ssl_ca_location
    return options


def _silent() -> logging.Logger:
    """Instead of stderr, to which librdkafka writes. What matters comes as errors."""
    logger = logging.Logger("kafka")
    logger.addHandler(logging.NullHandler())
    return logger


def unusable(settings: KafkaHandlerSettings) -> str:
    """What librdkafka says against the options; empty if it takes them. Connects to nothing."""
    options = common_options(settings)
    del options["bootstrap.servers"]
    try:
        if settings.password is not None:
            options["sasl.password"] = settings.password.read()
        Producer(options)
    except KafkaException as error:
        return str(error.args[0].str())
    except (TypeError, ValueError) as error:
        return str(error)
    except Unavailable:
        return ""  # while a mounted secret is replaced; it is read again before it is needed
    return ""
