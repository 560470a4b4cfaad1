"""Events of two collections, a few at a time, with renames; and the check of what is made."""

from itertools import chain, pairwise
from typing import Any

from tests.pipeline.events import Stream
from tests.pipeline.model import documents_of
from tests.pipeline.pipeline import Pipeline


class Workload:
    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.stream = Stream()
        self.segments: list[list[dict[str, Any]]] = []

    def land(self) -> None:
        """Lands a segment; each third one begins with a rename."""
        s, n = self.stream, len(self.segments)
        events = [
            *([s.rename("a", "b"), s.insert("k0", "a")] if n % 3 == 2 else []),
            s.insert(f"k{n}", "a", n=n),
            s.update("k0", "a", **{f"f{n}": n}),
            s.delete(f"k{n - 1}", "a") if n > 1 else s.insert("z", "a"),
            *([] if n % 2 else [s.insert(f"k{n}", "b", n=n)]),
        ]
        self.segments.append(events)
        self.pipeline.land(events)

    def check_current(self, segments: int | None = None) -> None:
        """Compares ``current`` with the model of the first segments, or of all."""
        expected = documents_of([*chain(*self.segments[:segments])])
        names = self.pipeline.collections()
        found = {name.partition(".")[2]: self.pipeline.current(name) for name in names}
        assert found == {name: expected.get(name, {}) for name in found}
        assert found.keys() >= expected.keys()

    def check(self) -> None:
        """Compares the tables with the model, and with those made from the segments in one run."""
        pipeline = self.pipeline
        self.check_current()
        names = pipeline.collections()
        made = [(pipeline.current(name), pipeline.history(name)) for name in names]
        log = [(row["scope"], row["ordinal"]) for row in pipeline.table("changes")]
        assert sorted(log) == [("orders", at) for at in range(sum(map(len, self.segments)))]
        self.check_counts(len(log))
        pipeline.tables = f"{pipeline.tables}-fresh"
        pipeline.run()
        assert names == pipeline.collections()
        assert made == [(pipeline.current(name), pipeline.history(name)) for name in names]

    def check_counts(self, events: int) -> None:
        """``quality`` has counted each segment and each publication once."""
        rows = self.pipeline.table("quality")
        for stage in ("landed", "changes"):
            assert sum(row["events"] for row in rows if row["stage"] == stage) == events
        spans: dict[Any, list[tuple[int, int]]] = {}
        for row in rows:
            if row["stage"] in ("landed", "current"):
                span = row["first_segment"], row["last_segment"]
                spans.setdefault(row["collection"], []).append(span)
        for each in map(sorted, spans.values()):
            assert all(first[1] + 1 == second[0] for first, second in pairwise(each)), each
        assert max(spans[None])[1] == len(self.segments) - 1
