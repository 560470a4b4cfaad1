"""The keys of Redis compared with documents."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from bson import DBRef, Int64

from tailrace import Unavailable
from tailrace.testing import Changes
from tests.destinations.calling import opened
from tests.destinations.comparing import ORDERS, Found, compared, read_in_parts
from tests.destinations.redis import Redis
from tests.destinations.test_postgresql_values import IDS, ODD
from tests.handlers import OWNER, deliver

NUMBER = re.compile(r'"(\d+)"}}$')


@pytest.fixture
def keys(made: Callable[..., Any]) -> Any:
    return made("redis")


async def test_documents_of_every_kind_are_equal_to_their_keys(
    keys: Redis, changes: Changes
) -> None:
    documents: list[Any] = [{"_id": each, "n": 1} for each in [*IDS, DBRef("b", 1, a=2)]]
    documents.append({"_id": "odd", **{name: value for name, (_, value) in ODD.items()}})
    given = {**keys.handler, "fields": {"leave_out": ["secret"]}}
    async with opened(given) as handler:
        await deliver(handler, *[changes.insert({**each, "secret": 1}) for each in documents])
        found = await compared(handler, changes)
        assert not found, found


async def test_large_rows_are_not_read_at_once(keys: Redis, changes: Changes) -> None:
    async with opened(keys.handler) as handler:
        await read_in_parts(handler, changes)


async def test_sabotaged_keys_are_all_found(keys: Redis, changes: Changes) -> None:
    async with opened(keys.handler) as handler:
        events = [changes.insert({"_id": n, "n": Int64(n), "x": -0.0}) for n in range(500)]
        await deliver(handler, *events)
        names = {int(NUMBER.findall(name)[0]): name for name in keys.keys}
        with keys.server.client() as client:
            for n, name in names.items():
                if n < 100 or n >= 400:
                    client.delete(name)
                elif n < 200:
                    client.set(name, client.get(name).replace('"n":', '"m":'))
                elif n < 300:
                    client.set(name, client.get(name).replace("-0.0", "0.0"))
                else:
                    client.rename(name, name.replace(f'"{n}"', f'"{n + 5000}"'))
                if n >= 400:
                    client.lpush(name, "another type")
            client.set(names[0].partition("{")[0] + '{"_id":nonsense}', "")
        found = await compared(handler, changes)
    assert {tuple(fields) for n, fields in found.different.items() if n < 200} == {
        ("value.n", "value.m")
    }
    assert {tuple(fields) for n, fields in found.different.items() if n >= 200} == {("value.x",)}
    assert len(found.different) == 200
    assert found.missing == [*range(100), *range(300, 500)]
    assert len(found.too_many) == 101


async def test_a_key_that_may_have_expired_is_not_missing(keys: Redis, changes: Changes) -> None:
    async with opened({**keys.handler, "expire_seconds": 1000}) as handler:
        await deliver(handler, changes.insert({"_id": 1}))
        changes.insert({"_id": 2})
        assert await compared(handler, changes) == Found()
    async with opened(keys.handler) as handler:
        assert await compared(handler, changes) == Found(missing=[2])


async def test_a_stream_cannot_be_asked(made: Callable[..., Any]) -> None:
    async with opened(made("redis", log=True).handler) as handler:
        assert handler.comparison is None


async def test_a_server_that_is_down_is_waited_for(keys: Redis, changes: Changes) -> None:
    async with opened(keys.handler) as handler:
        await deliver(handler, changes.insert({"_id": 1}))
        assert handler.comparison is not None
        async with handler.comparison(OWNER) as comparison:
            await comparison.stored_keys(ORDERS, None, 1)
            keys.stop()
            with pytest.raises(Unavailable):
                await comparison.stored_keys(ORDERS, None, 1)
            keys.start()
            await comparison.stored_keys(ORDERS, None, 1)
