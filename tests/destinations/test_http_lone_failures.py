"""An endpoint that fails single events for ever: the others arrive, and those are refused."""

import itertools
import json
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from aiohttp import web

from tailrace.errors import Refused, Unavailable
from tailrace.testing import Harness
from tests.destinations.http_endpoint import (
    Receiver,
    event,
    hook,
    nothing,
    of,
    receiving,
    silence,
)
from tests.guards import against_hanging
from tests.handlers import deliver

Fails = Callable[[web.Request], Any]


def ids(body: bytes) -> list[Any]:
    data = json.loads(body)
    return [
        each["documentKey"]["_id"] if "documentKey" in each else each["operationType"]
        for each in (data if isinstance(data, list) else [data])
    ]


def failing(endpoint: Receiver, bad: set[Any], fails: Fails) -> list[Any]:
    """Lets the endpoint fail requests with these documents; the ids that it has accepted."""
    accepted: list[Any] = []

    async def judged(request: web.Request) -> web.StreamResponse:
        found = ids(endpoint.received[-1].body)
        if bad.intersection(found):
            return await fails(request)
        accepted.extend(found)
        return web.Response()

    endpoint.answers = itertools.repeat(judged)
    return accepted


async def status(request: web.Request) -> web.Response:
    return web.Response(status=500)


@pytest.mark.parametrize("fails", [status, nothing, silence])
@pytest.mark.parametrize("batch_size", [1, 20])
async def test_events_that_fail_alone_are_refused_and_the_others_pass(
    fails: Fails, batch_size: int
) -> None:
    """Six of them, and four places."""
    bad = set(range(1, 7))
    more = {"concurrency": 4} if batch_size == 1 else {"batch_size": 20, "linger_seconds": 0.01}
    async with receiving() as endpoint:
        accepted = failing(endpoint, bad, fails)
        given = of(endpoint, lone_failures=2, timeout_seconds=0.2, **more)
        async with Harness(given) as harness:
            for number in range(20):
                harness.changes.insert({"_id": number})
            harness.changes.update(3, {"n": 1})
            await harness.handled()
            letters = await harness.dead_letters()
    assert set(accepted) == set(range(20)) - bad
    assert {letter.event.document_key["_id"] for letter in letters} == bad
    reasons = [letter.reason for letter in letters if letter.reason]
    assert len(reasons) == 6
    assert all("2 times while it accepted others" in reason for reason in reasons)


async def test_an_event_that_was_refused_is_counted_anew_when_it_comes_again() -> None:
    """As after a halt: by then the endpoint may be down."""
    async with receiving() as endpoint, hook(endpoint.url, lone_failures=1) as handler:
        bad: set[Any] = {2}
        failing(endpoint, bad, status)
        await deliver(handler, event(identity=1))
        for raised in (Unavailable, Refused):
            with pytest.raises(raised):
                await deliver(handler, event(identity=2))
        bad.add(1)
        for _ in range(3):
            with pytest.raises(Unavailable):
                await deliver(handler, event(identity=2))


@pytest.mark.parametrize("batch_size", [1, 20])
async def test_a_ddl_event_that_fails_alone_is_refused(batch_size: int) -> None:
    async with receiving() as endpoint:
        accepted = failing(endpoint, {"drop"}, status)
        async with Harness(of(endpoint, lone_failures=2, batch_size=batch_size)) as harness:
            harness.changes.insert({"_id": 1})
            harness.changes.drop()
            harness.changes.insert({"_id": 2})
            await harness.handled()
            (letter,) = await harness.dead_letters()
    assert letter.event.operation_type == "drop"
    assert set(accepted) == {1, 2, "invalidate"}


@pytest.mark.parametrize("batch_size", [1, 20])
@pytest.mark.parametrize(
    "said", [{"status": 429}, {"status": 503, "headers": {"retry-after": "0"}}]
)
async def test_a_quota_is_no_events_fault(batch_size: int, said: dict[str, Any]) -> None:
    tries = 0

    async def limited(request: web.Request) -> web.Response:
        nonlocal tries
        tries += 1
        return web.Response(**said) if tries < 6 else web.Response()

    async with receiving() as endpoint:
        failing(endpoint, {1}, limited)
        async with Harness(of(endpoint, lone_failures=1, batch_size=batch_size)) as harness:
            for number in range(4):
                harness.changes.insert({"_id": number})
            await harness.handled()
            assert not await harness.dead_letters()
    assert tries == 6


@pytest.mark.parametrize("batch_size", [1, 20])
async def test_an_endpoint_that_accepts_nothing_is_an_outage(batch_size: int) -> None:
    async with receiving() as endpoint:
        bad: set[Any] = set(range(1, 100))
        accepted = failing(endpoint, bad, status)
        async with Harness(of(endpoint, lone_failures=1, batch_size=batch_size)) as harness:
            harness.changes.insert({"_id": 0})
            await harness.handled()
            bad.add(0)  # also what it has accepted before
            for number in range(1, 9):
                harness.changes.insert({"_id": number})
            before = len(endpoint.received)
            with against_hanging():
                while len(endpoint.received) < before + 12:
                    await anyio.lowlevel.checkpoint()
            bad.clear()
            await harness.handled()
            assert not await harness.dead_letters()
    assert set(accepted) == set(range(9))


async def test_a_batch_that_is_too_large_for_the_endpoint_is_sent_in_halves() -> None:
    sizes: list[int] = []

    async with receiving() as endpoint:

        async def judged(request: web.Request) -> web.StreamResponse:
            sizes.append(len(ids(endpoint.received[-1].body)))
            return web.Response(status=504 if sizes[-1] > 3 else 200)

        endpoint.answers = itertools.repeat(judged)
        given = of(endpoint, batch_size=100, linger_seconds=0.1)
        async with Harness(given) as harness:
            harness.changes.insert({"_id": 100})
            await harness.handled()
            for number in range(12):
                harness.changes.insert({"_id": number})
            await harness.handled()
            assert not await harness.dead_letters()
    assert max(size for size in sizes if size <= 3) == 3
