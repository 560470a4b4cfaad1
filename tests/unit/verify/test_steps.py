"""What a verification says of rows while documents change between its reads."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from tailrace.model.verification import Counts, Kind, Verification, VerificationRequest
from tailrace.snapshot.pace import ChunkPace
from tailrace.stores.memory import MemoryDeadLetters
from tailrace.verify.findings import Findings
from tailrace.verify.looks import MOST_LOOKS, Looker
from tailrace.verify.steps import Steps
from tests.contract.stores import letter
from tests.guards import against_hanging
from tests.unit.verify.scripted import ORDERS, QuickWorld, World, at, too_old

MakeWorld = Callable[..., World]


@pytest.fixture(params=[World, QuickWorld])
def world(request: pytest.FixtureRequest) -> MakeWorld:
    """Makes one with six documents and rows."""

    def made(**fields: Any) -> World:
        found: World = request.param(**fields)
        for number in range(6):
            found.change(number, 0)
        found.follow()
        return found

    return made


async def verified(
    world: World,
    letters: Any = None,
    *,
    full_document: str | None = None,
    most: int = 1000,
    busy: bool = False,
    **request: Any,
) -> Verification:
    """Compares the collection to its end, in chunks of ``most`` documents."""
    asked = VerificationRequest(**request)
    record = Verification("orders", "audit", "1", 1, asked, "ann", datetime.now(UTC))
    record = replace(record, collections={ORDERS.name: ORDERS})
    findings = Findings(record, letters or MemoryDeadLetters())
    source: Any = world
    steps = Steps(
        findings,
        source,
        ChunkPace(most, asked.documents_per_second),
        world.reached,
        lambda: busy,
    )
    looker = Looker(source, world, world.reached, full_document)
    with against_hanging():
        while not (of := findings.record.collections[ORDERS.name]).is_over:
            await steps.step(looker, of)
    return findings.record


def kinds(record: Verification) -> dict[str, Kind]:
    return {each.key: each.kind for each in record.keys}


def text(number: int) -> str:
    return f'{{"$numberInt":"{number}"}}'


async def test_equal_rows_are_equal(world: MakeWorld) -> None:
    record = await verified(world())
    assert record.counts == Counts(compared=6, equal=6)


@pytest.mark.parametrize("per_second", [0.0, 1e6])
async def test_rows_of_several_chunks_are_told_apart(world: MakeWorld, per_second: float) -> None:
    one = world()
    one.rows[list(one.rows)[3]] = {"n": 1}
    record = await verified(one, most=2, documents_per_second=per_second)
    assert record.counts == Counts(compared=6, equal=5, different=1)
    assert kinds(record) == {text(3): Kind.DIFFERENT}


@pytest.mark.parametrize("busy", [False, True])
async def test_chunks_are_small_while_changes_come(world: MakeWorld, busy: bool) -> None:
    one = world()
    for number in range(6, 1000):
        one.change(number, 0)
    one.follow()
    record = await verified(one, busy=busy)
    assert record.counts == Counts(compared=1000, equal=1000)
    assert (max(one.sizes) <= 300) == busy


async def test_rows_that_were_changed_by_hand_differ(world: MakeWorld) -> None:
    one = world()
    rows = list(one.rows)
    one.rows[rows[1]] = {"n": 1}
    del one.rows[rows[2]]
    one.change(9, 5)
    one.follow()
    one.forgotten.append(one.changes.pop())  # the source never had it
    one.handled -= 1
    record = await verified(one)
    assert kinds(record) == {
        text(1): Kind.DIFFERENT,
        text(2): Kind.MISSING,
        text(9): Kind.TOO_MANY,
    }
    assert record.keys[0].fields == ("n",)
    assert record.counts == Counts(7, equal=4, different=1, missing=1, too_many=1)


async def test_a_destination_that_is_behind_is_compared_as_of_its_position(
    world: MakeWorld,
) -> None:
    one = world()
    for number in range(6):
        one.change(number, 1)
    one.change(6, 1)
    record = await verified(one)
    assert record.keys == ()
    assert record.counts.equal == 6


@pytest.mark.parametrize("full_document", ["lookup", "updateLookup"])
async def test_a_looked_up_document_may_be_ahead_of_the_position(
    world: MakeWorld, full_document: str
) -> None:
    one = world()
    one.change(3, 1)
    one.change(3, 0)
    list_of = list(one.rows)
    one.rows[list_of[3]] = {"n": 1}  # looked up between both changes, for an earlier one
    one.on["documents"] = [lambda: None, one.follow]
    record = await verified(one, full_document=full_document)
    assert record.counts == Counts(compared=6, equal=6)


async def test_a_position_within_a_transaction_makes_no_difference(world: MakeWorld) -> None:
    one = world()
    one.change(3, 1)
    one.change(4, 1)
    one.changes[-1] = (one.moment - 1, 4, 1)  # both have the same time
    one.moment -= 1
    one.follow(len(one.changes) - 1)
    one.on["stored"] = [lambda: None, lambda: None, one.follow]
    record = await verified(one)
    assert record.counts == Counts(compared=6, equal=6)


async def test_a_document_that_changes_at_each_look_is_in_flux(world: MakeWorld) -> None:
    one = world(positioned=False)

    def hot() -> None:
        one.change(2, one.moment)
        one.handled = len(one.changes) - 1
        one.rows[list(one.rows)[2]] = {"n": "between"}

    one.on["now"] = [hot] * 50
    one.on["stored"] = [lambda: one.rows.update({list(one.rows)[2]: {"n": "between"}})] * 50
    record = await verified(one)
    assert record.counts == Counts(compared=6, equal=5, in_flux=1)
    assert one.reads.count("touched") == MOST_LOOKS


async def test_a_row_that_has_the_document_of_its_position_is_equal(
    world: MakeWorld,
) -> None:
    one = world()

    def hot() -> None:
        one.change(2, one.moment)
        one.follow(len(one.changes) - 1)

    one.on["stored"] = [hot] * 3
    record = await verified(one, full_document="lookup")
    assert record.counts == Counts(compared=6, equal=6)
    assert "touched" not in one.reads


async def test_a_moment_that_cannot_be_read_any_more_is_replaced_by_now(world: MakeWorld) -> None:
    for code in (239, 246):
        one = world()
        one.change(1, 7)
        one.failures["documents"] = [too_old(code)]
        one.on["touched"] = [one.follow]
        record = await verified(one)
        assert record.counts == Counts(compared=6, equal=6)


async def test_a_rename_in_the_window_settles_nothing(world: MakeWorld) -> None:
    one = world(positioned=False)
    one.rows[list(one.rows)[1]] = {"n": 1}
    one.moment += 1
    one.ddl = [one.moment]
    one.on["touched"] = [lambda: None, one.ddl.clear]  # the handler has it then
    record = await verified(one)
    assert kinds(record) == {text(1): Kind.DIFFERENT}
    assert one.reads.count("touched") == 2


async def test_documents_that_go_and_come_meanwhile_are_no_difference(world: MakeWorld) -> None:
    one = world(positioned=False)

    def deleted() -> None:
        one.change(2, None)
        one.change(8, 1)
        one.follow()

    one.on["stored"] = [deleted]
    record = await verified(one)
    assert record.counts.equal == record.counts.compared  # one is read before, or after it came


async def test_a_document_with_a_dead_letter_is_set_aside_with_its_id(world: MakeWorld) -> None:
    letters = MemoryDeadLetters()
    aside = letter(1, 4)
    await letters.claim("orders", 1)
    await letters.add(aside, 1)
    one = world()
    one.rows[list(one.rows)[4]] = {"n": "old"}
    one.rows[list(one.rows)[5]] = {"n": "old"}
    record = await verified(one, letters)
    assert kinds(record) == {text(5): Kind.DIFFERENT}
    assert record.counts == Counts(6, equal=4, different=1, set_aside=1)
    assert record.letters == (aside.id,)


async def test_values_are_told_only_if_they_are_asked_for(world: MakeWorld) -> None:
    for values in (False, True):
        one = world()
        one.rows[list(one.rows)[1]] = {"n": 1}
        (found,) = (await verified(one, values=values)).keys
        assert (found.expected, found.stored) == ((("0",), ("1",)) if values else ((), ()))
        assert found.since == at(one.moment)


async def test_only_the_chosen_keys_are_compared(world: MakeWorld) -> None:
    one = world()
    del one.rows[list(one.rows)[1]]
    record = await verified(one, keys=("1", '{"$numberDouble": "3.0"}', "77"))
    assert kinds(record) == {text(1): Kind.MISSING}
    assert record.counts == Counts(2, equal=1, missing=1)
    assert "keys" not in one.reads
