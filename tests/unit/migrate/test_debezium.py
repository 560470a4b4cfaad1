"""Debezium's configurations: of Kafka Connect, of Debezium Server, and of the engine."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.migrate.conftest import Migrate

FILES = Path(__file__).parents[2] / "migrate" / "files"
CLASS = "io.debezium.connector.mongodb.MongoDbConnector"
SERVER = "mongodb://db:27017/?replicaSet=rs0"

SHOP = {
    "connector.class": CLASS,
    "mongodb.connection.string": SERVER,
    "topic.prefix": "dbserver1",
    "collection.include.list": "shop\\.orders,shop\\.users",
}


def connector(**options: str) -> str:
    """The body of a request to Kafka Connect; ``__`` in names stands for a dot."""
    own = {name.replace("__", "."): value for name, value in options.items()}
    return json.dumps({"name": "shop", "config": {**SHOP, **own}})


def test_a_connector_becomes_a_scope_a_handler_and_a_route(migrate: Migrate) -> None:
    done = migrate("debezium", connector(producer__override__bootstrap__servers="kafka:9092"))
    assert done.config == {
        "mongodb": {"uri": SERVER},
        "scopes": [
            {
                "name": "shop",
                "database": "shop",
                "pipeline": [
                    {
                        "$match": {
                            "$or": [
                                {"operationType": "invalidate"},
                                {"ns.coll": {"$in": ["orders", "users"]}},
                            ]
                        }
                    }
                ],
                "full_document": "lookup",
                "snapshot": "initial",
            }
        ],
        "handlers": {
            "kafka": {
                "type": "kafka",
                "envelope": "debezium",
                "bootstrap_servers": "kafka:9092",
                "prefix": "dbserver1",
            }
        },
        "routes": [
            {"scope": "shop", "namespaces": ["shop.orders", "shop.users"], "handlers": ["kafka"]}
        ],
    }
    assert list(done.lost) == ["collection.include.list", "key.converter", "value.converter"]


@pytest.mark.parametrize(
    ("options", "changed"),
    [
        ({"capture__mode": "change_streams"}, {"full_document": None}),
        (
            {"capture__mode": "change_streams_update_full_with_pre_image"},
            {"full_document": "lookup", "full_document_before_change": "whenAvailable"},
        ),
        (
            {"capture__mode__full__update__type": "post_image"},
            {"full_document": "whenAvailable"},
        ),
        ({"snapshot__mode": "no_data"}, {"snapshot": None}),
        (
            {"snapshot__mode": "when_needed"},
            {"snapshot": "initial", "on_history_lost": "snapshot"},
        ),
        ({"snapshot__max__threads": "2"}, {"snapshot": {"mode": "initial", "parallel": 2}}),
        ({"cursor__oversize__handling__mode": "split"}, {"split_large_events": True}),
        ({"cursor__max__await__time__ms": "500"}, {"max_await_time_ms": 500}),
        ({"query__fetch__size": "100"}, {"batch_size": 100}),
        (
            {"cursor__pipeline": '[{"$match": {"fullDocument.state": "paid"}}]'},
            {"full_document": "updateLookup"},  # which is looked up before the stage
        ),
        (
            {"capture__scope": "collection", "capture__target": "shop.orders"},
            {"database": "shop", "collection": "orders"},
        ),
    ],
)
def test_what_a_stream_is_opened_with(
    migrate: Migrate, options: dict[str, str], changed: dict[str, Any]
) -> None:
    scope = migrate("debezium", connector(**options)).scope
    assert {name: scope.get(name) for name in changed} == changed


@pytest.mark.parametrize(
    ("lists", "namespaces", "names_in_pipeline"),
    [
        ({"collection.include.list": "shop.orders"}, ["shop.orders"], "orders"),
        ({"collection.include.list": "^shop\\.orders$"}, ["shop.orders"], "orders"),
        ({"collection.include.list": "shop[.]o.*"}, ["shop.o*"], "$regexMatch"),
        ({"collection.include.list": "shop.*"}, ["shop*.*"], "$regexMatch"),
        ({"collection.include.list": "a\\.b|c\\.d"}, ["a.b", "c.d"], "b d"),
        ({"collection.include.list": "shop\\.(orders|users)"}, None, "$regexMatch"),
        ({"collection.include.list": "shop\\.o{2}"}, None, "$regexMatch"),
        ({"collection.include.list": "shop\\.o{1\\,2},a\\.b"}, None, "o{1,2}|a"),
        ({"collection.exclude.list": "shop\\.logs"}, None, "$not"),
        ({"database.include.list": "shop"}, ["shop.*"], "$regexMatch"),
        ({"database.exclude.list": "test"}, None, "$not"),
        (
            {"database.include.list": "shop", "collection.include.list": "shop\\.a,other\\.b"},
            ["shop.a"],
            "a",
        ),
        (
            {"filters.match.mode": "literal", "collection.include.list": "shop.a(b)"},
            ["shop.a(b)"],
            "a(b)",
        ),
        ({}, None, ""),
    ],
)
def test_lists_of_collections(
    migrate: Migrate,
    lists: dict[str, str],
    namespaces: list[str] | None,
    names_in_pipeline: str,
) -> None:
    options = {"connector.class": CLASS, "mongodb.connection.string": SERVER, **lists}
    done = migrate("debezium", json.dumps(options))
    (route,) = done.config["routes"]
    pipeline = json.dumps(done.scope.get("pipeline", []))
    assert all(word in pipeline for word in names_in_pipeline.split())
    if "collection" in done.scope:
        assert namespaces == [f"{done.scope['database']}.{done.scope['collection']}"]
    assert route.get("namespaces") == namespaces
    # Rows of a snapshot pass no pipeline: without namespaces they would not be selected.
    is_selected = namespaces is not None or not lists
    assert ("snapshot" in done.scope) is is_selected
    assert ("snapshot.mode" in done.lost) is not is_selected


def test_rules_for_fields_of_one_collection_are_those_of_a_handler_of_its_own(
    migrate: Migrate,
) -> None:
    done = migrate(
        "debezium",
        connector(
            field__exclude__list="shop.orders.customer.ssn, *.*.internal",
            field__renames="shop.orders.total:amount",
        ),
    )
    assert {name: each.get("fields") for name, each in done.config["handlers"].items()} == {
        "kafka": {"leave_out": ["customer.ssn", "internal"], "rename": {"total": "amount"}},
        "kafka-2": {"leave_out": ["internal"]},
    }
    assert [(route["namespaces"], route["handlers"]) for route in done.config["routes"]] == [
        (["shop.orders"], ["kafka"]),
        (["shop.users"], ["kafka-2"]),
    ]


def test_a_field_is_rather_left_out_of_all_collections_than_delivered(migrate: Migrate) -> None:
    options = {"field__exclude__list": "shop.orders.ssn", "field__renames": "shop.orders.a:b"}
    done = migrate("debezium", connector(collection__include__list="shop\\..*", **options))
    assert done.handler["fields"] == {"leave_out": ["ssn"]}
    assert "all collections" in done.lost["field.exclude.list"]
    assert "shop.orders.a is not renamed" in done.lost["field.renames"]


def test_no_password_is_written(migrate: Migrate) -> None:
    done = migrate(
        "debezium",
        connector(
            mongodb__user="me@home",
            mongodb__password="hush/hush",
            mongodb__ssl__enabled="true",
            producer__override__security__protocol="SASL_SSL",
            producer__override__sasl__mechanism="PLAIN",
            producer__override__sasl__jaas__config='x required username="u" password="hush-2";',
        ),
    )
    assert done.config["mongodb"]["uri"] == (
        "mongodb://me%40home:${MONGODB_PASSWORD}@db:27017/?replicaSet=rs0&tls=true&authSource=admin"
    )
    assert (done.handler["username"], done.handler["password"]) == ("u", "${KAFKA_PASSWORD}")
    assert "hush" not in done.text + done.error
    assert "Set the environment variable MONGODB_PASSWORD" in done.text


def test_names_of_options_before_debezium_2(migrate: Migrate) -> None:
    lines = [f"connector.class={CLASS}", "mongodb.hosts=rs0/a:1,b:2", "mongodb.name=p"]
    done = migrate("debezium", "\n".join([*lines, "collection.whitelist=shop[.]orders"]))
    assert done.config["mongodb"]["uri"] == "mongodb://a:1,b:2/?replicaSet=rs0"
    assert (done.handler["prefix"], done.scope["collection"]) == ("p", "orders")


def test_variables_of_kafka_connect_become_variables_of_the_environment(migrate: Migrate) -> None:
    uri = "mongodb://${env:ME}:${file:/run/secrets/mongodb.properties:password}@db/"
    done = migrate("debezium", connector(mongodb__connection__string=uri, topic__prefix="${P}"))
    assert done.config["mongodb"]["uri"] == "mongodb://${ME}:${PASSWORD}@db/"
    assert done.handler["prefix"] == "${P}"


def test_no_option_is_dropped_in_silence(migrate: Migrate) -> None:
    """Each option of Debezium is known, and one that does something is carried over or named."""
    names = (FILES / "debezium-options.txt").read_text().split()
    done = migrate("debezium", connector(**dict.fromkeys(names, "7")))
    assert done.code == 2  # 7 is no value of connector.class
    others = [name for name in names if name not in SHOP]
    done = migrate("debezium", connector(**dict.fromkeys(others, "7"), no__such__option="1"))
    unknown = [name for name, why in done.lost.items() if "unknown" in why]
    assert unknown == ["no.such.option"]
    named = {"signal.data.collection", "post.processors", "snapshot.collection.filter.overrides"}
    assert named <= done.lost.keys()
    assert all(f"- {name}:" in done.text for name in done.lost)


SINKS = {
    "kafka": (
        {"kafka.producer.bootstrap.servers": "k:9092", "kafka.producer.acks": "all"},
        {"type": "kafka", "envelope": "debezium", "bootstrap_servers": "k:9092", "prefix": "p"},
    ),
    "nats-jetstream": (
        {"nats-jetstream.url": "nats://n:4222", "nats-jetstream.create-stream": "true"},
        {
            "type": "nats",
            "envelope": "debezium",
            "servers": ["nats://n:4222"],
            "subject": "p.{database}.{collection}",
            "stream": "DebeziumStream",
            "create_stream": True,
        },
    ),
    "redis": (
        {"redis.address": "r:6379", "redis.user": "u", "redis.password": "hush"},
        {
            "type": "redis",
            "envelope": "debezium",
            "url": "redis://u:${REDIS_PASSWORD}@r:6379",
            "stream": "p.{database}.{collection}",
        },
    ),
    "http": (
        {"http.url": "https://example.com/in", "http.timeout.ms": "2500"},
        {
            "type": "http",
            "envelope": "debezium",
            "url": "https://example.com/in",
            "timeout_seconds": 2.5,
        },
    ),
    "kinesis": (
        {"kinesis.region": "eu-central-1"},
        {"type": "jsonl", "path": "data/p-jsonl.jsonl"},
    ),
}


@pytest.mark.parametrize("kind", SINKS)
def test_the_sinks_of_debezium_server(migrate: Migrate, kind: str) -> None:
    sink, handler = SINKS[kind]
    source = {"connector.class": CLASS, "mongodb.connection.string": SERVER, "topic.prefix": "p"}
    source |= {"offset.storage.file.filename": "data/offsets.dat"}
    lines = [f"debezium.sink.type={kind}", "quarkus.log.level=INFO"]
    lines += [f"debezium.sink.{name}={value}" for name, value in sink.items()]
    lines += [f"debezium.source.{name} : {value}" for name, value in source.items()]
    done = migrate("debezium", "# the sink\n" + "\n".join(lines))
    assert done.handler == handler
    named = {"debezium.format.value"}
    if kind == "kinesis":
        named |= {"debezium.sink.type", "debezium.sink.kinesis.region"}
    if kind == "redis":
        named |= {"debezium.sink.redis.message.format"}
    assert done.lost.keys() == named


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"config": {"connector.class": "io.debezium.connector.mysql.MySqlConnector"}}', "MySql"),
        ("connector.class=io.debezium.connector.postgresql.PostgresConnector", "Postgres"),
        ("debezium.source.connector.class=io.debezium.connector.mysql.MySqlConnector", "MySql"),
        ("topic.prefix=x", "no connector.class"),
        ('{"config": ', "is no JSON"),
        ('{"config": {"a": [1]}}', "a: options of a connector are texts"),
        ("[" * 100_000, "is no JSON"),
        ("just-some-text", "neither JSON nor properties"),
        (b"\xff\xfe\x00", "is no text"),
        (f"connector.class={CLASS}\ncapture.scope=database", "capture.target"),
        (f"connector.class={CLASS}\nmongodb.connection.string=http://x", "mongodb.uri"),
    ],
)
def test_a_file_that_cannot_be_migrated_is_one_line(
    migrate: Migrate, text: str | bytes, message: str
) -> None:
    done = migrate("debezium", text)
    assert (done.code, done.text) == (2, "")
    (line,) = done.error.splitlines()
    assert message in line


def test_a_file_that_is_there_is_not_replaced_unasked(migrate: Migrate, tmp_path: Path) -> None:
    output = tmp_path / "config.yaml"
    assert migrate("debezium", connector(), "--output", str(output)).code == 0
    output.write_text(written := output.read_text() + "# mine\n")
    done = migrate("debezium", connector(), "--output", str(output))
    assert done.code == 2
    assert "--overwrite" in done.error
    assert output.read_text() == written
    assert migrate("debezium", connector(), "--output", str(output), "--overwrite").code == 0
    assert output.read_text() + "# mine\n" == written


@pytest.mark.parametrize(
    "words", [("--dry-run",), ("--uri", "mongodb://x"), ("--overwrite",)], ids=" ".join
)
def test_options_that_need_another_one(migrate: Migrate, words: tuple[str, ...]) -> None:
    done = migrate("debezium", connector(), *words)
    assert done.code == 2
    assert "needs" in done.error
