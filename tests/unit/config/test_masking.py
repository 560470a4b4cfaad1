"""No secret leaves the configuration."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.config import masked
from tailrace.errors import ConfigurationError
from tailrace.masking import mask_uri
from tests.unit.config.files import minimal, parse, problems

SECRET = "hunter2"
URI = f"mongodb://u:{SECRET}@a:1,b:2/db?replicaSet=rs0&tlsCertificateKeyFilePassword={SECRET}"


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("mongodb://h:27017/?replicaSet=rs0", "mongodb://h:27017/?replicaSet=rs0"),
        ("mongodb://h", "mongodb://h"),
        ("mongodb://[::1]:27017,h/", "mongodb://[::1]:27017,h/"),
        ("mongodb://%2Ftmp%2Fm.sock/db", "mongodb://%2Ftmp%2Fm.sock/db"),
        ("mongodb://u@h/", "mongodb://u@h/"),
        ("mongodb://u:hunter2@h/", "mongodb://u:***@h/"),
        ("mongodb://u:@h/", "mongodb://u:***@h/"),
        ("MONGODB+SRV://u:hunter%402@h.example.com", "MONGODB+SRV://u:***@h.example.com"),
        (URI, "mongodb://u:***@a:1,b:2/db?replicaSet=rs0&tlsCertificateKeyFilePassword=***"),
        (
            "mongodb://h/?authMechanismProperties=AWS_SESSION_TOKEN:hunter2;w=1",
            "mongodb://h/?authMechanismProperties=***;w=1",
        ),
        ("mongodb://h/?TLSCERTIFICATEKEYFILEPASSWORD=hunter2", None),
        ("mongodb://h/?proxyPassword=hunter2", "mongodb://h/?proxyPassword=***"),
        ("mongodb://h/?proxyPass%77ord=hunter2", "mongodb://h/?proxyPass%77ord=***"),
        ("mongodb://h/?my_secret=hunter2&some.token=hunter2", None),
        ("mongodb://h/?proxyPassword=a&hunter2", "mongodb://h/?proxyPassword=***&***"),
        # malformed: rather too much
        ("mongodb://u:hun@ter2@h/", "mongodb://***@h/"),
        ("mongodb://u:hunter2/x@h/?a=b", "mongodb://***@h/?a=b"),
        ("mongodb://u:hun?ter2@h/?a=b", "mongodb://***@h/?a=b"),
        ("mongodb://u:hun#ter2@h/?password=hunter2", "mongodb://***@h/?password=***"),
        ("mongodb://u:hun ter2@h", "mongodb://***@h"),
        ("mongodb://u:hunter2", "mongodb://***"),
        ("u:hunter2@h", "***"),
        ("hunter2", "***"),
        ("", "***"),
    ],
)
def test_a_uri_is_shown_without_its_secrets(uri: str, shown: str | None) -> None:
    assert SECRET not in mask_uri(uri)
    assert "***" in mask_uri(uri) or "hun" not in uri
    if shown is not None:
        assert mask_uri(uri) == shown


_PASSWORD = st.text(alphabet=":@/?#&;=%[], xyzé", min_size=1, max_size=8).map("Qq{}qQ".format)


@settings(deadline=None)
@given(_PASSWORD, st.sampled_from(["h", "h:1,i:2", "[::1]:5", "h/db?a=b"]))
def test_no_password_is_ever_shown(password: str, rest: str) -> None:
    """Whatever stands in it unescaped: nothing between its first and last letter remains."""
    shown = mask_uri(f"mongodb://user:{password}@{rest}")
    assert "Qq" not in shown
    assert "qQ" not in shown


@settings(deadline=None)
@given(st.text())
def test_any_text_can_be_masked(text: str) -> None:
    assert isinstance(mask_uri(text), str)
    assert isinstance(mask_uri(f"mongodb://{text}"), str)


def test_the_masked_configuration_is_plain_complete_and_in_order() -> None:
    data = minimal(
        mongodb={"uri": URI},
        scopes=[
            {
                "name": "orders",
                "start_at": "2024-05-01T02:00:00+02:00",
                "pipeline": [{"$match": {"a": None}}],
            }
        ],
        handlers={"log": {"type": "log"}, "audit": {"type": "jsonl", "path": "x"}},
    )
    shown = masked(parse(data))
    assert SECRET not in json.dumps(shown)
    assert list(shown) == [
        "mongodb",
        "checkpoint",
        "delivery",
        "supervisor",
        "shutdown",
        "http",
        "logging",
        "pipeline",
        "scopes",
        "handlers",
        "routes",
    ]
    assert shown["mongodb"]["uri"] == mask_uri(URI)
    assert shown["http"] == {
        "host": "127.0.0.1",
        "port": 9464,
        "liveness_seconds": 300,
        "protect": "changes",
    }
    assert shown["scopes"][0]["start_at"] == "2024-05-01T00:00:00+00:00"
    assert shown["scopes"][0]["pipeline"] == [{"$match": {"a": None}}]
    assert "batch_size" not in shown["scopes"][0]
    assert shown["handlers"]["audit"]["json"] == "relaxed"


def test_the_masked_configuration_is_a_configuration_again() -> None:
    loaded = parse(minimal(scopes=[{"name": "orders", "start_at": "2024-05-01T00:00:00Z"}]))
    assert parse(masked(loaded)) == loaded


def test_no_secret_in_any_text_of_the_settings() -> None:
    loaded = parse(minimal(mongodb={"uri": URI}))
    for text in (repr(loaded), str(loaded), repr(loaded.mongodb), f"{loaded.mongodb.uri}"):
        assert SECRET not in text


def test_no_secret_in_the_problems() -> None:
    bad = {"uri": f"mongo://u:{SECRET}@h", "drivr": 1}
    assert SECRET not in str(problems(minimal(mongodb=bad)))
    assert SECRET not in str(problems(minimal(mongodb=f"mongodb://u:{SECRET}@h")))
    assert SECRET not in str(problems(minimal(mongodb={f"mongodb://u:{SECRET}@h": None})))
    assert SECRET not in str(problems(minimal(mongodb={"url": f"mongodb://u:{SECRET}@h"})))


def test_the_cause_of_an_error_is_not_chained_for_it_may_hold_the_uri() -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse(minimal(mongodb={"uri": f"mongo://u:{SECRET}@h"}))
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_the_token_is_masked_everywhere() -> None:
    loaded = parse(minimal(http={"token": f"{SECRET}-0123456789"}))
    assert masked(loaded)["http"]["token"] == "***"
    for text in (
        repr(loaded),
        str(loaded.http),
        f"{loaded.http.token}",
        json.dumps(masked(loaded)),
    ):
        assert SECRET not in text


@pytest.mark.parametrize(
    "section",
    [
        {"http": {"token": f"{SECRET}"}},
        {"http": {"token": f"{SECRET} with spaces in it"}},
        {"http": {"token": 5873648392017364}},
        {"http": {"token": [SECRET]}},
        {"http": {"token": {"value": SECRET}}},
        {"http": {"tokn": SECRET}},
        {"http": {"token": SECRET, "token_file": "x"}},
        {"mongodb": {"uri": SECRET}},
        {"mongodb": {"uri": 5873648392017364}},
        {"mongodb": {"uri": f"postgres://u:{SECRET}@h/"}},
        {"mongodb": {"uri": f"mongodb://u:{SECRET} @h/"}},
        {"mongodb": {"url": f"mongodb://u:{SECRET}@h/"}},
        {"http": {"host": f"mongodb://u:{SECRET}@h/", "port": f"mongodb://u:{SECRET}@h/"}},
    ],
)
def test_no_problem_quotes_a_secret(section: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError) as refused:
        parse(minimal(**section))
    assert SECRET not in str(refused.value)
    assert "5873648392017364" not in str(refused.value)
