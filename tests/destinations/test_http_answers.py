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
    Answer,
    answer,
    event,
    half,
    hook,
    hooked,
    nothing,
    of,
    receiving,
    silence,
)
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


@pytest.mark.parametrize("lost", [nothing, half])
async def test_a_connection_that_ends_too_soon_is_an_outage(lost: Answer) -> None:
    async with hooked(lost, lost) as (_, handler):
        with pytest.raises(Unavailable, match="cannot be reached"):
            await deliver(handler, event())


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
