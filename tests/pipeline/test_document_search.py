"""Where a document is: in which segments of the lake, and in which version of the tables."""

from typing import Any

import bson
import pytest
from bson.timestamp import Timestamp

from tailrace.config.catalog import TablesAt
from tailrace.errors import PipelineRefused
from tailrace.event.document_key import identity
from tailrace.lake.document_search import Found, SoughtDocument, search
from tailrace.lake.segment import Documents
from tailrace.pipeline.document_search import find_document
from tailrace.why.answer import TableState
from tests.pipeline.events import Stream
from tests.pipeline.landing import Landing
from tests.pipeline.pipeline import Pipeline

ORDERS = ("shop", "orders")


def element(key: Any) -> bytes:
    return identity(bson.encode({"_id": key}), 0)


def sought(lake: Landing, key: Any, since: Timestamp | None = None, seconds: float = 9) -> Found:
    raw = bson.encode({"_id": key})
    return search(
        str(lake.path), "orders", SoughtDocument([raw], element(key), ORDERS, since), seconds
    )


@pytest.mark.parametrize("documents", Documents)
def test_the_newest_segments_are_searched_and_no_more_than_asked(
    tmp_path: Any, documents: Documents
) -> None:
    lake, s = Landing(tmp_path / "lake", documents), Stream()
    for number in range(5):
        events = [s.insert(f"k{number}"), s.insert(f"k{number}", "items"), s.update("all", n=1)]
        lake.land(events)
    last = events[-1]["clusterTime"]
    found = sought(lake, "all")
    assert [(each.number, each.ordinal) for each in found.events] == [
        (segment, 3 * segment + 2) for segment in (4, 3, 2, 1, 0)
    ]
    assert (found.searched, found.segments, found.complete) == (5, 5, True)
    assert found.lake == lake.identity
    assert [each.number for each in sought(lake, "k1").events] == [1], "not the one of items"

    found = sought(lake, "all", since=last)
    assert [each.number for each in found.events] == [4]
    assert (found.searched, found.complete) == (1, True), "the others end before that time"
    found = sought(lake, "k1", seconds=0)
    assert (found.events, found.searched, found.complete) == ([], 1, False), "the time is over"


def found_in(pipeline: Pipeline, key: Any, seconds: float = 9) -> list[TableState]:
    lake, states = find_document(
        TablesAt(str(pipeline.tables)), "orders", ("shop", "orders"), element(key), seconds
    )
    assert lake == pipeline.landing.identity
    return [*states]


def test_tables_say_which_change_of_a_document_they_have(pipeline: Pipeline) -> None:
    with pytest.raises(PipelineRefused, match="no tables of this pipeline"):
        found_in(pipeline, 7)
    s = Stream()
    pipeline.land([s.insert(7, n=1), s.insert("7", n=1), s.insert("gone")])
    pipeline.land([updated := s.replace(7, n=2), s.delete("gone")])
    pipeline.run()
    pipeline.land([s.replace(7, n=3)])  # is not in the tables yet

    current, history = found_in(pipeline, 7.0)
    assert (current.table, history.table) == ("current/shop.orders", "history/shop.orders")
    assert current.segment == history.segment == 1
    assert (current.has_document, current.operation) == (True, "replace")
    assert (current.cluster_time, current.ordinal) == (updated["clusterTime"], 3)
    assert current.published_at is not None
    assert history.has_document is None
    assert found_in(pipeline, "7")[0].ordinal == 1
    assert found_in(pipeline, "gone")[0].has_document is False
    where = TablesAt(str(pipeline.tables))
    elsewhere = find_document(where, "orders", ("shop", "other"), element(7), 9)[1]
    assert [(each.version, each.has_document) for each in elsewhere] == [(-1, False)]
