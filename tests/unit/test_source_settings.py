"""What a source cannot do with the settings, with what to change."""

import time
from datetime import UTC, datetime

import pytest
from bson.timestamp import Timestamp

from tailrace.errors import ConfigurationError
from tailrace.source_settings import require_readable
from tests.unit.config.files import minimal, parse

pytestmark = pytest.mark.anyio


async def now() -> Timestamp:
    return Timestamp(int(time.time()) - 9, 1)  # an idle server's


async def problems(uri: str = "mongodb://db/?replicaSet=rs0", **scope: object) -> list[str]:
    settings = parse(minimal(mongodb={"uri": uri}, scope=scope))
    try:
        await require_readable(settings, now)
    except ConfigurationError as error:
        return [str(problem) for problem in error.problems]
    return []


@pytest.mark.parametrize(
    ("limit", "wait", "least"),
    [(500, None, 2000), (800, 1000, 2000), (1500, None, 2000), (20_000, 30_000, 31_000)],
)
async def test_a_socket_that_is_closed_before_an_idle_read_ends_is_refused(
    limit: int, wait: int | None, least: int
) -> None:
    options = {} if wait is None else {"max_await_time_ms": wait}
    (problem,) = await problems(f"mongodb://db/?sockettimeoutms={limit}", **options)
    assert problem.startswith(f"mongodb.uri: socketTimeoutMS={limit} ends reads")
    assert problem.endswith(f"leave it out, or give at least {least}")
    assert not await problems(f"mongodb://db/?socketTimeoutMS={least}", **options)


async def test_a_start_in_the_future_is_refused() -> None:
    (problem,) = await problems(start_at="2099-01-01T00:00:00Z")
    assert problem.startswith("scopes[0].start_at: 2099-01-01T00:00:00Z is in the future")


async def test_a_start_of_a_route_in_the_future_is_refused() -> None:
    """That of the scope is of no effect then: no handler begins there."""
    late = "2099-01-01T00:00:00Z"
    settings = parse(minimal(scope={"start_at": late}, route={"start_at": late}))
    with pytest.raises(ConfigurationError) as refused:
        await require_readable(settings, now)
    (problem,) = refused.value.problems
    assert str(problem).startswith(f"routes[0].start_at: {late} is in the future")


async def test_a_start_at_this_moment_is_not_in_the_future_of_an_idle_server() -> None:
    assert not await problems(start_at=datetime.now(UTC).isoformat())
