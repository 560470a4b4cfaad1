"""The settings of ``nats``, and how names become subjects, without a server."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tailrace.destination.names import Template
from tailrace.destinations.nats import NATS, NatsHandlerSettings
from tailrace.destinations.nats.subjects import subjects_of, takes, token
from tailrace.errors import ConfigurationError
from tailrace.model import Scope

GIVEN = {"type": "nats", "servers": ["nats://127.0.0.1:4222"], "subject": "a.{collection}"}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"servers": ["127.0.0.1:4222"]}, "must be nats://host:port"),
        ({"servers": ["nats://me:secret@127.0.0.1:4222"]}, "have their own keys"),
        ({"servers": []}, "at least 1 item"),
        ({"subject": "a b.{collection}"}, "subject must be tokens between dots"),
        ({"subject": "a.*.{collection}"}, "without spaces, '*' and '>'"),
        ({"subject": "a..{collection}"}, "subject must be tokens between dots"),
        ({"subject": "$JS.{collection}"}, "must not begin with '$'"),
        ({"subject": "{prefix}.{collection}"}, "with {database}, {collection} or {scope}"),
        ({"subject": "{other}"}, "and no other brace"),
        ({"stream": "a.b"}, "a stream's name has no spaces"),
        ({"create_stream": True}, "create_stream needs stream"),
        ({"user": "me"}, "user and password belong together"),
        ({"user": "me", "password": "x", "token": "y"}, "user and token exclude each other"),
        ({"key_file": "k.pem"}, "key_file needs certificate_file"),
    ],
)
def test_a_mistake_is_told_in_words(more: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as refusal:
        NatsHandlerSettings.model_validate({**GIVEN, **more})
    assert message in refusal.value.errors()[0]["msg"]


@given(st.text(min_size=1), st.text(min_size=1))
def test_different_names_have_different_tokens_without_special_characters(
    one: str, other: str
) -> None:
    assert (token(one) == token(other)) == (one == other)
    assert not set(token(one)) & set(".*> \n\0")
    assert token(one).isascii()


@pytest.mark.parametrize(
    ("scope", "subject"),
    [
        (Scope("s", "shop", "a.b"), "app.shop.x-a%2Eb"),
        (Scope("s", "shop"), "app.shop.*"),
        (Scope("s"), "app.*.*"),
    ],
)
def test_a_scope_has_the_subjects_of_its_collections(scope: Scope, subject: str) -> None:
    assert subjects_of(Template("app.{database}.x-{collection}"), scope) == subject


@pytest.mark.parametrize(
    ("stream", "subject", "taken"),
    [
        ("app.>", "app.shop.*", True),
        ("app.*.*", "app.shop.*", True),
        ("app.shop.orders", "app.shop.orders", True),
        ("app.shop.orders", "app.shop.*", False),
        ("app.*", "app.shop.orders", False),
        ("app.shop.orders.>", "app.shop.orders", False),
        (">", "app", True),
    ],
)
def test_a_stream_must_take_every_subject_of_a_pattern(
    stream: str, subject: str, taken: bool
) -> None:
    assert takes(["other", stream], subject) is taken


def test_a_credentials_file_or_certificate_that_is_missing_is_told() -> None:
    given = {**GIVEN, "credentials_file": "no.creds", "certificate_file": "no.pem"}
    with pytest.raises(ConfigurationError) as refusal:
        NATS.check("it", NatsHandlerSettings.model_validate(given))
    assert [str(each) for each in refusal.value.problems] == [
        "handlers.it.credentials_file: the file 'no.creds' does not exist",
        "handlers.it.certificate_file: the file 'no.pem' does not exist",
    ]
