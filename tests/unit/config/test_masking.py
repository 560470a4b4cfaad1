"""No secret leaves the configuration."""

from __future__ import annotations

import json

import pytest

from tailrace.config import masked
from tailrace.errors import ConfigurationError
from tailrace.masking import mask_uri
from tests.unit.config.files import minimal, parse

SECRET = "hunter2"
URI = f"mongodb://u:{SECRET}@a:1,b:2/db?replicaSet=rs0&tlsCertificateKeyFilePassword={SECRET}"
TOKEN = f"{SECRET}-0123456789"
DIGITS = 5873648392017364


def test_the_masked_configuration_is_complete_and_in_order() -> None:
    data = minimal(
        mongodb={"uri": URI},
        scope={
            "start_at": "2024-05-01T02:00:00+02:00",
            "pipeline": [{"$match": {"a": None}}],
        },
        handler={"type": "jsonl", "path": "x"},
        http={"token": TOKEN},
    )
    shown = masked(parse(data))
    assert SECRET not in json.dumps(shown)
    assert list(shown) == list(type(parse(data)).model_fields)
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
def test_no_problem_quotes_a_secret(section: dict[str, object]) -> None:
    """Nor does the cause of the error, which would be in a traceback."""
    with pytest.raises(ConfigurationError) as refused:
        parse(minimal(**section))
    assert SECRET not in str(refused.value)
    assert str(DIGITS) not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__context__ is None
