"""What each handler of a scope receives, over any series of stops, crashes and restores.

A handler that owns its position gets every change exactly once. Any other handler gets no change
again that it handled before a clean stop or a forced one; only a crash may repeat changes.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import anyio
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tailrace.engine import Routed
from tailrace.event import ChangeEvent
from tailrace.stores.memory import MemoryDeadLetters
from tailrace.stream import ChangeStreamOptions
from tests.unit.engine.changes import Document, change, ddl, invalidate, time, token
from tests.unit.engine.destinations import Destination, Plain, Table
from tests.unit.engine.read.test_transactions import in_transaction
from tests.unit.engine.scripted_driver import ScriptedDriver
from tests.unit.engine.stores import ScriptedStore
from tests.unit.engine.watching import Watching

PIPELINES = [ChangeStreamOptions(), ChangeStreamOptions(pipeline=({"$match": {"x": 1}},))]


@dataclass(frozen=True)
class Round:
    """One process: what is written, which events fail, how many turns it runs, how it ends."""

    written: list[int]
    """Lengths of transactions; 1 is a single change, 0 a drop with its invalidate."""
    failing: frozenset[int]
    turns: int
    end: str
    restored: int | None
    """The table that is restored after it, from its last backup."""
    changed: bool
    """Whether the pipeline is a different one."""
    down: int = 0
    """How often each table is asked for its position in vain."""


rounds = st.lists(
    st.builds(
        Round,
        written=st.lists(st.sampled_from([1, 1, 1, 1, 1, 1, 2, 5, 0]), max_size=30),
        failing=st.frozensets(st.integers(1, 60), max_size=4),
        turns=st.integers(0, 150),
        end=st.sampled_from(["stop", "stop", "kill", "force"]),
        restored=st.one_of(st.none(), st.none(), st.integers(0, 3)),
        changed=st.booleans(),
        down=st.sampled_from([0, 0, 0, 1, 2, 5, 30]),
    ),
    min_size=1,
    max_size=6,
)


class Oplog:
    """Writes changes: event n is the n-th of all, and belongs to one of a few documents."""

    def __init__(self, driver: ScriptedDriver, keys: int) -> None:
        self._driver = driver
        self._keys = keys
        self.count = 0

    def write(self, length: int) -> None:
        if length == 0:
            self._add(ddl)
            self._add(invalidate, self.count, "2C")
        elif length == 1:
            self._add(lambda n: change(n, n % self._keys))
        else:
            first = self.count + 1
            for index in range(length):
                self._add(
                    lambda n: in_transaction(n, first, documentKey={"_id": n % self._keys}),
                    first,
                    f"2B{index:02}",
                )

    def _add(self, make: Callable[[int], Document], at: int = 0, more: str = "2B") -> None:
        self.count += 1
        n = self.count
        document = make(n) | {"n": n}
        document["_id"] = token(at or n, more).document
        document["clusterTime"] = time(at or n)
        self._driver.oplog.append(document)


@settings(deadline=None, max_examples=400)
@example(  # restored to a point before a call of which a part was stored
    handlers=[("table", 5, 0)],
    batch_size=40,
    keys=7,
    poison=frozenset({9, 24}),
    saves=False,
    whole=False,
    plan=[
        Round([1, 2, 5, 1], frozenset(), 129, "kill", None, True),
        Round([1, 1, 1, 2, 1, 1, 1, 1], frozenset({12}), 127, "stop", None, False),
        Round([], frozenset({15, 37, 40, 45}), 62, "stop", 0, False),
        Round([], frozenset(), 11, "stop", None, False),
        Round([1, 2, 5], frozenset({17, 19, 48, 55}), 59, "force", None, True),
    ],
)
@example(  # restored to the checkpoint's position, which others had passed, and down at the start
    handlers=[("table", 9, 0), ("table", 1, 0), ("table", 7, 0), ("events", 3, 3)],
    batch_size=74,
    keys=1,
    poison=frozenset({26, 20}),
    saves=False,
    whole=False,
    plan=[
        Round([1, 1, 2, 5, 1, 2], frozenset({58, 60, 53, 38}), 25, "kill", 2, True, 1),
        Round([1], frozenset(), 81, "stop", None, False),
        Round([5, 1, 1], frozenset({16, 37, 55}), 107, "kill", None, True),
        Round(
            [1, 0, 2, 5, 1, 1, 1, 0, 2, 5, 1, 1, 1],
            frozenset({42, 10, 58, 30}),
            49,
            "stop",
            0,
            False,
        ),
        Round([], frozenset({24, 57}), 0, "kill", None, True, 5),
    ],
)
@given(
    handlers=st.lists(
        st.tuples(
            st.sampled_from(["table", "table", "committing", "events", "batches"]),
            st.integers(1, 12),
            st.integers(0, 3),
        ),
        min_size=1,
        max_size=4,
    ),
    batch_size=st.integers(1, 80),
    keys=st.integers(1, 9),
    poison=st.frozensets(st.integers(1, 40), max_size=2),
    saves=st.booleans(),
    whole=st.booleans(),
    plan=rounds,
)
async def test_each_change_once(
    handlers: list[tuple[str, int, int]],
    batch_size: int,
    keys: int,
    poison: frozenset[int],
    saves: bool,
    whole: bool,
    plan: list[Round],
) -> None:
    driver, store = ScriptedDriver(batch_size=batch_size), ScriptedStore()
    letters = MemoryDeadLetters()
    oplog = Oplog(driver, keys)
    destinations: list[Destination] = []
    routed: list[Routed] = []
    for index, (kind, size, pauses) in enumerate(handlers):
        name = f"{kind}-{index}"
        if kind in ("table", "committing"):
            table = Table(name)
            destinations.append(table)
            routed.append(
                table.routed(size, commits=kind == "committing", whole_transactions=whole)
            )
        else:
            plain = Plain(name)
            destinations.append(plain)
            by_batch = kind == "batches"
            routed.append(plain.routed_by_batch(size) if by_batch else plain.routed(size))
        destinations[-1].pauses = pauses
        # A handler that commits has no dead letters.
        destinations[-1].poison = set() if kind == "committing" else set(poison)
    tables = [each for each in destinations if isinstance(each, Table)]
    plains = [each for each in destinations if isinstance(each, Plain)]
    backups = [table.backup() for table in tables]
    kept: dict[str, set[int]] = {plain.name: set() for plain in plains}
    seen: dict[str, int] = dict.fromkeys(kept, 0)
    pipeline = 0

    def no_repetition(*, keep: bool) -> None:
        for plain in plains:
            handled = set(plain.handled[seen[plain.name] :])
            again = handled & kept[plain.name]
            assert not again, f"{plain.name} got again {sorted(again)}"
            seen[plain.name] = len(plain.handled)
            kept[plain.name] |= handled if keep else set()

    for one in plan:
        pipeline ^= one.changed
        for length in one.written:
            oplog.write(length)
        for each in destinations:
            each.failing = Counter(one.failing)
            each.down = one.down
        watching = Watching(
            driver,
            *routed,
            store=store,
            letters=letters,
            checkpoint_seconds=0.0001 if saves else 3600,
            options=PIPELINES[pipeline],
        )
        async with watching.run():
            for _ in range(one.turns):
                await anyio.lowlevel.checkpoint()
            if one.end == "kill":
                store.failing = 1000
            if one.end != "stop":
                watching.running.cancel()
        store.failing = 0
        assert watching.watcher.status.state.value != "halted", watching.reason
        no_repetition(keep=one.end != "kill")
        if one.restored is not None and one.restored < len(tables):
            backups[one.restored]()
        else:
            backups = [table.backup() for table in tables]

    for each in destinations:
        each.failing.clear()
        each.down = 0
        each.pauses = 0
    watching = Watching(driver, *routed, store=store, letters=letters, options=PIPELINES[pipeline])
    everything = set(range(1, oplog.count + 1))
    aside: dict[str, list[int]] = {each.name: [] for each in destinations}

    async def whole_of(each: Destination) -> bool:
        got = set(each.rows if isinstance(each, Table) else each.handled)  # type: ignore[attr-defined]
        aside[each.name] = [
            int(ChangeEvent.from_raw(letter.raw).document["n"])
            for letter in await letters.letters("orders", each.name)
        ]
        return got | set(aside[each.name]) == everything

    async with watching.run():
        with anyio.move_on_after(50):
            while not all([await whole_of(each) for each in destinations]):
                await anyio.lowlevel.checkpoint()
    no_repetition(keep=True)
    for each in destinations:
        set_aside = set(aside[each.name])
        assert len(aside[each.name]) == len(set_aside)
        if isinstance(each, Table):
            assert each.rows == sorted(everything - set_aside), each.name
        elif isinstance(each, Plain):
            assert set(each.handled) | set_aside == everything, each.name
            for document in range(keys):
                firsts = list(dict.fromkeys(n for n in each.handled if n % keys == document))
                ordered = [n for n in firsts if driver.oplog[n - 1].get("documentKey")]
                assert ordered == sorted(ordered), each.name
