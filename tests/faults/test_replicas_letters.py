"""Dead letters of scopes that processes share, at a change of the owner."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.actions import act
from tests.daemon import Daemon, until
from tests.machine import free_port
from tests.mongod.operations import operations
from tests.replicas import STEADY_SECONDS, Replicas

SOURCE = """
from pathlib import Path

import anyio

HERE = Path.cwd()

async def note(event, scope, epoch):
    n = event.full_document["n"]
    if n == 1 and not (HERE.parent / "mended").exists():
        raise ValueError("poison")
    with open(HERE.parent / "handed-over", "a") as file:
        print(scope, epoch, HERE.name, n, file=file)
    while (HERE.parent / "hold").exists():
        await anyio.sleep(0.02)
"""


@pytest.fixture
def pair(replicas: Replicas) -> Replicas:
    """Two processes that make a change a dead letter at its first failure."""
    replicas.lease = STEADY_SECONDS
    for name in ("one", "two"):
        run = replicas.daemon(
            name,
            delivery={"retry": {"attempts": 1}},
            http={"port": free_port()},
        )
        (run.directory / "mine.py").write_text(SOURCE)
        run.start()
    return replicas


def take_over(replicas: Replicas, by: Daemon) -> None:
    """Makes a process the owner in place of one that was killed."""
    by.command("scopes", "release", "orders")
    replicas.until_owner(by)


def write(replicas: Replicas, n: int) -> None:
    """Writes the next state of the one document."""
    with replicas.orders.server.client() as client:
        client[replicas.orders.database].orders.replace_one({"_id": 0}, {"n": n}, upsert=True)


@pytest.mark.parametrize("replicas", ["sqlite", "mongodb"], indirect=True)
def test_changes_wait_for_the_letters_of_the_previous_owner(pair: Replicas) -> None:
    """The owner replays them, with its epoch; where no process runs, nobody does."""
    one, two = pair.runs.values()
    pair.until_owner(one)
    write(pair, 1)
    until(lambda: one.metric("tailrace_dead_letters_total", handler="note") == 1, "the letter")
    one.kill()
    take_over(pair, by=two)
    write(pair, 2)
    # Change 1 comes again if it was not saved.
    until(lambda: len(two.letters()) == 2, "the next one")
    assert pair.noted == []
    (one.directory.parent / "mended").touch()
    epoch = two.status()["lease"]["epoch"]
    code, errors = one.refused("dead-letters", "replay")
    assert (code, "the daemon has to run" in errors) == (1, True), errors
    assert "Replayed 2 dead letters" in two.command("dead-letters", "replay")
    write(pair, 3)
    pair.until_noted(3)
    assert [each[1:] for each in pair.noted] == [
        (epoch, "two", 1),
        (epoch, "two", 2),
        (epoch, "two", 3),
    ]
    pair.stop()


@pytest.mark.parametrize("replicas", ["mongodb"], indirect=True)  # SQLite writes nothing late
def test_a_dead_letter_of_a_killed_owner_that_is_written_late_is_refused(
    pair: Replicas,
) -> None:
    """Else a replay would deliver change 1 once more, after 2 and 3."""
    one, two = pair.runs.values()
    letters = f"{pair.store['database']}.dead_letters"
    pair.until_owner(one)

    def late() -> bool:
        """Whether the server holds the write of the letter."""
        with pair.orders.server.client() as client:
            return bool(operations(client, {"command.update": "dead_letters"}))

    held = {"blockConnection": True, "blockTimeMS": 15_000}
    pair.orders.server.fail("update", namespace=letters, **held)
    write(pair, 1)
    until(late, "the write of the letter")
    one.kill()
    (one.directory.parent / "mended").touch()
    take_over(pair, by=two)
    for n in (2, 3):
        write(pair, n)
    pair.until_noted(3)
    assert late()
    until(lambda: not late(), "the end of that write")
    assert two.command("dead-letters", "replay") == "No dead letters.\n"
    assert [each.number for each in pair.noted] == [1, 2, 3]
    pair.stop()


def reads(run: Daemon, epoch: int) -> bool:
    """Whether it reads the scope under a later epoch: then the letters are its own, too."""
    status = run.status()
    return bool(status["lease"]["epoch"] > epoch and status["state"] == "caught_up")


def test_a_replay_ends_when_the_scope_moves_and_new_letters_of_the_document_wait(
    pair: Replicas,
) -> None:
    """The letter in hand was handled, but not by an owner: it comes again, before the others."""
    one, two = pair.runs.values()
    owner = pair.until_owner(one, two)
    write(pair, 1)
    (letter,) = until(owner.letters, "the letter")
    hold = owner.directory.parent / "hold"
    for file in ("mended", "hold"):
        (owner.directory.parent / file).touch()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(act, owner, f"/dead-letters/{letter['id']}/replay")
        pair.until_noted(1)
        write(pair, 2)
        until(lambda: len(owner.letters()) == 2, "a letter behind it")
        epoch = owner.status()["lease"]["epoch"]
        one.command("scopes", "release", "orders")
        until(lambda: any(reads(run, epoch) for run in (one, two)), "a move")
        hold.unlink()
        status, answer = asked.result(60)
    assert (status, "the others still wait: " in answer) == (409, True), answer
    replayed = pair.until_owner(one, two).command("dead-letters", "replay")
    assert "Replayed 2 dead letters" in replayed
    write(pair, 3)
    pair.until_noted(3)
    assert [each.number for each in pair.noted] == [1, 1, 2, 3]
    assert pair.noted[1].epoch > epoch
    pair.stop()
