"""What ``http`` makes of an endpoint's answers, and of none."""

import itertools
import json
from contextlib import suppress

import anyio
import pytest
from aiohttp import web

from tailrace.errors import ConfigurationError, Refused, Unavailable
from tailrace.testing import Harness
from tests.destinations.http_endpoint import (
    SECRETS,
    answer,
    event,
    hook,
    hooked,
    nothing,
    of,
    receiving,
    silence,
)
from tests.destinations.http_raw import answering
from tests.destinations.http_receiver import verified
from tests.handlers import deliver


@pytest.mark.parametrize("status", [200, 202, 204, 299])
async def test_an_event_is_done_when_the_endpoint_accepts_it(status: int) -> None:
    async with hooked(answer(status)) as (endpoint, handler):
        await deliver(handler, event())
    assert endpoint.only.request.method == "POST"


@pytest.mark.parametrize(
    "status",
    [302, 304, 401, 403, 404, 405, 407, 408, 409, 410, 415, 425, 429, 500, 501, 502, 503, 504],
)
async def test_other_answers_are_outages(status: int) -> None:
    async with hooked(answer(status)) as (_, handler):
        with pytest.raises(Unavailable, match=str(status)):
            await deliver(handler, event())


@pytest.mark.parametrize("status", [400, 413, 422, 431])
async def test_a_refusal_is_a_dead_letter_with_the_start_of_the_answer(status: int) -> None:
    said = answer(status, "no such\nfield, password=hunter2hunter2 " + "x" * 10_000)
    async with receiving(said) as endpoint, Harness(of(endpoint)) as harness:
        harness.changes.insert({"_id": 1})
        harness.changes.insert({"_id": 2})
        await harness.handled()
        (letter,) = await harness.dead_letters()
    assert f"answers {status}: no such field, password=***" in letter.reason
    assert len(letter.reason) < 500
    assert len(endpoint.received) == 2


async def test_statuses_that_refuse_can_be_chosen() -> None:
    async with hooked(answer(409), refused_statuses=[409]) as (_, handler):
        with pytest.raises(Refused):
            await deliver(handler, event())


async def test_the_endpoint_says_when_it_is_back() -> None:
    said = answer(429, retry_after="7")
    async with hooked(said) as (_, handler):
        with pytest.raises(Unavailable) as caught:
            await deliver(handler, event())
    assert caught.value.retry_after == 7


async def test_a_connection_that_ends_without_an_answer_is_an_outage() -> None:
    async with hooked(nothing, nothing) as (_, handler):
        with pytest.raises(Unavailable, match="cannot be reached"):
            await deliver(handler, event())


UNREADABLE = {
    "a body after 204": b"HTTP/1.1 204 No Content\r\n\r\nstored",
    "a length after 204": b"HTTP/1.1 204 No Content\r\ncontent-length: 6\r\n\r\nstored",
    "chunks after 204": b"HTTP/1.1 204 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
    "a header of 20 kB": b"HTTP/1.1 200 OK\r\nx: %b\r\ncontent-length: 0\r\n\r\n" % (b"y" * 20_000),
    "a header of 200 kB": b"HTTP/1.1 200 OK\r\nx: %b\r\n\r\n" % (b"y" * 200_000),
    "300 headers": b"HTTP/1.1 200 OK\r\n%bcontent-length: 0\r\n\r\n" % (b"x: y\r\n" * 300),
    "no header at all": b"HTTP/1.1 200 OK\r\n \x00:::\r\n\r\n",
    "a length that is none": b"HTTP/1.1 200 OK\r\ncontent-length: six\r\n\r\nstored",
    "two lengths": b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nst",
    "length and chunks": b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n"
    b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks that are none": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nstored\r\n",
    "half a body": b"HTTP/1.1 201 Created\r\ncontent-length: 100\r\n\r\n{",
    "half the headers": b"HTTP/1.1 202 Accepted\r\ncontent-",
    "interim answers first": b"HTTP/1.1 100 Continue\r\n\r\n"
    b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 204 OK\r\n\r\nstored",
    "no reason": b"HTTP/1.1 204\r\n\r\nstored",
    "bare line feeds": b"HTTP/1.1 200 OK\ncontent-length: 1\n\nx",
}


@pytest.mark.parametrize("said", UNREADABLE)
@pytest.mark.parametrize("pieces", [1, 2, 10_000])
async def test_an_answer_counts_by_its_first_line_whatever_comes_after_it(
    said: str, pieces: int
) -> None:
    """Sent again, the event would be stored again. The next event has a good connection."""
    whole = UNREADABLE[said]
    size = -(-len(whole) // min(pieces, len(whole)))
    parts = [whole[at : at + size] for at in range(0, len(whole), size)][:500]
    parts.append(whole[500 * size :])
    closes = said.startswith("half") or pieces == 2
    async with answering(*filter(None, parts), closes=closes) as endpoint, hook(endpoint.url) as it:
        with anyio.fail_after(20):
            await deliver(it, event())
            await deliver(it, event())
    assert endpoint.requests == 2


@pytest.mark.parametrize("first", [b"HTTP/1.1  200 OK", b"HTTP/3.7 204 OK", b"http/1.1 200"])
async def test_a_first_line_need_not_be_as_the_standard_wants_it(first: bytes) -> None:
    async with answering(first + b"\r\n\r\n") as endpoint, hook(endpoint.url) as handler:
        await deliver(handler, event())
    assert endpoint.requests == 1


@pytest.mark.parametrize(
    ("status", "raised"), [(422, Refused), (503, Unavailable), (302, Unavailable)]
)
async def test_another_status_counts_as_well_if_what_follows_cannot_be_read(
    status: int, raised: type[Exception]
) -> None:
    said = b"HTTP/1.1 %d No\r\ncontent-length: six\r\n\r\nstored" % status
    async with answering(said) as endpoint, hook(endpoint.url) as handler:
        with pytest.raises(raised, match=f"answers {status}"):
            await deliver(handler, event())
    assert endpoint.requests == 1


async def test_an_answer_that_is_none_is_an_outage() -> None:
    async with answering(b"220 mail.example.com ESMTP\r\n") as endpoint, hook(endpoint.url) as it:
        with pytest.raises(Unavailable, match="cannot be reached"):
            await deliver(it, event())


async def test_a_connection_that_was_just_being_closed_is_no_outage() -> None:
    async with hooked(answer(204), nothing) as (endpoint, handler):
        await deliver(handler, event())
        await deliver(handler, event())
    assert len(endpoint.received) == 3


async def test_an_endpoint_that_does_not_answer_in_time_is_an_outage() -> None:
    """It counts no attempt, although the handler has a time limit."""
    async with (
        receiving(silence, silence) as endpoint,
        Harness(of(endpoint, timeout_seconds=0.05)) as harness,
    ):
        harness.changes.insert({"_id": 1})
        await harness.handled()
        assert not await harness.dead_letters()
    assert len(endpoint.received) == 3


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/", "http://no-such-host.invalid/"])
async def test_nobody_listens_or_the_name_is_unknown(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"accepts no connection.* 'tailrace run' starts"):
        async with hook(url):
            pass


async def test_a_long_answer_is_not_read_to_its_end() -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        with suppress(ConnectionError):
            while True:
                await response.write(b"x" * 2**16)
        return response

    async with hooked(endless) as (_, handler):
        await deliver(handler, event())


@pytest.mark.parametrize("status", [307, 308])
async def test_a_redirect_to_the_same_host_is_followed(status: int) -> None:
    moved = answer(status, location="/elsewhere?a=b")
    async with hooked(moved, secret=SECRETS[0]) as (endpoint, handler):
        await deliver(handler, event())
    first, second = endpoint.received
    assert second.request.path_qs == "/elsewhere?a=b"
    assert second.body == first.body
    assert verified(second.request, second.body, SECRETS[0])


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_to_another_host_is_an_outage(status: int) -> None:
    async with receiving() as other, hooked(answer(status, location=other.url)) as (_, handler):
        with pytest.raises(Unavailable, match="which is not followed: change url"):
            await deliver(handler, event())
    assert not other.received


async def test_redirects_in_a_circle_are_an_outage() -> None:
    circle = itertools.repeat(answer(307, location="/hook"))
    async with hooked() as (endpoint, handler):
        endpoint.answers = circle
        with pytest.raises(Unavailable):
            await deliver(handler, event())
    assert len(endpoint.received) == 6


@pytest.mark.parametrize(
    ("listed", "requests"),
    [(True, 2), (False, 6)],
    ids=["the endpoint lists it", "the endpoint does not say which"],
)
async def test_the_event_at_fault_in_a_batch_is_found(listed: bool, requests: int) -> None:
    """Its place in the request is not that in the batch: the envelope has no form for the first."""

    async def refuses(request: web.Request) -> web.Response:
        documents = [each["value"] for each in endpoint.received[-1].data]
        bad = [at for at, each in enumerate(documents) if each and each["n"] == 3]
        if not bad:
            return web.Response()
        reasons = [{"index": at, "reason": "an odd number"} for at in bad]
        return web.json_response({"refused": reasons} if listed else {}, status=422)

    async with receiving() as endpoint:
        endpoint.answers = itertools.repeat(refuses)
        given = of(endpoint, envelope="document", batch_size=100, linger_seconds=0.2)
        async with Harness(given, scope={"full_document": "default"}) as harness:
            harness.changes.insert({"_id": 0, "n": 0})
            await harness.handled()
            before = len(endpoint.received)
            harness.changes.update(0, {"n": 1})
            for number in range(1, 5):
                harness.changes.insert({"_id": number, "n": number})
            await harness.handled()
            (letter,) = await harness.dead_letters()
    assert letter.event.full_document == {"_id": 3, "n": 3}
    assert "422" in letter.reason
    assert ("an odd number" in letter.reason) == listed
    assert len(endpoint.received) - before == requests
    accepted = [each["value"]["_id"] for got in endpoint.received for each in got.data]
    assert {1, 2, 4} <= set(accepted)


async def test_requests_overlap_for_different_documents_only() -> None:
    open_requests, most = set[str](), 0
    order = dict[str, list[str]]()

    async def watched(request: web.Request) -> web.Response:
        nonlocal most
        data = endpoint.received[-1].data
        key = json.dumps(data["documentKey"])
        assert key not in open_requests
        open_requests.add(key)
        most = max(most, len(open_requests))
        order.setdefault(key, []).append(data["_id"]["_data"])
        if most < 4:
            await until_open(4)
        open_requests.discard(key)
        return web.Response()

    async def until_open(count: int) -> None:
        while most < count:
            await anyio.lowlevel.checkpoint()

    async with receiving() as endpoint:
        endpoint.answers = itertools.repeat(watched)
        async with Harness(of(endpoint, concurrency=4)) as harness:
            for step, number in itertools.product(range(5), range(8)):
                if step:
                    harness.changes.update(number, {"step": step})
                else:
                    harness.changes.insert({"_id": number})
            await harness.handled()
    assert most == 4
    assert all(each == sorted(each) and len(each) == 5 for each in order.values())
