"""A class with ``commit`` on a real server: what it accepted is committed, or comes again."""

from tests.daemon import until
from tests.orders import Orders

# Accepts numbers, and appends all of them to a file with each commit.
LATE = """
class Late:
    def __init__(self):
        self.rows = {}

    async def write(self, batch):
        rows = self.rows.setdefault(batch.scope.name, [])
        rows += [e.full_document["n"] for e in batch]
        with open("accepted", "a") as file:
            print(*[e.full_document["n"] for e in batch], sep="\\n", file=file)

    async def commit(self, scope):
        rows = self.rows.pop(scope.name)
        with open("committed", "a") as file:
            print(*rows, sep="\\n", file=file)

    async def rollback(self, scope):
        self.rows.pop(scope.name, None)
"""


def test_accepted_changes_come_again_after_a_kill_and_never_after_a_stop(orders: Orders) -> None:
    late = {"target": "mine:Late", "commit_events": 10, "commit_seconds": 3600}
    run = orders.daemon(targets={"mine": late}, source=LATE).start()
    orders.insert_each({"_id": n, "n": n} for n in range(10))
    until(lambda: run.numbers("committed") == list(range(10)), "the first commit")
    run.until_handled(mine=10)
    orders.insert_each({"_id": n, "n": n} for n in range(10, 14))
    until(lambda: 13 in run.numbers("accepted"), "what is not committed")
    assert run.numbers("committed") == list(range(10))
    run.kill()
    run.start()
    until(lambda: run.numbers("accepted").count(13) == 2, "the same changes again")
    assert run.stop() == 0
    assert sorted(set(run.numbers("committed"))) == list(range(14))
    run.start()
    orders.insert_each([{"_id": 14, "n": 14}])
    until(lambda: 14 in run.numbers("accepted"), "a later change")
    assert run.stop() == 0
    assert run.numbers("committed")[-1] == 14
    assert run.numbers("committed").count(13) == run.numbers("committed").count(14) == 1
