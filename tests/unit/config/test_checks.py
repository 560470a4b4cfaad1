"""What only shows across sections, and the file that holds the connection string."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tailrace.config import parse
from tests.unit.config.files import (
    minimal,
    problems,
    settings_of,
    with_handler,
    with_route,
    with_scope,
)

URI = "mongodb://localhost:27017/"


def scopes(*scopes: dict[str, Any]) -> dict[str, Any]:
    """Scopes that are each handed to the log."""
    routes = [{"scope": scope["name"], "handlers": ["log"]} for scope in scopes]
    return minimal(scopes=list(scopes), routes=routes)


IN_SERVER = {"store": "mongodb"}

BAD = [
    (with_route(scope="ordrs"), "routes[0].scope", "there is no scope 'ordrs'; did you mean 'orde"),
    (with_route(scope="x"), "routes[0].scope", "there is no scope 'x'; known: 'orders'"),
    (with_route(handlers=["lgo"]), "routes[0].handlers[0]", "no handler 'lgo'; did you mean 'log'"),
    (with_route(handlers=["log", "x"]), "routes[0].handlers[1]", "there is no handler 'x'"),
    (with_route(handlers=["log", "log"]), "routes[0].handlers[1]", "'log' is given twice"),
    (minimal(handlers={}), "routes[0].handlers[0]", "there is no handler 'log'"),
    (
        scopes({"name": "a", "database": "x"}, {"name": "a", "database": "y"}),
        "scopes[1].name",
        "is the name of scopes[0] already",
    ),
    (
        minimal(scopes=[{"name": "orders", "database": "shop"}, {"name": "b", "database": "x"}]),
        "scopes[1]",
        "no route hands the changes of 'b' to a handler",
    ),
    (scopes({"name": "a", "collection": "c"}), "scopes[0].collection", "needs the key database"),
    (with_scope(database="admin"), "scopes[0].database", "opens no change stream on admin"),
    # the checkpoints' own collection
    (
        {**scopes({"name": "a"}), "checkpoint": IN_SERVER},
        "scopes[0]",
        "follows the whole cluster, and so tailrace.checkpoints, where checkpoints are kept",
    ),
    (
        {**scopes({"name": "a", "database": "tailrace"}), "checkpoint": IN_SERVER},
        "scopes[0]",
        "keep them in another database",
    ),
    (
        {
            **scopes({"name": "a", "database": "shop", "collection": "c"}),
            "checkpoint": {"store": "mongodb", "database": "shop", "collection": "c"},
        },
        "scopes[0]",
        "follows shop.c, where checkpoints are kept",
    ),
    # files
    (
        minimal(
            handlers={
                "log": {"type": "jsonl", "path": "data/x.jsonl"},
                "b": {"type": "jsonl", "path": "./data//x.jsonl"},
            }
        ),
        "handlers.b.path",
        "'./data//x.jsonl' is written by handlers.log.path already",
    ),
    (
        with_handler(type="jsonl", path="data/dead-letters.jsonl"),
        "handlers.mine.path",
        "is written by delivery.dead_letters.path already",
    ),
    (
        minimal(delivery={"dead_letters": {"path": "data/checkpoints.db"}}),
        "delivery.dead_letters.path",
        "is written by checkpoint.path already",
    ),
    (
        minimal(
            scopes=[{"name": "orders", "database": "x", "max_await_time_ms": 5000}],
            http={"liveness_seconds": 5},
        ),
        "scopes[0].max_await_time_ms",
        "must be less than http.liveness_seconds (5 s)",
    ),
]


@pytest.mark.parametrize(("data", "path", "told"), BAD, ids=[told for *_, told in BAD])
def test_a_contradiction_is_told_with_its_path(data: Any, path: str, told: str) -> None:
    found = problems(data)
    assert list(found) == [path]
    assert told in found[path]


@pytest.mark.parametrize(
    "data",
    [
        scopes({"name": "a"}),
        scopes({"name": "a", "database": "x"}, {"name": "b", "database": "x"}),
        {**scopes({"name": "a", "database": "shop"}), "checkpoint": IN_SERVER},
        {
            **scopes({"name": "a", "database": "tailrace", "collection": "other"}),
            "checkpoint": IN_SERVER,
        },
        {**scopes({"name": "a", "database": "tailrace"}), "checkpoint": {"store": "memory"}},
        minimal(
            checkpoint={"store": "memory"},
            delivery={"dead_letters": {"path": "data/checkpoints.db"}},
        ),
        with_route(operations=["insert", "aTypeOfTheFuture"], namespaces=["*.*", "shop.*"]),
        with_handler(type="log"),
    ],
)
def test_what_is_no_contradiction(data: Any) -> None:
    assert parse(data)


def test_checks_speak_beside_malformed_parts() -> None:
    found = problems(
        minimal(
            scopes=[{"name": "orders", "database": "shop", "batch_size": "x"}],
            routes=[{"scope": "orders", "handlers": ["nope"], "opertions": []}],
        )
    )
    assert set(found) == {"scopes[0].batch_size", "routes[0].opertions", "routes[0].handlers[0]"}


def test_a_scope_whose_name_cannot_be_read_is_not_called_missing() -> None:
    assert list(problems(minimal(scopes=[{"name": 5, "database": "x"}]))) == ["scopes[0].name"]


def test_the_uri_comes_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "uri"
    file.write_text(f"  {URI}\n")
    mongodb = parse(minimal(mongodb={"uri_file": str(file)})).mongodb
    assert mongodb.uri.get_secret_value() == URI
    assert mongodb.uri_file == str(file)


def test_a_uri_file_that_holds_none(tmp_path: Path) -> None:
    file = tmp_path / "uri"
    for content, path, told in [
        (None, "mongodb.uri_file", "no such file"),
        (b"", "mongodb.uri_file", "is empty"),
        (b"\xff", "mongodb.uri_file", "is not UTF-8"),
        (b"hunter2", "mongodb.uri", "must be a connection string"),
    ]:
        if content is not None:
            file.write_bytes(content)
        found = problems(minimal(mongodb={"uri_file": str(file)}))
        assert list(found) == [path]
        assert told in found[path]
        assert "hunter2" not in found[path]


def test_uri_and_uri_file_exclude_each_other() -> None:
    found = problems(minimal(mongodb={"uri": URI, "uri_file": "x"}))
    assert found == {"mongodb.uri_file": "give either uri or uri_file"}


class TestToken:
    TOKEN = "0123456789abcdef"

    def test_comes_from_a_file(self, tmp_path: Path) -> None:
        file = tmp_path / "token"
        file.write_text(f"{self.TOKEN}\n")
        http = parse(minimal(http={"token_file": str(file)})).http
        assert http.token is not None
        assert http.token.get_secret_value() == self.TOKEN

    def test_is_one_or_the_other(self) -> None:
        found = problems(minimal(http={"token": self.TOKEN, "token_file": "x"}))
        assert found == {"http.token_file": "give either token or token_file"}

    def test_must_be_readable(self, tmp_path: Path) -> None:
        found = problems(minimal(http={"token_file": str(tmp_path / "none")}))
        assert found == {"http.token_file": f"the file {str(tmp_path / 'none')!r} no such file"}

    @pytest.mark.parametrize("token", ["short", "0123456789 abcdef", "0123456789abcdé", "x" * 513])
    def test_must_be_long_and_fit_into_a_header(self, token: str) -> None:
        (message,) = problems(minimal(http={"token": token})).values()
        assert "openssl rand -hex 32" in message

    def test_that_the_environment_leaves_empty_is_none(self) -> None:
        lines = "http:\n  token: ${TAILRACE_HTTP_TOKEN:-}"
        assert settings_of(lines).http.token is None
        token = settings_of(lines, TAILRACE_HTTP_TOKEN=self.TOKEN).http.token
        assert token is not None
        assert token.get_secret_value() == self.TOKEN

    def test_is_needed_where_everything_is_protected(self) -> None:
        (place,) = problems(minimal(http={"protect": "everything"}))
        assert place == "http.protect"
        parse(minimal(http={"protect": "everything", "token": self.TOKEN}))
