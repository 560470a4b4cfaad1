"""A collection on a real server, daemons that copy it, and the destination that they copy it to."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from itertools import accumulate
from typing import Any

import bson

from tailrace.event.extended_json import to_json
from tests.daemon import Daemon, until
from tests.destinations.destination import Destination, Sent
from tests.load import Load
from tests.machine import free_port
from tests.orders import Orders
from tests.replicas import LEASE_SECONDS, assert_ends_well

SECONDS = 90.0
"""How long the destination may take to equal the source; Kafka's first transaction takes two."""


class Copying:
    """The collection ``orders``; its documents are ``{"_id": int, "n": int}`` with more fields.

    The handler ``it`` is the destination, and ``file`` a file in which each event is at once.
    Updates carry the exact document of their change.
    """

    def __init__(self, orders: Orders, destination: Destination) -> None:
        self.orders = orders
        self.destination = destination
        self._client = orders.server.client()
        self.collection = self._client[orders.database].orders
        images = {"changeStreamPreAndPostImages": {"enabled": True}}
        self._client[orders.database].create_collection("orders", **images)

    def close(self) -> None:
        self._client.close()

    def daemon(
        self,
        directory: str = "run",
        *,
        handler: Mapping[str, Any] | None = None,
        scope: Mapping[str, Any] | None = None,
        **sections: Any,
    ) -> Daemon:
        """It is not started. Attempts are spent soon, and batches are small."""
        soon = {"attempts": 2, "first_seconds": 0.01, "cap_seconds": 0.01}
        it = {"batch_size": 20, "retry": soon, **self.destination.handler, **(handler or {})}
        return self.orders.daemon(
            directory,
            scope={"full_document": "required", **(scope or {})},
            handlers={"it": it, "file": {"type": "jsonl", "path": "events.jsonl"}},
            routes=[{"scope": "orders", "handlers": ["it", "file"]}],
            **{"http": {"port": free_port()}, **sections},
        )

    def replica(self, name: str, **sections: Any) -> Daemon:
        """A daemon that shares the scope with others of this test; it is not started."""
        store = {"type": "mongodb", "database": f"{self.orders.database}_store"}
        lease = {"lease_seconds": LEASE_SECONDS, "name": name}
        return self.daemon(name, store=store, replicas=lease, **sections)

    # --- the source ----------------------------------------------------------------------------

    def insert(self, ids: Iterable[int], **fields: Any) -> None:
        self.collection.insert_many([{"_id": each, "n": 0, **fields} for each in ids])

    def count(self, ids: Iterable[int]) -> None:
        """Adds one to the counter of each document, with an update each."""
        for each in ids:
            self.collection.update_one({"_id": each}, {"$inc": {"n": 1}})

    def load(self, ids: int = 20, every_seconds: float = 0.01) -> AbstractContextManager[Load]:
        """Inserts the first ids, unless they are there, and then counts in turn in its block."""
        if missing := [each for each in range(ids) if key_of(each) not in self.source]:
            self.insert(missing)

        def write(numbers: list[int]) -> None:
            self.count(number % ids for number in numbers)

        return Load(write, every_seconds)

    @property
    def source(self) -> dict[str, dict[str, Any]]:
        """The documents by canonical key."""
        return {key_of(each["_id"]): each for each in self.collection.find()}

    # --- the destination -----------------------------------------------------------------------

    @property
    def documents(self) -> dict[str, dict[str, Any]]:
        found = self.destination.documents(self.orders.database, "orders")
        return {key: dict(document) for key, document in found.items()}

    @property
    def sent(self) -> list[Sent]:
        return list(self.destination.sent() or ())

    def until_has(self, *ids: int) -> None:
        """Until it has these documents, in whatever state."""
        keys = {key_of(each) for each in ids}
        until_seen(lambda: keys <= self.documents.keys(), f"documents {ids}")

    def until_equal(self) -> None:
        """Until it has what the source has, and nothing else."""
        until_same(lambda: self.documents, self.source)

    def assert_in_order(self) -> None:
        """No message skips a change of its document; where promised, none comes twice.

        The counter of a document is 0 when it is inserted, and each change adds one. Without the
        promise, a message of a process that was paused may come after those of the next one.
        """
        changes: dict[str, list[int]] = {}
        for each in self.sent:
            if each.key is not None and each.document is not None:
                first = each.key not in changes and each.operation != "read"
                assert not first or each.document["n"] == 0, each
                changes.setdefault(each.key, []).append(each.document["n"])
        for key, numbers in changes.items():
            pairs = zip(accumulate(numbers, max), numbers[1:], strict=False)
            assert all(after <= furthest + 1 for furthest, after in pairs), (key, numbers)
            twice = [number for number, times in Counter(numbers).items() if times > 1]
            assert not (self.destination.once and twice), (key, numbers)
        last = {key: numbers[-1] for key, numbers in changes.items() if key in self.source}
        assert last == {key: document["n"] for key, document in self.source.items()}


def until_seen(condition: Callable[[], Any], what: str, *, fails: bool = True) -> None:
    """Like ``until``, for looks that cost the destination something: soon, and then less often."""
    end = time.monotonic() + SECONDS
    pause = 0.05
    while not condition():
        if time.monotonic() > end:
            assert not fails, f"waited {SECONDS} s in vain: {what}"
            return
        time.sleep(pause)
        pause = min(1.5 * pause, 0.5)


def until_same(
    look: Callable[[], Mapping[str, Any]], source: Mapping[str, Any], run: Daemon | None = None
) -> None:
    """Until what is seen is the source, which changes no more.

    Fails once nothing has come for :data:`SECONDS`, with what differs and what ``run`` says.
    """
    seen = look()
    while seen != source:
        before = seen

        def moved(before: Mapping[str, Any] = before) -> bool:
            nonlocal seen
            seen = look()
            return seen != before

        until_seen(moved, "more", fails=False)
        if seen == before:
            raise AssertionError(_difference(seen, source) + (_told(run) if run else ""))


def _difference(seen: Mapping[str, Any], source: Mapping[str, Any]) -> str:
    keys = [key for key in {**source, **seen} if source.get(key) != seen.get(key)]
    lines = [f"{key}: {seen.get(key)} instead of {source.get(key)}" for key in keys[:10]]
    said = f"{len(keys)} documents differ, and nothing came for {SECONDS} s; the first of them:"
    return "\n".join([said, *lines])


def _told(run: Daemon) -> str:
    return f"\nthe daemon says {run.status()}, and at last logged\n{run.log[-4000:]}"


def key_of(identity: Any) -> str:
    """The document key as canonical Extended JSON."""
    return to_json(bson.encode({"_id": identity}), canonical=True)


def until_waiting(run: Daemon) -> None:
    """Until the scope says that it waits for the destination."""
    until(lambda: run.status().get("state") == "waiting", "that it waits for 'it'")
    assert "handler 'it'" in run.status()["reason"]
    assert run.metric("tailrace_destination_up", handler="it") == 0


def assert_untroubled(run: Daemon) -> None:
    """It stops well; there was no dead letter, no halt and no traceback."""
    run.signal()
    assert_ends_well(run)
    assert not run.logged("event.dead_lettered")
    assert not run.logged("scope.halted")
