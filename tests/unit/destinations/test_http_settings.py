"""The settings of ``http``, its answers and ids, without an endpoint."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http import HTTPStatus
from pathlib import Path

import pytest

from tailrace.destinations.http.answer import (
    LONGEST_WAIT_SECONDS,
    EndpointAnswer,
    RequestFailed,
    require_accepted,
    retry_seconds,
)
from tailrace.destinations.http.settings import REFUSED_STATUSES
from tailrace.destinations.http.signature import webhook_id
from tailrace.errors import PermanentError, Refused, Unavailable
from tests.unit.destinations.conftest import Check

A_URL = "url: https://example.com/"
MISTAKES = {
    "url: https:///path": (None, "url: must be a URL with a host, such as https://example.com/cha"),
    "url: ftp://example.com/": (None, "url: must be a URL with a host, such as https://example.c"),
    "url: http://example.com:x/": (None, "url: must be a URL with a host, such as https://exampl"),
    "url: {file: missing}": (None, "url: the secret file 'missing' cannot be read: "),
    "secret: not base64!": (A_URL, "secret[0]: must be a secret of Standard Webhooks, whsec_ and"),
    "secret: {file: missing}": (A_URL, "secret[0]: the secret file 'missing' cannot be read: "),
    "secret: [whsec_YQ==, whsec_Yg==, whsec_Yw==]": (A_URL, "secret: "),
    "headers: {a b: x}": (A_URL, "headers: 'a b' is not the name of a header"),
    "headers: {Webhook-Id: x}": (A_URL, "headers: 'Webhook-Id' is a header that Tailrace sets "),
    'headers: {a: "x\\ny"}': (A_URL, "headers: 'a': must be a text without line ends"),
    "headers: {a: {file: missing}}": (A_URL, "headers: 'a': the secret file 'missing' cannot be"),
    "content_mode: binary": (A_URL, "content_mode: binary needs envelope: cloudevents and batch"),
    "batch_format: lines": (A_URL, "batch_format: lines needs a batch_size above 1"),
    "key_file: key.pem": (A_URL, "key_file needs certificate_file"),
    "proxy: proxy:3128": (A_URL, "proxy: must be a URL with a host, such as http"),
    "proxy: http://p/\nproxy_from_environment: true": (A_URL, "proxy and proxy_from_environme"),
    "headers: {authorization: Bearer x}": (
        "url: https://user:hunter2hunter2@example.com/",
        "url has a user, and headers an authorization: keep one of them",
    ),
    "ca_file: missing.pem": (A_URL, "ca_file: 'missing.pem' cannot be read: "),
    "certificate_file: missing.pem": (A_URL, "certificate_file: cannot be read, or do not fit"),
    "refused_statuses: [500]": (A_URL, "refused_statuses[0]: "),
    "batch_sice: 5": (A_URL, "batch_sice: "),
}


@pytest.mark.parametrize("more", MISTAKES)
def test_a_mistake_is_one_line_that_names_the_key(
    more: str, check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    url, message = MISTAKES[more]
    mistake = check(f"type: http\n{url or ''}\n{more}").mistake
    assert mistake.startswith("handlers.mine")
    assert message in mistake


def test_secrets_are_masked_in_what_check_prints(check: Check) -> None:
    secret = "whsec_c2VjcmV0c2VjcmV0c2VjcmV0"
    url = "url: https://user:hunter2hunter2@example.com/"
    more = f"secret: {secret}\nheaders: {{x-api-key: abcdefgh12, x-from: tailrace}}"
    checked = check(f"type: http\n{url}\n{more}")
    assert checked.code == 0
    assert not {each for each in (secret, "hunter2hunter2", "abcdefgh12") if each in checked.out}
    assert checked.err.startswith("tailrace: ")  # a plain header's value is not taken for a secret


def test_the_time_in_retry_after_is_waited_up_to_an_hour() -> None:
    assert retry_seconds("120") == 120
    assert retry_seconds("9" * 400) == LONGEST_WAIT_SECONDS
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=600), usegmt=True)
    assert 500 < (retry_seconds(soon) or 0) <= 600


@pytest.mark.parametrize("header", [None, "", "0", "-5", "soon", "Wed, 21 Oct 2015 07:28:00 GMT"])
def test_a_useless_retry_after_leaves_the_delay_to_the_engine(header: str | None) -> None:
    assert retry_seconds(header) is None


@pytest.mark.parametrize("status", [each for each in HTTPStatus if each >= 300])
def test_every_status_is_about_the_event_or_about_the_endpoint(status: HTTPStatus) -> None:
    """What may be about either is an outage that may turn out to be of one event."""
    redirect = "https://elsewhere.example/" if status < 400 else None
    with pytest.raises((Refused, Unavailable)) as raised:
        require_accepted(EndpointAnswer(status, redirect=redirect), REFUSED_STATUSES, 1)
    expected = dict.fromkeys((400, 413, 422, 431), Refused) | {429: Unavailable}
    otherwise = Unavailable if status < 400 else RequestFailed
    assert raised.type is expected.get(status, otherwise)


def test_an_endpoint_that_says_when_to_come_again_speaks_of_itself() -> None:
    with pytest.raises(Unavailable) as raised:
        require_accepted(EndpointAnswer(503, retry_after="7"), REFUSED_STATUSES, 1)
    assert raised.type is Unavailable


@pytest.mark.parametrize(
    ("body", "refused"),
    [
        (b'{"refused": [{"index": 1, "reason": "no"}, {"index": 2}]}', {1: ": no", 2: ""}),
        (b'{"refused": [{"index": 3}]}', None),
        (b'{"refused": [{"index": true}]}', None),
        (b'{"refused": []}', None),
        (b'{"refused": 5}', None),
        (b"[" * 100_000, None),
        (b"<html>", None),
    ],
)
def test_an_answer_may_list_the_refused_events_of_a_batch(
    body: bytes, refused: dict[int, str] | None
) -> None:
    answer = EndpointAnswer(422, body=body)
    if refused is None:
        with pytest.raises(PermanentError, match="does not say which of the 3 events"):
            require_accepted(answer, [422], 3)
        return
    with pytest.raises(Refused) as caught:
        require_accepted(answer, [422], 3)
    assert caught.value.reasons == {
        at: f"the endpoint answers 422{why}" for at, why in refused.items()
    }


def test_a_long_id_is_replaced_by_its_hash() -> None:
    long = webhook_id('{"_id":"%s"}' % ("x" * 10_000))
    assert len(long) < 100
    assert long != webhook_id('{"_id":"%s"}' % ("x" * 10_001))
