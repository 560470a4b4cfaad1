"""``${NAME}`` in the values of the file."""

from __future__ import annotations

import pytest

from tailrace.config import loads
from tailrace.config.interpolation import Interpolated, Unresolved, interpolate
from tests.unit.config.files import MINIMAL, problems_of_text, settings_of

ENVIRON = {"HOST": "db1", "PORT": "27018", "EMPTY": "", "REF": "${HOST}", "DOLLAR": "$x"}


def put_in(text: str) -> tuple[str, list[str]]:
    messages: list[str] = []
    return interpolate(text, ENVIRON, messages.append), messages


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no variable", "no variable"),
        ("${HOST}", "db1"),
        ("${HOST}:${PORT}", "db1:27018"),
        ("a ${HOST} b ${PORT} c", "a db1 b 27018 c"),
        ("${EMPTY}", ""),
        ("${EMPTY:-default}", "default"),
        ("${HOST:-default}", "db1"),
        ("${NONE:-}", ""),
        ("${NONE:-mongodb://h/?a=b&c=d}", "mongodb://h/?a=b&c=d"),
        ("${NONE:-two words: and a colon}", "two words: and a colon"),
        ("${NONE:-${HOST}}", "db1"),
        ("${NONE:-a${ALSO_NONE:-b}c}", "abc"),
        ("${HOST:-${NONE}}", "db1"),
        ("$${HOST}", "${HOST}"),
        ("$$${HOST}", "$${HOST}"),
        ("a $${b} ${HOST}", "a ${b} db1"),
        ("${NONE:-$${x}}", "${x}"),
        ("$match", "$match"),
        ("$$ROOT.$x", "$$ROOT.$x"),
        ("$HOST", "$HOST"),
        ("100$", "100$"),
        ("${REF}", "${HOST}"),
        ("${DOLLAR}", "$x"),
    ],
)
def test_variables_are_put_in(text: str, expected: str) -> None:
    assert put_in(text) == (expected, [])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("${NONE}", "the environment variable NONE is not set"),
        ("${HOST} ${NONE}", "NONE is not set"),
        ("${EMPTY:-${NONE}}", "NONE is not set"),
        ("${}", "needs the name of a variable"),
        ("${1}", "needs the name of a variable"),
        ("${ HOST }", "needs the name of a variable"),
        ("${HOST", "'}' must close it"),
        ("${HOST-x}", "only ${HOST} and ${HOST:-default} are known"),
        ("${HOST:?x}", "only ${HOST} and ${HOST:-default} are known"),
        ("${NONE:-x", "not closed"),
        ("${NONE:-${HOST}", "not closed"),
    ],
)
def test_what_cannot_be_put_in_is_told(text: str, told: str) -> None:
    result, messages = put_in(text)
    assert isinstance(result, Unresolved)
    assert len(messages) == 1
    assert told in messages[0]


def test_every_unset_variable_is_told() -> None:
    _, messages = put_in("${A}${B}")
    assert [message.split()[3] for message in messages] == ["A", "B"]


@pytest.mark.parametrize(
    ("text", "whole"), [("${HOST}", True), ("x${HOST}", False), ("${HOST}${PORT}", False)]
)
def test_a_value_knows_whether_it_was_one_interpolation(text: str, whole: bool) -> None:
    result, _ = put_in(text)
    assert isinstance(result, Interpolated)
    assert result.whole is whole


def test_a_text_stays_text_and_a_number_becomes_one() -> None:
    settings = loads(
        MINIMAL.replace("database: shop", "database: ${DB}")
        + "http:\n  port: ${PORT:-9464}\n  liveness_seconds: ${LIVE}\n",
        {"DB": "123", "LIVE": "1e3"},
    )
    assert settings.scopes[0].database == "123"
    assert type(settings.scopes[0].database) is str
    assert settings.http.port == 9464
    assert settings.http.liveness_seconds == 1000.0


def test_quotes_around_an_interpolation_change_nothing_for_a_number() -> None:
    assert settings_of('http: {port: "${PORT}"}', PORT="0").http.port == 0


def test_a_boolean_and_a_word_and_a_time_from_the_environment() -> None:
    settings = loads(
        MINIMAL.replace(
            "database: shop",
            "database: shop\n    show_expanded_events: ${EXPANDED}\n"
            "    read_preference: ${READ}\n    start_at: ${START}\n    collection: ${NONE:-}\n"
            "    batch_size: ${NONE:-}",
        ),
        {"EXPANDED": "true", "READ": "nearest", "START": "2024-05-01T02:00:00+02:00"},
    )
    (scope,) = settings.scopes
    assert scope.show_expanded_events is True
    assert scope.read_preference == "nearest"
    assert scope.start_at != "now"
    assert scope.start_at.isoformat() == "2024-05-01T00:00:00+00:00"
    assert scope.collection is None
    assert scope.batch_size is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [("${N}", 3), ('"${N}"', "3"), ("x${N}", "x3"), ("$x", "$x"), ("${NONE:-}", None)],
)
def test_in_a_pipeline_an_unquoted_variable_is_what_yaml_would_read(
    value: str, expected: object
) -> None:
    settings = loads(
        MINIMAL.replace(
            "database: shop",
            f"database: shop\n    pipeline:\n      - $match:\n          a:\n            - {value}",
        ),
        {"N": "3"},
    )
    (stage,) = settings.scopes[0].pipeline
    assert stage == {"$match": {"a": [expected]}}
    assert type(stage["$match"]["a"][0]) is type(expected)


def test_unset_variables_stand_among_the_other_problems_with_their_path() -> None:
    found = problems_of_text(
        MINIMAL.replace("mongodb://localhost:27017/", "${URI}").replace("shop", "${DB}")
        + "http: {port: yes}\nlogging:\n  format: ${FORMAT}\n"
    )
    assert list(found) == ["mongodb.uri", "scopes[0].database", "http.port", "logging.format"]
    assert "URI is not set" in found["mongodb.uri"]
    assert "DB is not set" in found["scopes[0].database"]
    assert "must be a whole number, not 'yes'" in found["http.port"]
    assert "FORMAT is not set" in found["logging.format"]


def test_a_bad_value_of_the_environment_is_not_shown() -> None:
    found = problems_of_text(f"{MINIMAL}http:\n  port: ${{SECRET}}\n", {"SECRET": "hunter2"})
    assert "must be a whole number" in found["http.port"]
    assert "hunter2" not in found["http.port"]


def test_keys_are_not_interpolated() -> None:
    found = problems_of_text(f'{MINIMAL}"${{KEY}}": 1\n', {"KEY": "http"})
    assert "is not a known key" in found["${KEY}"]


def test_a_default_with_spaces_needs_no_quotes() -> None:
    uri = "mongodb://a:1,b:2/?replicaSet=rs0&appName=x"
    settings = loads(MINIMAL.replace("mongodb://localhost:27017/", f"${{URI:-{uri}}}"), {})
    assert settings.mongodb.uri.get_secret_value() == uri
    settings = loads(MINIMAL.replace("name: orders", "name: orders\n    comment: ${C:-a b, c}"), {})
    assert settings.scopes[0].comment == "a b, c"
