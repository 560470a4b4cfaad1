"""Events of two collections, a few at a time, with a rename; and the check of what is made."""

from tests.pipeline.events import Stream
from tests.pipeline.pipeline import Pipeline


class Workload:
    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.stream = Stream()
        self.number = 0

    def land(self) -> None:
        s, n = self.stream, self.number
        self.number += 1
        self.pipeline.land(
            [
                s.insert(f"k{n}", "a", n=n),
                s.update("k0", "a", **{f"f{n}": n}),
                s.delete(f"k{n - 1}", "a") if n > 1 else s.insert("z", "a"),
                *([s.rename("a", "b"), s.insert("k0", "a")] if n == 2 else []),
                *([] if n % 2 else [s.insert(f"k{n}", "b", n=n)]),
            ]
        )

    def check(self) -> None:
        """Compares the tables with those made from the same segments in one run."""
        pipeline = self.pipeline
        names = pipeline.collections()
        made = [(pipeline.current(name), pipeline.history(name)) for name in names]
        log = [(row["scope"], row["ordinal"]) for row in pipeline.table("changes")]
        assert sorted(log) == [("orders", at) for at in range(len(log))]
        assert len(log) == pipeline.landing.last["orders"][1] + 1
        pipeline.tables = f"{pipeline.tables}-fresh"
        pipeline.run()
        assert names == pipeline.collections()
        assert made == [(pipeline.current(name), pipeline.history(name)) for name in names]
