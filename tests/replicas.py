"""Daemons that share the scopes of one store, and the changes that their handlers noted."""

import signal
import sqlite3
from collections import defaultdict
from collections.abc import Collection
from contextlib import closing
from typing import Any, NamedTuple

from tests.daemon import Daemon, until, whole_lines
from tests.orders import Orders

LEASE_SECONDS = 2
"""For tests in which a lease expires. A slow machine may lose one at any time."""
STEADY_SECONDS = 60
"""For tests in which no lease may be lost: no machine stands still for so long."""

SOURCE = """
import os
import time

import anyio

NAME, SHARED = os.environ["NAME"], os.environ["SHARED"]


async def note(event, scope, epoch):
    number = event.document_key["_id"]
    if "poison" in event.full_document:
        raise ValueError("poison")
    with open(SHARED, "a") as file:
        file.write(f"{scope} {epoch} {NAME} {number}\\n")
    if os.path.exists("block"):
        time.sleep(float(open("block").read()))
        os.unlink("block")
    while os.path.exists("hang"):
        try:
            await anyio.sleep(0.05)
        except anyio.get_cancelled_exc_class():
            pass  # as a handler does that catches everything
"""


class Noted(NamedTuple):
    """A change that a process has handed over."""

    scope: str
    epoch: int
    process: str
    number: int


class Replicas:
    """``store`` is the section that all daemons share; each has its own directory and name."""

    source = SOURCE
    """The source of the module with the handler ``note``."""

    def __init__(
        self, orders: Orders, store: dict[str, Any] | None = None, lease: float = LEASE_SECONDS
    ) -> None:
        self.orders, self.lease = orders, lease
        self.store = store or {"type": "mongodb", "database": f"{orders.database}_store"}
        self.runs: dict[str, Daemon] = {}

    def daemon(self, name: str, uri: str = "", **sections: Any) -> Daemon:
        """Creates a daemon without starting it."""
        more = {"mongodb": {"uri": uri}} if uri else {}
        run = self.orders.daemon(
            name,
            targets={"note": {"target": "mine:note"}},
            source=self.source,
            store=self.store,
            checkpoint={"interval_seconds": 0.05},
            replicas={"lease_seconds": self.lease, "name": name},
            **more,
            **sections,
        )
        shared = run.directory.parent / "handed-over"
        shared.touch()
        run.environ = {"NAME": name, "SHARED": str(shared)}
        self.runs[name] = run
        return run

    def start(self, *names: str, **sections: Any) -> list[Daemon]:
        """Creates and starts daemons, one after another."""
        return [self.daemon(name, **sections).start() for name in names]

    def following(self, *scopes: str) -> dict[str, Any]:
        """The sections of a daemon that follows these scopes, each on its own collection."""
        return {
            "scopes": [self.orders.scope(name=name, collection=name) for name in scopes],
            "routes": [{"scope": name, "handlers": ["note"]} for name in scopes],
        }

    def owners(self, scope: str = "orders", among: Collection[Daemon] = ()) -> list[Daemon]:
        """The running daemons that report that they hold the lease; by default, of all."""
        asked = among or self.runs.values()
        alive = [run for run in asked if run.process and run.process.poll() is None]
        return [run for run in alive if run.metric("tailrace_lease_held", scope=scope) == 1]

    def until_owner(self, *among: Daemon, scope: str = "orders") -> Daemon:
        """Waits until exactly one daemon holds the lease of the scope, and returns that daemon.

        Only those ``among`` are asked: one that is paused would not answer for half a minute.
        """

        def found() -> Daemon | None:
            owners = self.owners(scope, among)
            return owners[0] if len(owners) == 1 else None

        owner: Daemon = until(found, f"an owner of {scope}")
        return owner

    def request(self, scope: str, to: Daemon) -> None:
        """Requests a scope from its owner, in the store of type ``mongodb``.

        A process does so itself two leases after the last one has joined.
        """
        names = {each["name"]: each["_id"] for each in self.documents if "name" in each}
        member = names[to.directory.name].partition(":")[2]
        with self.orders.server.client() as client:
            leases = client[self.store["database"]].leases
            leases.update_one({"_id": scope}, {"$set": {"wanted_by": member}})

    def pause(self, run: Daemon) -> None:
        """Sends SIGSTOP when the process does not write to the store of type ``sqlite``.

        The lock on SQLite's file, which it would have, stops all others (docs/architecture.md).
        """

        def is_outside_a_write() -> bool:
            run.signal(signal.SIGSTOP)
            path = self.store["path"]
            with closing(sqlite3.connect(path, timeout=0.5, isolation_level=None)) as database:
                try:
                    database.execute("BEGIN IMMEDIATE")
                except sqlite3.OperationalError:
                    run.signal(signal.SIGCONT)
                    return False
                return True

        until(is_outside_a_write, "a pause outside a write")

    def others(self, owner: Daemon) -> list[Daemon]:
        return [run for run in self.runs.values() if run is not owner]

    @property
    def documents(self) -> list[dict[str, Any]]:
        """The documents of leases and members in a store of type ``mongodb``."""
        with self.orders.server.client() as client:
            return list(client[self.store["database"]]["leases"].find())

    @property
    def handed_over(self) -> str:
        """What the handlers of all processes have written."""
        return (next(iter(self.runs.values())).directory.parent / "handed-over").read_text()

    @property
    def noted(self) -> list[Noted]:
        """The changes in the order in which the handlers of all processes were called."""
        lines = [line.split() for line in whole_lines(self.handed_over)]
        return [Noted(scope, int(epoch), name, int(n)) for scope, epoch, name, n in lines]

    def until_noted(self, number: int, scope: str = "orders") -> None:
        until(
            lambda: any(each.number >= number for each in self.noted if each.scope == scope),
            f"change {number} of {scope}",
        )

    def assert_shared(self, written: int, scope: str = "orders") -> None:
        """Every change came, in order; no owner handed changes over after the next owner had begun.

        The one exception is a call that had already begun: nothing can stop it (docs/replicas.md).
        """
        noted = [each for each in self.noted if each.scope == scope]
        assert {each.number for each in noted} >= set(range(noted[0].number, written))
        newest, late = 0, defaultdict[int, int](int)
        seen, last = noted[0].number - 1, dict[int, int]()
        names: dict[int, str] = {}
        for each in noted:
            assert names.setdefault(each.epoch, each.process) == each.process, "one process each"
            if each.epoch < newest:
                late[each.epoch] += 1
                continue
            newest = each.epoch
            before = last.get(each.epoch)
            if before is None:
                assert each.number <= seen + 1, f"changes before {each} are missing"
            else:
                assert each.number == before + 1, f"{each} came behind {before}"
            last[each.epoch], seen = each.number, max(seen, each.number)
        assert all(count == 1 for count in late.values()), late

    def stop(self) -> None:
        """Stops all running daemons; each drains."""
        running = [run for run in self.runs.values() if run.process and run.process.poll() is None]
        for run in running:
            run.signal()
        for run in running:
            self.assert_ends_well(run)

    def assert_ends_well(self, run: Daemon) -> None:
        """Waits for the exit of a daemon that was told to stop."""
        assert_ends_well(run, may_lose_leases=self.lease < STEADY_SECONDS)
        assert not run.logged("scope.halted")


def assert_ends_well(run: Daemon, *, may_lose_leases: bool = True) -> None:
    """Waits for the exit of a daemon that was told to stop.

    A slow machine may lose a short lease before its drain has ended, and says so.
    """
    code = run.wait()
    if code == 3 and may_lose_leases:
        reasons = [
            why for each in run.logged("service.not_saved") for why in each["scopes"].values()
        ]
        assert reasons and all("lease" in why for why in reasons), run.log  # noqa: PT018
    else:
        assert code == 0, run.log
    assert "Traceback" not in run.log, run.log
