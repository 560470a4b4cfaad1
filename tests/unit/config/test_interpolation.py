"""``${NAME}`` in the values of the file."""

import pytest

from tailrace.config.interpolation import interpolate
from tests.configuration import loads
from tests.unit.config.files import MINIMAL

ENVIRON = {"HOST": "db1", "PORT": "27018", "EMPTY": "", "REF": "${HOST}", "DOLLAR": "$x"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no variable", "no variable"),
        ("a ${HOST} b ${PORT} c", "a db1 b 27018 c"),
        ("${EMPTY}", ""),
        ("${EMPTY:-default}", "default"),
        ("${HOST:-default}", "db1"),
        ("${NONE:-}", ""),
        ("${NONE:-mongodb://h/?a=b&c=d}", "mongodb://h/?a=b&c=d"),
        ("${NONE:-two words: and a colon}", "two words: and a colon"),
        ("$${HOST} $$${HOST}", "${HOST} $${HOST}"),
        ("${NONE:-$${x}}", "${x}"),
        ("$match $$ROOT.$x $HOST 100$ }", "$match $$ROOT.$x $HOST 100$ }"),
        ("${REF}${DOLLAR}", "${HOST}$x"),  # the value of a variable is not interpolated again
    ],
)
def test_variables_are_replaced(text: str, expected: str) -> None:
    assert interpolate(text, ENVIRON) == (expected, [])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${}", ["write ${NAME} or ${NAME:-default}"]),
        ("${1}", ["write ${NAME}"]),
        ("${ HOST }", ["write ${NAME}"]),
        ("${HOST", ["write ${NAME}"]),
        ("${HOST-x}", ["write ${NAME}"]),
        ("${NONE:-x", ["write ${NAME}"]),
        ("${HOST:-${NONE}}", ["the default of HOST holds a variable, and is plain text"]),
        ("${NONE:-a${HOST:-b}c}", ["holds a variable"]),
        ("${NONE:-${HOST}", ["holds a variable"]),
        ("${HOST} ${NONE}", ["variable NONE is not set; set it, or give a default"]),
        ("${A}${B}", ["variable A is not set", "variable B is not set"]),
    ],
)
def test_what_is_wrong_is_reported(text: str, expected: list[str]) -> None:
    messages = interpolate(text, ENVIRON)[1]
    assert all(part in message for part, message in zip(expected, messages, strict=True))


def test_a_variable_is_read_as_the_kind_that_its_key_wants() -> None:
    """An empty variable leaves the key out."""
    settings = loads(
        MINIMAL.replace(
            "database: shop",
            "database: ${DB}\n    show_expanded_events: ${EXPANDED}\n"
            "    read_preference: ${READ}\n    start_at: ${START}\n    collection: ${NONE:-}\n"
            "    batch_size: ${NONE:-}",
        )
        + 'http: {port: "${PORT}", liveness_seconds: "${LIVE}", host: "${NONE:-}"}',
        {
            "DB": "123",
            "EXPANDED": "true",
            "READ": "nearest",
            "PORT": "0",
            "LIVE": "1e3",
            "START": "2024-05-01T02:00:00+02:00",
        },
    )
    (scope,) = settings.scopes
    assert scope.database == "123"
    assert type(scope.database) is str
    assert scope.show_expanded_events is True
    assert scope.read_preference == "nearest"
    assert scope.start_at != "now"
    assert scope.start_at.isoformat() == "2024-05-01T00:00:00+00:00"
    assert (scope.collection, scope.batch_size) == (None, None)
    http = settings.http
    assert (http.port, http.liveness_seconds, http.host) == (0, 1000.0, "127.0.0.1")


@pytest.mark.parametrize(
    ("value", "expected"),
    [("${N}", 3), ('"${N}"', "3"), ("x${N}", "x3"), ("$x", "$x"), ("${NONE:-}", None)],
)
def test_in_a_pipeline_an_unquoted_variable_is_what_yaml_would_read(
    value: str, expected: object
) -> None:
    pipeline = f"pipeline:\n      - $match:\n          a:\n            - {value}"
    text = MINIMAL.replace("database: shop", f"database: shop\n    {pipeline}")
    (stage,) = loads(text, {"N": "3"}).scopes[0].pipeline
    assert stage == {"$match": {"a": [expected]}}
    assert type(stage["$match"]["a"][0]) is type(expected)
