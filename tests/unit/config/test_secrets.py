"""The connection string and the token: given as keys or as files, and never shown."""

import json
from pathlib import Path
from typing import Any

import pytest

from tailrace.config.loading import masked
from tailrace.errors import ConfigurationError
from tailrace.masking import mask_uri
from tests.unit.config.files import minimal, parse, problems, settings_of

SECRET = "hunter2"
URI = f"mongodb://u:{SECRET}@a:1,b:2/db?replicaSet=rs0&tlsCertificateKeyFilePassword={SECRET}"
TOKEN = f"{SECRET}-0123456789"
DIGITS = 5873648392017364


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [("mongodb", "uri", URI), ("http", "token", TOKEN)],
    ids=["uri_file", "token_file"],
)
def test_a_secret_comes_from_a_file_or_from_its_key(
    section: str, key: str, value: str, tmp_path: Path
) -> None:
    file = tmp_path / key
    file.write_text(f"  {value}\n")
    settings = parse(minimal(**{section: {f"{key}_file": str(file)}}))
    assert getattr(getattr(settings, section), key).get_secret_value() == value
    both = problems(minimal(**{section: {key: value, f"{key}_file": "x"}}))
    assert both == {f"{section}.{key}_file": f"give either {key} or {key}_file"}


@pytest.mark.parametrize(
    ("content", "path", "message"),
    [
        (None, "mongodb.uri_file", "no such file"),
        (b"", "mongodb.uri_file", "is empty"),
        (b"\xff", "mongodb.uri_file", "is not UTF-8"),
        (SECRET.encode(), "mongodb.uri", "must be a connection string"),
    ],
)
def test_a_uri_file_that_holds_none(
    content: bytes | None, path: str, message: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "uri").write_bytes(content)
    found = problems(minimal(mongodb={"uri_file": str(tmp_path / "uri")}))
    assert list(found) == [path]
    assert message in found[path]
    assert SECRET not in found[path]


@pytest.mark.parametrize("token", ["short", "0123456789 abcdef", "0123456789abcdé", "x" * 513])
def test_a_token_must_be_long_and_fit_into_a_header(token: str) -> None:
    (message,) = problems(minimal(http={"token": token})).values()
    assert "openssl rand -hex 32" in message


def test_a_token_that_the_environment_leaves_empty_is_none() -> None:
    lines = "http:\n  token: ${TAILRACE_HTTP_TOKEN:-}"
    assert settings_of(lines).http.token is None
    assert settings_of(lines, TAILRACE_HTTP_TOKEN=TOKEN).http.token is not None


def test_where_everything_is_protected_a_token_is_needed() -> None:
    assert list(problems(minimal(http={"protect": "everything"}))) == ["http.protect"]
    parse(minimal(http={"protect": "everything", "token": TOKEN}))


def test_the_masked_configuration_is_complete_and_in_order() -> None:
    data = minimal(
        mongodb={"uri": URI},
        scope={
            "start_at": "2024-05-01T02:00:00+02:00",
            "pipeline": [{"$match": {"a": None}}],
        },
        handler={"type": "jsonl", "path": "x"},
        http={"token": TOKEN},
        replicas={},
        telemetry={},
    )
    shown = masked(parse(data))
    assert SECRET not in json.dumps(shown)
    assert [*shown, "include"] == list(type(parse(data)).model_fields)
    assert shown["mongodb"]["uri"] == mask_uri(URI)
    assert shown["http"] == {
        "host": "127.0.0.1",
        "port": 9464,
        "liveness_seconds": 300,
        "protect": "changes",
        "token": "***",
    }
    assert shown["scopes"][0]["start_at"] == "2024-05-01T00:00:00+00:00"
    assert shown["scopes"][0]["pipeline"] == [{"$match": {"a": None}}]
    assert "batch_size" not in shown["scopes"][0]
    assert shown["handlers"]["mine"]["json"] == "relaxed"


def test_the_masked_configuration_is_a_configuration_again() -> None:
    loaded = parse(minimal(scope={"start_at": "2024-05-01T00:00:00Z"}))
    assert parse(masked(loaded)) == loaded


def test_no_text_of_the_settings_has_a_secret() -> None:
    loaded = parse(minimal(mongodb={"uri": URI}, http={"token": TOKEN}))
    for value in (loaded, loaded.mongodb, loaded.mongodb.uri, loaded.http, loaded.http.token):
        assert SECRET not in repr(value) + str(value)


@pytest.mark.parametrize(
    "section",
    [
        {"http": {"token": SECRET}},
        {"http": {"token": f"{SECRET} with spaces in it"}},
        {"http": {"token": DIGITS}},
        {"http": {"token": [SECRET]}},
        {"http": {"token": {"value": SECRET}}},
        {"http": {"tokn": SECRET}},
        {"http": {"token": SECRET, "token_file": "x"}},
        {"http": {"host": f"mongodb://u:{SECRET}@h/", "port": f"mongodb://u:{SECRET}@h/"}},
        {"mongodb": f"mongodb://u:{SECRET}@h"},
        {"mongodb": {f"mongodb://u:{SECRET}@h": None}},
        {"mongodb": {"uri": SECRET}},
        {"mongodb": {"uri": DIGITS}},
        {"mongodb": {"uri": f"postgres://u:{SECRET}@h/"}},
        {"mongodb": {"uri": f"mongodb://u:{SECRET} @h/"}},
        {"mongodb": {"url": f"mongodb://u:{SECRET}@h/"}},
    ],
)
def test_no_problem_quotes_a_secret(section: dict[str, Any]) -> None:
    """Nor does the cause of the error, which a traceback would show."""
    with pytest.raises(ConfigurationError) as refused:
        parse(minimal(**section))
    assert SECRET not in str(refused.value)
    assert str(DIGITS) not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__context__ is None
