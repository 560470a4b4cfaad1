"""The topics of collections: their names, by Debezium's rule, and their creation.

https://debezium.io/documentation/reference/stable/connectors/mongodb.html#mongodb-topic-names
"""

import re
from collections.abc import Collection, Iterable, Mapping
from threading import Lock

import structlog
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from tailrace.destination import Template
from tailrace.destinations.kafka.connection import ANSWER_SECONDS, KafkaConnection
from tailrace.destinations.kafka.outcomes import classified, outage
from tailrace.errors import Unavailable
from tailrace.model import Scope

LONGEST_NAME = 249
"""https://github.com/apache/kafka/blob/trunk/clients/src/main/java/org/apache/kafka/common/internals/Topic.java"""
_ILLEGAL = re.compile(r"[^A-Za-z0-9._-]")


class TopicsRefused(Exception):
    """The brokers never create topics with these names, such as ``a.b`` beside ``a_b``, which have
    the same metrics (Topic.hasCollision). ``reasons``: by name."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        super().__init__("; ".join(reasons.values()))
        self.reasons = reasons


Namespaces = tuple[str, str, str]
"""Database, collection, scope."""


class TopicNames:
    """Makes the names, and refuses two texts that would become one name."""

    def __init__(self, template: Template, prefix: str | None) -> None:
        self._template = template
        self._prefix = prefix or ""
        self._known: dict[Namespaces, str] = {}
        self._texts: dict[str, str] = {}
        self._lock = Lock()

    def of(self, namespace: Namespaces) -> str:
        """The name of the topic. Raises ``ValueError`` if there can be none."""
        found = self._known.get(namespace)
        if found is None:
            with self._lock:
                found = self._known[namespace] = self._made(namespace)
        return found

    def of_scopes(self, scopes: Iterable[Scope]) -> list[str]:
        """The topics that are known before any event. Raises ``ValueError`` as :meth:`of`."""
        return [
            self.of((each.database, each.collection, each.name))
            for each in scopes
            if each.database is not None and each.collection is not None
        ]

    def _made(self, namespace: Namespaces) -> str:
        database, collection, scope = namespace
        text = self._template.name(database, collection, scope=scope, prefix=self._prefix)
        name = _ILLEGAL.sub("_", text)
        if len(name) > LONGEST_NAME or name in (".", ".."):
            raise ValueError(
                f"topic: {name!r} cannot name a topic (1 to {LONGEST_NAME} characters)"
            )
        other = self._texts.setdefault(name, text)
        if other != text:
            raise ValueError(
                f"topic: {text!r} and {other!r} would both be the topic {name}: "
                "route them to handlers with different topics"
            )
        return name


class Topics:
    """Knows which topics exist, and creates those that are missing if it may."""

    def __init__(self, connection: KafkaConnection) -> None:
        self._connection = connection
        self._known: set[str] = set()
        self._lock = Lock()

    def require(self, names: Collection[str]) -> None:
        """Returns when all exist. Blocks; raises :class:`Unavailable` if one does not, and
        :class:`TopicsRefused` if one never will."""
        if self._known.issuperset(names):
            return
        with self._lock:
            missing = self.missing(names)
            if missing:
                self.create(missing)
            self._known.update(names)

    def forget(self) -> None:
        """Topics may be gone."""
        self._known.clear()

    def missing(self, names: Collection[str]) -> list[str]:
        """Those that do not exist."""
        return sorted(set(names) - self._connection.topics().keys())

    def create(self, names: Collection[str], *, only_try: bool = False) -> None:
        """Creates topics as the settings say. ``only_try``: the broker checks, and creates none."""
        settings, name = self._connection.settings, self._connection.name
        if not settings.create_topics:
            raise Unavailable(
                f"handlers.{name}.topic: {', '.join(names)} does not exist: create it, or set "
                "create_topics"
            )
        config = {}
        if settings.max_message_bytes > 1_000_000:  # and the broker's default is hardly more
            config["max.message.bytes"] = str(settings.max_message_bytes + 4096)
        partitions, replicas = settings.partitions or -1, settings.replication_factor or -1
        ddl = {"cleanup.policy": "delete"}  # whatever the broker's default is
        created = [
            NewTopic(
                topic,
                partitions,
                replicas,
                config=config | ddl if topic == settings.ddl_topic else config,
            )
            for topic in names
        ]
        create_topics(self._connection, created, "create_topics", only_try=only_try)


def create_topics(
    connection: KafkaConnection, topics: list[NewTopic], key: str, *, only_try: bool = False
) -> None:
    """Creates topics, unless they exist by now. ``key`` is what the user can look at.

    Raises :class:`TopicsRefused` for names that can never be created.
    """
    refused: dict[str, str] = {}
    with classified(connection.name, f"{key}: the topics cannot be created"):
        admin: AdminClient = connection.admin()
        seconds = ANSWER_SECONDS
        results = admin.create_topics(
            topics, operation_timeout=seconds, request_timeout=seconds, validate_only=only_try
        )
        for topic, result in results.items():
            try:
                result.result()
                if not only_try:
                    log = structlog.get_logger().bind(handler=connection.name)
                    log.info("topic.created", topic=topic)
            except KafkaException as error:
                code, what = error.args[0].code(), f"{key}: topic {topic} cannot be created"
                if code == KafkaError.TOPIC_EXCEPTION and not only_try:
                    refused[topic] = f"{what}: {error.args[0].str()}"
                elif code != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise outage(connection.name, error.args[0], what) from error
    if refused:
        raise TopicsRefused(refused)


def cleanup_policy(connection: KafkaConnection, topic: str, key: str) -> str:
    """The setting of a topic that exists; empty without the right to read it, which ``run`` does
    not need either."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    with classified(connection.name, f"{key}: the settings of {topic} cannot be read"):
        admin = connection.admin()
        answer = admin.describe_configs([resource], request_timeout=ANSWER_SECONDS)[resource]
        try:
            return str(answer.result()["cleanup.policy"].value)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise
            return ""
