"""Restarts in the way of Kubernetes with ``maxUnavailable: 0``, while documents change.

A new process starts and is ready before the oldest one is stopped by SIGTERM. ``ROUNDS`` sets the
number of restarts.
"""

import os
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from pymongo import UpdateOne

from tailrace.model.lease import Member
from tailrace.replicas.assignment import assignment
from tests.daemon import Daemon, until
from tests.load import Load
from tests.orders import Orders
from tests.replicas import Replicas

SCOPES = [f"scope-{number}" for number in range(6)]
DOCUMENTS = 5
"""The number of documents in each scope."""
PROCESSES, RESTARTS, OF_AN_UPDATE = 3, int(os.environ.get("ROUNDS", "8")), 4
LEASE_SECONDS = 8
"""The steps of an update follow one another in twice this time, on slow machines, too."""

SOURCE = """
import os
import random

import anyio

NAME, SHARED = os.environ["NAME"], os.environ["SHARED"]


async def note(event, scope, epoch):
    document = event.document_key["_id"]
    number = (event.full_document or event.update_description["updatedFields"])["n"]

    def say(what):
        with open(SHARED, "a") as file:
            file.write(f"{what} {scope} {epoch} {NAME} {document} {number}\\n")

    say("began")
    await anyio.sleep(random.random() * 0.05)
    say("ended")
"""


class Holder(NamedTuple):
    """A scope's lease in the store: ``process`` is empty while nobody holds it."""

    process: str
    epoch: int


class Rolling(Replicas):
    """Each process has a name of its own, as a pod has."""

    source = SOURCE

    def __init__(self, orders: Orders) -> None:
        super().__init__(orders, lease=LEASE_SECONDS)
        self._running = deque[Daemon]()

    def start_one(self) -> None:
        run = self.daemon(f"process-{len(self.runs)}")
        run.configuration |= self.following(*SCOPES)
        self._running.append(run.start())

    def end_oldest(self) -> None:
        oldest = self._running.popleft()
        oldest.signal()
        self.assert_ends_well(oldest)

    def holders(self) -> Mapping[str, Holder]:
        """The holders of the leases, by scope."""
        found = self.documents
        names = {each["_id"].partition(":")[2]: each["name"] for each in found if "name" in each}
        return {
            each["_id"]: Holder(names.get(each["owner"], ""), each["epoch"])
            for each in found
            if "epoch" in each
        }

    def until_followed(self) -> Mapping[str, Holder]:
        def followed() -> Mapping[str, Holder] | None:
            holders = self.holders()
            return holders if all(each.process for each in holders.values()) else None

        holders: Mapping[str, Holder] = until(followed, "an owner of each scope")
        return holders

    def until_balanced(self) -> None:
        """Waits until each scope is with the process that should have it."""
        names = [run.directory.name for run in self._running]
        wanted = assignment(SCOPES, [Member(name, name) for name in names])

        def balanced() -> bool:
            holders = self.holders()
            return all(holders[scope].process == name for scope, name in wanted.items())

        until(balanced, "the balance")

    @contextmanager
    def counting(self) -> Iterator[Load]:
        """Increments ``n`` of each document of each scope by one, in turns."""
        with self.orders.server.client() as client:
            database = client[self.orders.database]

            def write(numbers: list[int]) -> None:
                updates = [
                    UpdateOne({"_id": n % DOCUMENTS}, {"$set": {"n": n // DOCUMENTS}}, upsert=True)
                    for n in numbers
                ]
                for scope in SCOPES:
                    database[scope].bulk_write(updates)

            with Load(write, every_seconds=0.1) as load:
                yield load

    def until_handled(self, written: int) -> None:
        """Waits until as many changes are handled as were written to each scope."""
        count = written * len(SCOPES)
        until(lambda: self.handed_over.count("ended") >= count, f"{count} changes")

    def assert_each_once(self, written: int) -> None:
        """Every change was handed over and handled exactly once, in the order of its document.

        Each epoch of a scope belongs to a single process.
        """
        counted = defaultdict[tuple[str, str, int], list[int]](list)
        owners = defaultdict[tuple[str, str], set[str]](set)
        for line in self.handed_over.splitlines():
            what, scope, epoch, name, document, number = line.split()
            counted[what, scope, int(document)].append(int(number))
            owners[scope, epoch].add(name)
        assert len(counted) == 2 * len(SCOPES) * DOCUMENTS
        for (what, scope, document), numbers in counted.items():
            count = len(range(document, written, DOCUMENTS))
            at = next((at for at, number in enumerate(numbers) if number != at), len(numbers))
            message = f"{what}, {scope}, document {document}: {numbers[max(at - 2, 0) : at + 5]}"
            assert numbers == list(range(count)), f"{message} at change {at} of {count}"
        assert all(len(names) == 1 for names in owners.values()), owners

    def assert_every_turn_is_logged(self) -> None:
        """Each epoch of a scope was acquired by one process, and released by that process."""
        epochs = {scope: holder.epoch for scope, holder in self.holders().items()}
        for event in ("lease.acquired", "lease.released"):
            logged = defaultdict[str, list[int]](list)
            for run in self.runs.values():
                for entry in run.logged(event):
                    logged[entry["scope"]].append(entry["epoch"])
            assert {scope: sorted(each) for scope, each in logged.items()} == {
                scope: list(range(1, epoch + 1)) for scope, epoch in epochs.items()
            }


def test_rolling_restarts_lose_reorder_and_repeat_nothing(orders: Orders) -> None:
    """A restart moves a scope at most twice: from a stopping process, and to its final owner."""
    replicas = Rolling(orders)
    for _ in range(PROCESSES):
        replicas.start_one()
    before = replicas.until_followed()
    moved = Counter[int]()
    with replicas.counting() as load:
        for restart in range(1, RESTARTS + 1):
            replicas.start_one()
            load.more()
            replicas.end_oldest()
            holders = replicas.until_followed()
            if restart % OF_AN_UPDATE == 0:
                replicas.until_balanced()
                holders = replicas.holders()
            for scope, holder in holders.items():
                moves = holder.epoch - before[scope].epoch
                assert moves <= 2, f"{scope} moved {moves} times at restart {restart}"
                moved[moves] += 1
            before = holders
    replicas.until_handled(load.written)
    replicas.stop()
    print(f"{load.written} changes of each scope; restarts by how often a scope moved: {moved}")
    replicas.assert_each_once(load.written)
    replicas.assert_every_turn_is_logged()
