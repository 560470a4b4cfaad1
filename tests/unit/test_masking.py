"""What looks like a secret is masked, and other text is left unchanged."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace import masking
from tailrace.errors import describe
from tailrace.masking import (
    keep_secret,
    mask_uri,
    secrets_of,
    without_secrets,
    without_secrets_within,
)

SECRET = "hunter2-ABC"


@pytest.fixture(autouse=True)
def own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test has its own secrets of the process."""
    monkeypatch.setattr(masking, "_own", [])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("401 for Authorization: Bearer hunter2-ABC", "401 for Authorization: Bearer ***"),
        ("Authorization: hunter2-ABC, Accept: */*", "Authorization: ***, Accept: */*"),
        ("proxy-authorization: Digest hunter2-ABC", "proxy-authorization: Digest ***"),
        ("{'Authorization': 'Bearer hunter2-ABC', 'a': 1}", "{'Authorization': ***, 'a': 1}"),
        ("the bearer hunter2-ABC was refused", "the bearer *** was refused"),
        ("GET /v1?api_key=hunter2-ABC&page=2", "GET /v1?api_key=***&page=2"),
        ("X-Api-Key: hunter2-ABC", "X-Api-Key: ***"),
        ("host=db password=hunter2-ABC dbname=x", "host=db password=*** dbname=x"),
        ("host=db password='hunter2-ABC two' dbname=x", "host=db password=*** dbname=x"),
        ('connect(user="u", password="hunter2-\\"ABC")', 'connect(user="u", password=***)'),
        ("db_password: 'hunter2-ABC'", "db_password: ***"),
        ("AWS_SECRET_ACCESS_KEY=hunter2-ABC", "AWS_SECRET_ACCESS_KEY=***"),
        ("export AWS_SESSION_TOKEN='hunter2-ABC'", "export AWS_SESSION_TOKEN=***"),
        ('{"password": "hunter2-ABC", "user": "u"}', '{"password": ***, "user": "u"}'),
        ('{\\"client_secret\\": \\"hunter2-ABC\\"}', '{\\"client_secret\\": ***}'),
        ("amqp://me:hunter2-ABC@broker/", "amqp://me:***@broker/"),
        ("mongodb://h/?authMechanismProperties=A:hunter2-ABC,B:1;w=1", None),
        ("DefaultEndpoint=https;AccountKey=a;SharedAccessKey=hunter2-ABC;", None),
    ],
)
def test_a_secret_is_masked_by_what_stands_before_it(text: str, shown: str | None) -> None:
    assert SECRET not in without_secrets(text)
    if shown is not None:
        assert without_secrets(text) == shown
    assert SECRET not in describe(OSError(text))


@pytest.mark.parametrize(
    "text",
    [
        "http.token: must have at least 16 characters",
        "mongodb.uri: is not a connection string",
        "--token: is an empty document",
        "give exactly one of at, token and undo",
        "resume token 82650000…: the server has no history for it",
        "password authentication failed for user 'app'",
        "Unexpected token: <",
        "mongodb://db-0:27017/?replicaSet=rs0",
        "a == b, keys = 3",
        "bearer of bad news",
    ],
)
def test_what_is_no_secret_is_left(text: str) -> None:
    assert without_secrets(text) == text


def test_a_secret_of_our_own_is_masked_wherever_it_stands() -> None:
    keep_secret("our-own-token-012345", "pass/word@1", "short")
    assert without_secrets("got our-own-token-012345!") == "got ***!"
    assert without_secrets("got pass/word@1, pass%2Fword%401") == "got ***, ***"
    assert without_secrets("a short story") == "a short story"


@pytest.mark.parametrize(
    ("uri", "secrets"),
    [
        ("mongodb://u:pass%2Fword@a:1,b:2/db", {"pass%2Fword", "pass/word"}),
        ("mongodb://h/?tlsCertificateKeyFilePassword=x%20y&w=1", {"x y"}),
        ("mongodb://h/", set()),
        ("mongodb://[::1/", set()),
        ("no url", set()),
    ],
)
def test_what_is_secret_in_a_uri(uri: str, secrets: set[str]) -> None:
    assert set(secrets_of(uri)) - {""} == secrets


def test_a_secret_that_is_a_name_of_secrets_hides_no_other_names() -> None:
    keep_secret("password")
    assert without_secrets(f"password={SECRET}") == "password=***"


def test_values_of_any_depth_are_masked() -> None:
    class Client:
        def __repr__(self) -> str:
            return f"<Client password={SECRET}>"

    value = {
        "headers": {"Authorization": f"Bearer {SECRET}", "accept": "x"},
        "tried": [f"http://u:{SECRET}@h/", ("a", 1, None, True)],
        "client": Client(),
    }
    assert without_secrets_within(value) == {
        "headers": {"Authorization": "***", "accept": "x"},
        "tried": ["http://u:***@h/", ["a", 1, None, True]],
        "client": "<Client password=***",
    }


@given(st.text())
def test_any_text_can_be_masked(text: str) -> None:
    assert isinstance(without_secrets(text), str)
    assert isinstance(mask_uri(text), str)
    assert isinstance(mask_uri(f"mongodb://{text}"), str)


@given(st.from_regex(r"[A-Za-z0-9_/+.-]{8,40}", fullmatch=True))
def test_no_member_of_a_json_document_is_shown(secret: str) -> None:
    text = json.dumps({"user": "u", "password": f"Qq{secret}qQ", "n": 1})
    shown = without_secrets(text)
    assert "Qq" not in shown
    assert "qQ" not in shown


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("mongodb://h:27017/?replicaSet=rs0", "mongodb://h:27017/?replicaSet=rs0"),
        ("mongodb://[::1]:27017,h/", "mongodb://[::1]:27017,h/"),
        ("mongodb://%2Ftmp%2Fm.sock/db", "mongodb://%2Ftmp%2Fm.sock/db"),
        ("mongodb://u@h/", "mongodb://u@h/"),
        ("mongodb://u:hunter2@h/", "mongodb://u:***@h/"),
        ("MONGODB+SRV://u:hunter%402@h.example.com", "MONGODB+SRV://u:***@h.example.com"),
        (
            "mongodb://u:hunter2@a:1,b:2/db?replicaSet=rs0&tlsCertificateKeyFilePassword=hunter2",
            "mongodb://u:***@a:1,b:2/db?replicaSet=rs0&tlsCertificateKeyFilePassword=***",
        ),
        (
            "mongodb://h/?authMechanismProperties=AWS_SESSION_TOKEN:hunter2;w=1",
            "mongodb://h/?authMechanismProperties=***;w=1",
        ),
        ("mongodb://h/?proxyPass%77ord=hunter2", "mongodb://h/?proxyPass%77ord=***"),
        ("mongodb://h/?my_secret=hunter2&some.token=hunter2", None),
        ("mongodb://h/?proxyPassword=a&hunter2", "mongodb://h/?proxyPassword=***&***"),
        ("mongodb://u:'hunter2@h/", "mongodb://u:***@h/"),
        # malformed: masks too much rather than too little
        ("mongodb://u:hun@ter2@h/", "***"),
        ("mongodb://u:hunter2/x@h/?a=b", "***"),
        ("mongodb://u:12/?a=hunter2@h/?a=b", "***"),
        ("mongodb://u:hunter2", "***"),
        ("u:hunter2@h", "***"),
        ("", "***"),
    ],
)
def test_a_uri_is_shown_without_its_secrets(uri: str, shown: str | None) -> None:
    assert "hunter2" not in mask_uri(uri)
    assert "***" in mask_uri(uri) or "hun" not in uri
    if shown is not None:
        assert mask_uri(uri) == shown


_PASSWORD = st.text(alphabet=":@/?#&;=%[], xyzé", min_size=1, max_size=8).map("Qq{}qQ".format)


@given(_PASSWORD, st.sampled_from(["h", "h:1,i:2", "[::1]:5", "h/db?a=b"]))
def test_no_password_is_ever_shown(password: str, rest: str) -> None:
    """Even with unescaped characters: nothing between its first and last letter remains."""
    shown = mask_uri(f"mongodb://user:{password}@{rest}")
    assert "Qq" not in shown
    assert "qQ" not in shown
