"""What every store keeps of verifications."""

from dataclasses import replace
from threading import get_ident

import bson
import pytest
from bson.timestamp import Timestamp

from tailrace.errors import CheckpointFenced
from tailrace.model.snapshot import DocumentId
from tailrace.model.verification import (
    ComparedCollection,
    Counts,
    Difference,
    Kind,
    Phase,
    Verification,
    VerificationRequest,
)
from tailrace.stores.records import readable
from tests.contract.stores import NOW, Backing

KEY = DocumentId(bson.encode({"_id": 7}))
REQUEST = VerificationRequest(
    ("orders",), '{"n": 1}', ("7",), 0.25, 500.0, values=True, from_beginning=True
)
FIRST = Verification("orders", "audit", "65a0", 1, REQUEST, "ann", NOW)


async def test_a_verification_comes_back_with_every_field(backing: Backing) -> None:
    counts = Counts().plus(equal=2, missing=1)
    of = ComparedCollection("00" * 16, "shop", "orders", 9, True, Phase.DESTINATION, counts, KEY)
    of = replace(of, cursor="x", open=(KEY, KEY), note="a note")
    time = Timestamp(1_700_000_000, 3)
    found = Difference("shop.orders", "7", Kind.DIFFERENT, ("n",), time, KEY, ("1",), ("2",))
    whole = replace(FIRST, collections={of.name: of}, keys=(found,), letters=("a",), ended=NOW)
    async with backing.open() as opened:
        assert await opened.verifications.load("orders") == []
        await opened.verifications.save(FIRST)
        await opened.verifications.save(whole)
        await opened.verifications.save(replace(FIRST, handler="search"))
        await opened.verifications.save(replace(FIRST, scope="orders2"))
    async with backing.open() as opened:
        stored = await opened.verifications.load("orders")
        assert stored == [whole, replace(FIRST, handler="search")]


async def test_records_are_decoded_beside_the_event_loop() -> None:
    """One may have thousands of differences, and changes go on meanwhile."""
    threads = list[int]()

    def read(record: object) -> Verification:
        threads.append(get_ident())
        return FIRST

    assert await readable(read, [{}]) == [FIRST]
    assert threads != [get_ident()]


def test_what_is_stored_of_a_difference_is_made_once() -> None:
    found = Difference("shop.orders", "7", Kind.DIFFERENT, ("n",), Timestamp(1, 1), KEY)
    whole = replace(FIRST, keys=(found,))
    later = replace(whole, epoch=2)
    assert later.to_document()["keys"][0] is whole.to_document()["keys"][0]


async def test_a_process_that_was_replaced_stores_no_progress(backing: Backing) -> None:
    async with backing.open() as opened:
        await opened.verifications.save(replace(FIRST, epoch=2))
        with pytest.raises(CheckpointFenced):
            await opened.verifications.save(FIRST)
        assert [each.epoch for each in await opened.verifications.load("orders")] == [2]
