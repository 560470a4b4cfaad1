"""Real connectors run beside a server, stop, and Tailrace goes on from the files that they leave.

Both are run by Debezium's engine, which keeps offsets as a worker of Kafka Connect does. Maven
fetches the jars once per user.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tailrace.cli import main
from tailrace.demo.destinations.kafka_programs import broker_command, maven_jars
from tests.daemon import Make
from tests.machine import exclusive, run
from tests.mongod import ReplicaSet

HERE = Path(__file__).parent
DEBEZIUM, MONGO_KAFKA = "3.6.1.Final", "2.0.1"
JARS = {
    "debezium": f"io.debezium:debezium-connector-mongodb:{DEBEZIUM}",
    "mongo-kafka": f"org.mongodb.kafka:mongo-kafka-connect:{MONGO_KAFKA}",
}
ENGINE = [f"io.debezium:debezium-{name}:{DEBEZIUM}" for name in ("api", "embedded")]
COMPILER = "org.eclipse.jdt:ecj:3.40.0"
"""Compiles ``Peer.java``: Java's own compiler is not where there is only a JRE."""
OPTIONS = {
    "debezium": """
connector.class=io.debezium.connector.mongodb.MongoDbConnector
mongodb.connection.string={uri}
topic.prefix=p
collection.include.list={database}\\\\.orders
field.exclude.list={database}.orders.secret
skipped.operations=none
poll.interval.ms=50
""",
    "mongo-kafka": """
connector.class=com.mongodb.kafka.connect.MongoSourceConnector
connection.uri={uri}
database={database}
collection=orders
pipeline=[{{"$match": {{"operationType": {{"$ne": "drop"}}}}}}]
startup.mode=copy_existing
poll.await.time.ms=100
""",
}
STORAGE = """
name=shop
offset.storage=org.apache.kafka.connect.storage.FileOffsetBackingStore
offset.storage.file.filename={offsets}
offset.flush.interval.ms=0
"""


@contextmanager
def running(peer: str, properties: Path) -> Iterator[Any]:
    """The connector's output; it stops cleanly, and so saves its position, after the block."""
    with exclusive():
        jars = maven_jars(f"{peer}-for-tests", *ENGINE, JARS[peer], COMPILER)
    classes = properties.parent / "classes"
    compiler = broker_command(jars, "org.eclipse.jdt.internal.compiler.batch.Main")
    source, path = str(HERE / "Peer.java"), f"{jars}/*"
    options = ["-17", "-nowarn", "-cp", ":".join(map(str, jars.glob("debezium-*.jar")))]
    run([*compiler, *options, "-d", str(classes), source], cwd=properties.parent)
    java, *rest = broker_command(jars, "Peer")
    command = [java, *(f"{part}:{classes}" if part == path else part for part in rest)]
    with (
        properties.with_suffix(".log").open("w") as log,
        subprocess.Popen(
            [*command, str(properties)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        try:
            yield process.stdout
        finally:
            process.communicate()


@pytest.mark.parametrize("peer", OPTIONS)
def test_no_change_is_lost_or_repeated(
    peer: str,
    mongod: ReplicaSet,
    database: str,
    daemon: Make,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    properties, offsets = tmp_path / "connector.properties", tmp_path / "offsets"
    text = (STORAGE + OPTIONS[peer]).format(uri=mongod.uri, database=database, offsets=offsets)
    properties.write_text(text)
    with mongod.client() as client:
        orders, others = client[database].orders, client[database].others
        orders.insert_one({"_id": 0})
        with running(peer, properties) as output:
            output.readline()  # of the snapshot: changes after it are in the stream
            orders.insert_many([{"_id": n, "secret": 7} for n in (1, 2)])
            read = [output.readline(), output.readline()]
            assert all('\\"_id\\"' in line for line in read)
        others.insert_one({"_id": 3})
        orders.insert_one({"_id": 4, "secret": 7})
        orders.update_one({"_id": 1}, {"$set": {"secret": 8, "total": 1}})
        orders.delete_one({"_id": 2})

    command = ["migrate", "--from", peer, str(properties), "--offsets", str(offsets)]
    assert main([*command, "--dry-run"]) == 0
    *shown, end = capsys.readouterr().out.splitlines()
    operations = ["insert", "update", "delete"]
    if peer == "debezium":
        assert [line.split("\t")[0] for line in shown if f"{database}.orders" in line] == operations
    else:
        assert [line.split("\t")[0] for line in shown] == operations
    assert "no further changes" in end

    assert main(command) == 0
    config = yaml.safe_load(capsys.readouterr().out)
    (handler,) = config["handlers"]
    fields = config["handlers"][handler].get("fields", {})
    config["handlers"][handler] = {"type": "jsonl", "path": "events.jsonl", "fields": fields}
    service = daemon(**config, uri=config.pop("mongodb")["uri"]).start()
    events = service.until_events(3)
    assert service.stop() == 0
    assert [event["operationType"] for event in events] == operations
    assert [event["documentKey"]["_id"] for event in events] == [4, 1, 2]
    assert ("secret" in str(events)) is (peer != "debezium")

    other = HERE / "files" / f"{peer}.offsets"
    assert main([*command[:-1], str(other), "--dry-run"]) == 2
    error = capsys.readouterr().err
    assert str(other) in error
