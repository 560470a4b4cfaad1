"""Who may read, and who may make changes."""

import base64

import pytest

from tailrace.observe.access import Access

TOKEN = "0123456789abcdef-token"
BEARER = {b"authorization": f"Bearer {TOKEN}".encode()}
BASIC = {b"authorization": b"Basic " + base64.b64encode(f"anybody:{TOKEN}".encode())}
HEADER = {b"tailrace-change": b"1"}

LOOPBACK = Access(loopback=True)
LOOPBACK_WITH_TOKEN = Access(loopback=True, token=TOKEN)
WIDE = Access(loopback=False)
WIDE_WITH_TOKEN = Access(loopback=False, token=TOKEN)
CLOSED = Access(loopback=False, token=TOKEN, protect_reads=True)


def status(refusal: object) -> int | None:
    return getattr(refusal, "status", None)


@pytest.mark.parametrize(
    ("access", "headers", "expected"),
    [
        (LOOPBACK, {}, 403),
        (LOOPBACK, HEADER, None),
        (LOOPBACK_WITH_TOKEN, HEADER, 401),
        (LOOPBACK_WITH_TOKEN, BEARER, None),
        (WIDE, HEADER, 403),
        (WIDE_WITH_TOKEN, HEADER, 401),
        (WIDE_WITH_TOKEN, BEARER, None),
        (WIDE_WITH_TOKEN, BASIC, 401),
    ],
)
def test_a_change_needs_the_header_or_the_token(
    access: Access, headers: dict[bytes, bytes], expected: int | None
) -> None:
    assert status(access.changer(headers)) == expected


@pytest.mark.parametrize(
    "given",
    [
        b"",
        b"Bearer ",
        b"Bearer wrong",
        f"Bearer {TOKEN[:-1]}".encode(),
        f"Token {TOKEN}".encode(),
        TOKEN.encode(),
        b"Bearer \xff\xfe",
    ],
)
def test_a_change_with_another_token_is_refused(given: bytes) -> None:
    refusal = WIDE_WITH_TOKEN.changer({b"authorization": given})
    assert refusal is not None
    assert refusal.status == 401
    assert refusal.challenge == "Bearer"
    assert TOKEN not in refusal.message


@pytest.mark.parametrize("scheme", ["bearer", "BEARER", "Bearer "])
def test_the_scheme_of_a_token_may_have_any_case(scheme: str) -> None:
    given = f"{scheme} {TOKEN}".encode()
    assert WIDE_WITH_TOKEN.changer({b"authorization": given}) is None


def test_everybody_may_read_unless_protect_says_everything() -> None:
    for access in (LOOPBACK, WIDE, WIDE_WITH_TOKEN):
        assert access.reader({}) is None


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, 401),
        (HEADER, 401),
        (BEARER, None),
        (BASIC, None),
        ({b"authorization": b"Basic !!!"}, 401),
        ({b"authorization": b"Basic \xff"}, 401),
        ({b"authorization": b"Basic " + base64.b64encode(b"\xff:\xff")}, 401),
        ({b"authorization": b"Bearer \xe9"}, 401),
        ({b"authorization": b"Basic " + base64.b64encode(TOKEN.encode())}, 401),
    ],
)
def test_a_reader_may_give_the_token_as_a_password(
    headers: dict[bytes, bytes], expected: int | None
) -> None:
    assert status(CLOSED.reader(headers)) == expected


@pytest.mark.parametrize(
    ("access", "headers", "expected"),
    [
        (LOOPBACK, {}, True),
        (LOOPBACK_WITH_TOKEN, {}, True),
        (Access(loopback=True, token=TOKEN, protect_reads=True), {}, False),
        (WIDE, BEARER, False),
        (WIDE_WITH_TOKEN, HEADER, False),
        (WIDE_WITH_TOKEN, BEARER, True),
        (WIDE_WITH_TOKEN, BASIC, True),
    ],
)
def test_reasons_and_errors_beyond_loopback_need_the_token(
    access: Access, headers: dict[bytes, bytes], expected: bool
) -> None:
    assert access.sees_texts(headers) is expected


def test_an_empty_token_is_refused_where_none_is_configured() -> None:
    access = Access(loopback=False, protect_reads=True)
    assert status(access.reader({b"authorization": b"Basic Og=="})) == 401
    assert status(access.reader({b"authorization": b"Bearer "})) == 401


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:9464", "localhost.", "127.0.0.1:9464", "127.9.9.9", "[::1]:9464"],
)
def test_names_of_this_machine_are_answered(host: str) -> None:
    assert LOOPBACK.stranger({b"host": host.encode()}) is None


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:9464", "10.0.0.1", "",
     "[::2]", "[", "\xff"],
)  # fmt: skip
def test_names_of_other_hosts_are_refused_on_loopback(host: str) -> None:
    """A page whose name was made to resolve to 127.0.0.1 (DNS rebinding)."""
    assert status(LOOPBACK.stranger({b"host": host.encode("latin-1")})) == 403
