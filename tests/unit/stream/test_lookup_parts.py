"""How many documents a stream looks up at once, and in which parts it returns a reply."""

import pytest

from tailrace.event.wanted_documents import MOST_KEYS
from tailrace.stream import LookupStream
from tailrace.stream.lookup import MOST_BYTES
from tests.unit.stream.fake_driver import FakeDriver, event, reply, tokens
from tests.unit.stream.look_ups import documents, parts_until, position, read, update


async def test_large_documents_come_in_parts_each_with_its_own_position() -> None:
    """The last part has the reply's."""
    events = [update(name, number) for number, name in enumerate("abc")]
    found = [{"_id": number, "text": "x" * 600} for number in range(3)]
    driver = FakeDriver([reply()], [reply(*events, post_batch="p"), reply("d")], documents=found)

    async def see(stream: LookupStream) -> None:
        for name, where in (("a", "a"), ("b", "b"), ("c", "p")):
            batch = await stream.next_batch()
            assert (tokens(batch.events()), position(stream)) == ([name], where)
            assert batch.token == stream.resume_token
            assert batch.operations() == {"update": 1}
        assert tokens((await stream.next_batch()).events()) == ["d"]

    await read(driver, see, most_bytes=1000)
    assert len(driver.look_ups) == 1


@pytest.mark.parametrize(
    ("room", "asked"),
    [(2500, [12, *[2, 1] * 5, 3, 3, 2, 1]), (600, [12, *[1] * 15, 2, 2, 3, 2])],
)
async def test_fewer_are_asked_for_where_a_reply_does_not_hold_all(
    room: int, asked: list[int]
) -> None:
    """As many as would fit, and more again once they do; of each collection."""
    events = [
        update(str(key), key, ns={"db": "shop", "coll": name})
        for key in range(12)
        for name in ("orders", "users")
    ]
    found = [{"_id": key, "text": "x" * (600 if key < 6 else 1)} for key in range(12)]
    driver = FakeDriver([reply()], [reply(*events, post_batch="p")], documents=found)
    driver.found_bytes = room
    parts = await parts_until("p", driver, most_bytes=room)
    assert [each for part in parts for each in documents(part)] == [
        each for each in found for _ in ("orders", "users")
    ]
    assert [wanted.most for wanted in driver.look_ups] == asked


async def test_fewer_are_asked_for_where_the_last_one_alone_is_large() -> None:
    events = [update(name, number) for number, name in enumerate("abc")]
    found = [{"_id": number, "text": "x" * size} for number, size in enumerate([300, 300, 700])]
    driver = FakeDriver([reply()], [reply(*events, post_batch="p")], documents=found)
    driver.found_bytes = 1200
    parts = await parts_until("p", driver, most_bytes=1200)
    assert [each for part in parts for each in documents(part)] == found
    assert driver.look_ups[1].most < driver.look_ups[0].most


async def test_an_invalidate_ends_the_stream_with_the_last_part() -> None:
    events = [update("a", 1), update("b", 2), event("z", "invalidate")]
    found = [{"_id": number, "text": "x" * 600} for number in (1, 2)]
    driver = FakeDriver([reply()], [reply(*events, post_batch="z", closed=True)], documents=found)
    seen = []

    async def see(stream: LookupStream) -> None:
        while not stream.invalidated:
            seen.append((await stream.next_batch()).operations())

    await read(driver, see, most_bytes=1000)
    assert seen == [{"update": 1}, {"update": 1, "invalidate": 1}]


async def test_a_part_is_no_larger_than_a_reply_however_much_may_be_in_flight() -> None:
    """Also where many events have the same large document."""
    events = [update(str(number), 1) for number in range(20)]
    driver = FakeDriver([reply()], [reply(*events, post_batch="p")])
    driver.documents = [{"_id": 1, "text": "x" * 1_000_000}]
    parts = await parts_until("p", driver, most_bytes=1 << 40)
    assert sum(map(len, parts)) == 20
    assert max(part.size for part in parts) <= MOST_BYTES
    assert len(driver.look_ups) == 1


async def test_the_largest_documents_are_looked_up_one_by_one() -> None:
    driver = FakeDriver([reply()], [reply(update("a", 1), update("b", 2), post_batch="p")])
    driver.documents = [{"_id": key, "text": "x" * (MOST_BYTES - 40)} for key in (1, 2)]
    parts = await parts_until("p", driver)
    assert [each["_id"] for part in parts for each in documents(part)] == [1, 2]
    assert [wanted.most for wanted in driver.look_ups] == [2, 1, 1]


async def test_no_find_has_more_keys_than_it_may() -> None:
    """Nor fewer, where documents are gone."""
    events = [update("a", key) for key in range(2 * MOST_KEYS + 2)]
    driver = FakeDriver([reply()], [reply(*events, post_batch="p")])
    parts = await parts_until("p", driver)
    assert sum(map(len, parts)) == len(events)
    assert [wanted.most for wanted in driver.look_ups] == [MOST_KEYS, MOST_KEYS, 2]
