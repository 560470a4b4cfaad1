"""``order: key`` on a real server: several batches at once, each document in order."""

from collections import defaultdict
from itertools import pairwise

from pymongo import ReplaceOne

from tests.daemon import until
from tests.orders import Orders

# Appends a line "begin key:n …" and a line "end key:n …" for each batch, and DDL by itself.
SLOW = """
import asyncio

class Slow:
    async def write(self, batch):
        words = " ".join(f"{e.document_key['_id']}:{e.full_document['n']}" for e in batch)
        self.note(f"begin {words}")
        await asyncio.sleep(0.02)
        self.note(f"end {words}")

    async def on_ddl(self, event):
        self.note(f"ddl {event.operation_type}")

    def note(self, line):
        with open("calls", "a") as file:
            print(line, file=file)
"""

KEYS = 12


def test_each_document_comes_in_order_and_calls_overlap_over_a_kill_and_a_stop(
    orders: Orders,
) -> None:
    target = {"target": "mine:Slow", "order": "key", "concurrency": 4, "batch_size": 5}
    run = orders.daemon(targets={"mine": target}, source=SLOW).start()
    calls = run.directory / "calls"

    def lines() -> list[list[str]]:
        return [line.split() for line in calls.read_text().splitlines()] if calls.exists() else []

    def handled() -> dict[str, list[int]]:
        """By document, the numbers that calls ended with."""
        found = defaultdict(list)
        for word, *items in lines():
            for key, n in (item.split(":") for item in items if word == "end"):
                found[key].append(int(n))
        return found

    def write(first: int, end: int) -> None:
        with orders.server.client() as client:
            client[orders.database].orders.bulk_write(
                [
                    ReplaceOne({"_id": key}, {"n": n}, upsert=True)
                    for n in range(first, end)
                    for key in range(KEYS)
                ]
            )

    write(0, 1)
    until(lambda: len(handled()) == KEYS, "the inserts")
    write(1, 30)
    until(lambda: len(lines()) > 60, "some calls")
    run.kill()
    run.start()
    orders.drop()
    until(lambda: ["ddl", "drop"] in lines(), "the drop")
    before = len(lines())
    assert run.stop() == 0
    run.start()
    write(100, 101)
    until(lambda: all(100 in each for each in handled().values()), "what comes after the stop")
    assert run.stop() == 0
    for numbers in handled().values():
        assert list(dict.fromkeys(numbers)) == sorted(set(numbers))
        assert {*range(30), 100} >= set(numbers)
        assert numbers[-1] == 100
    # A clean stop repeats nothing.
    again = [item for word, *items in lines()[before:] if word == "end" for item in items]
    assert sorted(again) == sorted(f"{key}:100" for key in range(KEYS))
    assert any(one[0] == other[0] == "begin" for one, other in pairwise(lines()))
    at = lines().index(["ddl", "drop"])
    assert {word for word, *_ in lines()[:at]} == {"begin", "end"}
