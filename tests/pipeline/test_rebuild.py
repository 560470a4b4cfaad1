"""Tables rebuilt from segments equal those that the batches made."""

import random
from typing import Any

import pytest

from tailrace.errors import PipelineRefused
from tailrace.pipeline.location import Location
from tests.pipeline.events import Stream
from tests.pipeline.model import documents_of
from tests.pipeline.pipeline import Pipeline

KEYS = ["k", "l", 1, 2]
COLLECTIONS = ["a", "b"]


def random_event(s: Stream, chance: random.Random) -> dict[str, Any]:
    key, collection = chance.choice(KEYS), chance.choice(COLLECTIONS)
    number = chance.randrange(100)
    match chance.randrange(20):
        case 0:
            return s.drop(collection)
        case 1:
            return s.rename("a", "b") if collection == "a" else s.rename("b", "a")
        case 2 | 3 | 4:
            return s.delete(key, collection)
        case 5 | 6 | 7 | 8:
            return s.insert(key, collection, n=number)
        case 9 | 10:
            return s.update(key, collection, image={"_id": key, "n": number}, n=number)
        case 11:
            return s.update(key, collection, image=None, n=number)
        case _:
            return s.update(key, collection, **{chance.choice("xyz"): number})


@pytest.mark.parametrize(
    "where", ["pipeline", "stored_iceberg"], ids=["delta", "iceberg in a bucket"]
)
def test_any_events_in_any_batches_give_the_result_of_the_model(
    where: str, request: pytest.FixtureRequest
) -> None:
    pipeline: Pipeline = request.getfixturevalue(where)
    chance = random.Random(1)
    stream = Stream("p")
    events = [random_event(stream, chance) for _ in range(100)]
    cut = chance.randrange(1, len(events))
    for begin, end in ((0, cut), (cut, len(events))):
        # After a restart, events may come again with new ordinals.
        again = [dict(event) for event in events[max(0, begin - chance.randrange(8)) : begin]]
        pipeline.land([*again, *events[begin:end]])
        pipeline.run()
    expected = documents_of(events)
    states = {name: pipeline.current(f"p.{name}") for name in COLLECTIONS}
    assert states == {name: expected.get(name, {}) for name in COLLECTIONS}
    histories = {name: pipeline.history(f"p.{name}") for name in COLLECTIONS}
    log = sorted(pipeline.table("changes"), key=lambda row: row["ordinal"])

    rebuilt = pipeline.job()
    rebuilt.rebuild()
    assert {name: pipeline.current(f"p.{name}") for name in COLLECTIONS} == states
    assert {name: pipeline.history(f"p.{name}") for name in COLLECTIONS} == histories
    assert sorted(pipeline.table("changes"), key=lambda row: row["ordinal"]) == log
    assert pipeline.run().events == 0


def test_what_retention_took_cannot_be_rebuilt(either: Pipeline) -> None:
    stream, first = Stream(), Location.of(f"{either.lake}/orders/seg-000000000000.parquet")
    for key in "kl":
        either.land([stream.insert(key)])
    first.files.delete_file(first.path)
    with pytest.raises(PipelineRefused, match=r"seg-000000000000\.parquet: is missing"):
        either.job().rebuild()
    assert not Location.of(str(either.tables)).exists()
