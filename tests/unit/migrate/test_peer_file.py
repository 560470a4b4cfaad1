"""Files of Kafka Connect as their users have them."""

import json

import pytest

from tests.unit.migrate.conftest import Migrate

CLASS = "io.debezium.connector.mongodb.MongoDbConnector"
PROPERTIES = r"""
# a comment goes on in no other line \
name=shop
  ! and this one neither \
connector.class : io.debezium.connector.mongodb.MongoDbConnector
mongodb.connection.string = mongodb\://user\:p\u0040ss@h1\:27017,\
    #no-comment\:27017/?replicaSet\=rs0
topic.prefix:sh\
  # \
  \op\\
collection.include.list shop\\.orders
"""
STRIMZI = """
apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaConnector
metadata:
  name: shop
  labels: {strimzi.io/cluster: connect}
spec:
  class: io.debezium.connector.mongodb.MongoDbConnector
  tasksMax: 1
  config:
    mongodb.connection.string: "mongodb://h/?replicaSet=rs0"
    mongodb.user: ${strimzienv:MongoUser}
    mongodb.password: ${secrets:kafka/mongo:pass-word}
    topic.prefix: p
    tombstones.on.delete: false
"""


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=repr)
def test_properties_are_read_as_java_reads_them(migrate: Migrate, end: str) -> None:
    done = migrate("debezium", PROPERTIES.replace("\n", end))
    assert done.scope["name"] == "shop"
    assert (done.scope["database"], done.scope["collection"]) == ("shop", "orders")
    assert done.handler["prefix"] == "sh# op\\"
    hosts = "h1:27017,#no-comment:27017"
    assert done.config["mongodb"]["uri"] == (
        f"mongodb://user:${{MONGODB_PASSWORD}}@{hosts}/?replicaSet=rs0"
    )
    assert "p@ss" not in done.text + done.error


def test_a_resource_of_strimzi_is_a_connector(migrate: Migrate) -> None:
    done = migrate("debezium", STRIMZI)
    assert done.scope["name"] == "shop"
    assert done.handler["tombstones"] is False
    assert done.config["mongodb"]["uri"] == (
        "mongodb://${MongoUser}:${PASS_WORD}@h/?replicaSet=rs0&authSource=admin"
    )


@pytest.mark.parametrize(
    ("text", "variable"),
    [
        ("${strimzienv:ME}", "${ME}"),
        ("${env:Me}", "${Me}"),
        ("${vault:ME}", "${ME}"),
        ("${file:/run/secrets/x.properties:me}", "${ME}"),
        ("${ME}", "${ME}"),
    ],
)
def test_a_colon_in_a_variable_of_kafka_connect_stands_before_a_key(
    migrate: Migrate, text: str, variable: str
) -> None:
    uri = f"mongodb://{text}@db/?replicaSet=rs0"
    options = {"connector.class": CLASS, "mongodb.connection.string": uri, "topic.prefix": "p"}
    properties = "\n".join(f"{key}={value}" for key, value in options.items())
    for file in (json.dumps(options), properties):
        done = migrate("debezium", file)
        assert done.config["mongodb"]["uri"] == f"mongodb://{variable}@db/?replicaSet=rs0"


def test_in_a_file_of_debezium_server_it_stands_before_a_default(migrate: Migrate) -> None:
    source = {"connector.class": CLASS, "topic.prefix": "${P:shop}"}
    source["mongodb.connection.string"] = "mongodb://db/?replicaSet=rs0"
    lines = [f"debezium.source.{key}={value}" for key, value in source.items()]
    done = migrate("debezium", "\n".join([*lines, "debezium.sink.type=kafka"]))
    assert done.handler["prefix"] == "${P:-shop}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": {"info": {"config": {}}}, "b": {"info": {"config": {}}}}',
         "has the connectors a, b: give a file with one of them"),
        ("kind: KafkaConnector\nspec: {}\n", "spec.config: there are no options of a connector"),
        ("kind: KafkaConnector\nspec: [\n", "is no YAML"),
        ("kind: KafkaConnector\nspec: {config: {a: b}}\n", "there is no connector.class"),
    ],
)  # fmt: skip
def test_a_file_without_one_connector_is_one_line(
    migrate: Migrate, text: str, message: str
) -> None:
    done = migrate("debezium", text)
    assert (done.code, done.text, done.error.count("\n")) == (2, "", 1)
    assert message in done.error
