"""What the data source of Spark reads of a lake, without Spark: offsets, parts and rows."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bson
import pyarrow.parquet as pq
import pytest
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.types import StructType

from tailrace.errors import PipelineRefused, SegmentUnreadable
from tailrace.lake.segment import Documents
from tailrace.spark.data_source import data_source
from tailrace.spark.options import schema_of
from tailrace.spark.planning import whole_lake
from tailrace.spark.reading import read
from tests.pipeline.events import Stream
from tests.pipeline.landing import Landing
from tests.spark.query import Query


@pytest.fixture
def landing(tmp_path: Path) -> Landing:
    return Landing(tmp_path / "lake")


class _Row:
    def __init__(self, values: dict[str, Any]) -> None:
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


def rows(landing: Landing, **options: str) -> list[_Row]:
    parts = whole_lake({"lake": str(landing.path), **options})
    return [_Row(row) for part in parts for batch in read(part) for row in batch.to_pylist()]


def test_each_event_is_a_row_in_three_forms(landing: Landing) -> None:
    s = Stream()
    oid = bson.ObjectId("65f0a1b2c3d4e5f6a7b8c9d0")
    far: dict[str, Any] = {
        "at": bson.DatetimeMS(300_000_000_000_000),
        "n": bson.Int64(5),
        "x": float("nan"),
    }
    events = [
        s.insert(oid, total=bson.Decimal128("1.10"), **far),
        s.insert(7, big="x" * 3_000_000),
        s.update(7, state="paid"),
        s.delete({"a": 1, "b": [1.5]}),
        s.rename("orders", "older"),
        s.drop_database(),
        *s.snapshot(),
    ]
    landing.land(events)
    landing.land([], gap={"scope": "orders", "policy": "skip"})
    landing.land([s.insert("a b")], documents=Documents.CANONICAL)
    found = rows(landing)
    assert [row.operation for row in found] == [
        *(event["operationType"] for event in events), "gap", "insert"
    ]  # fmt: skip
    first, second, third, fourth, *_, gap, last = found
    assert json.loads(first.document) == {
        "_id": {"$oid": str(oid)},
        "total": {"$numberDecimal": "1.10"},
        "at": {"$date": {"$numberLong": "300000000000000"}},
        "n": 5,
        "x": {"$numberDouble": "NaN"},
    }
    assert (first.key, second.key) == (f'{{"$oid":"{oid}"}}', '{"$numberInt":"7"}')
    assert len(second.document) > 3_000_000
    assert json.loads(third.update_description)["updatedFields"] == {"state": "paid"}
    assert json.loads(fourth.key) == {"a": {"$numberInt": "1"}, "b": [{"$numberDouble": "1.5"}]}
    assert all(row.key is None for row in found[4:-1])
    assert json.loads(gap.extra)["policy"] == "skip"
    assert (last.segment, last.key, json.loads(last.document)) == (2, '"a b"', {"_id": "a b"})
    time = events[0]["clusterTime"]
    assert (first.cluster_time.timestamp(), first.cluster_increment) == (time.time, time.inc)
    canonical = rows(landing, documents="canonical")
    assert json.loads(canonical[0].document)["n"] == {"$numberLong": "5"}
    assert json.loads(canonical[-1].document_key) == {"_id": "a b"}
    raw = rows(landing, documents="bson")
    assert raw[0].document == bson.encode(events[0]["fullDocument"])
    assert bson.decode(raw[-1].document) == {"_id": "a b"}


@pytest.fixture(params=["Pacific/Kiritimati", "America/St_Johns"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Where the machine is."""
    with monkeypatch.context() as machine:
        machine.setenv("TZ", request.param)
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("zone")
def test_a_query_reads_the_chosen_scope_collections_and_times(landing: Landing) -> None:
    s = Stream()
    for each in range(3):
        landing.land([s.insert(each), s.insert(each, "customers")])
    landing.land([s.insert(9)], scope="other")

    def keys(**options: Any) -> list[str]:
        return [row.key[15:-2] for row in rows(landing, **options)]

    assert keys() == ["0", "0", "1", "1", "2", "2", "9"]
    assert keys(scope="other") == ["9"]
    assert keys(collections="shop.customers, shop.none") == ["0", "1", "2"]
    assert keys(starting="latest") == []
    # The segments end in the seconds 20, 21 and 22.
    assert keys(starting="2023-11-14T22:13:22Z", scope="orders") == ["2"]
    assert keys(starting="2023-11-14T22:13:21", scope="orders") == ["1", "1", "2", "2"]
    assert keys(starting="2023-11-14") == keys()


def test_a_stream_reads_each_event_once_within_its_limits(landing: Landing) -> None:
    s, stream = Stream(), Query(landing)
    for each in range(3):
        landing.land([s.insert(each), s.insert(each + 10)])
    assert stream.run(max_segments="2") == [
        [("orders", 0, 0), ("orders", 0, 1), ("orders", 1, 2), ("orders", 1, 3)],
        [("orders", 2, 4), ("orders", 2, 5)],
    ]
    assert stream.run() == []
    landing.land([s.insert(4)])
    landing.land([], gap={"policy": "skip"})
    landing.land([s.insert(5)])
    landing.land([s.insert(1)], scope="added")
    assert stream.run(max_events="2") == [
        [("added", 0, 0), ("orders", 3, 6), ("orders", 4, None)],
        [("orders", 5, 7)],
    ]


def test_a_stream_that_starts_latest_reads_later_events_and_scopes(
    landing: Landing,
) -> None:
    s, stream = Stream(), Query(landing)
    landing.land([s.insert(1)])
    assert stream.run(starting="latest") == []
    landing.land([s.insert(2)])
    landing.land([s.insert(1)], scope="added")
    assert stream.run(starting="latest") == [[("added", 0, 0), ("orders", 1, 1)]]


@pytest.mark.parametrize("view", ["events", "changes"])
def test_a_stream_reads_up_to_a_segment_of_a_newer_format(
    view: str, landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names that segment. Before it, documents change their shape and their form."""
    s, stream = Stream(), Query(landing)
    shapes: list[Any] = [1, {"n": 1}, ["1"]]
    for shape, form in zip(shapes, [*Documents, Documents.BSON], strict=True):
        landing.land([s.insert(1, n=shape), s.update(1, m=shape)], documents=form)
    with monkeypatch.context() as newer:
        newer.setattr("tailrace.lake.segment.FORMAT", 2)
        path = landing.land([s.insert(9)])
    batches: list[list[dict[str, Any]]] = []
    with pytest.raises(SegmentUnreadable, match="format 2 is not 1: a newer version") as refused:  # noqa: PT012
        while True:
            batches += stream.batches(1, view=view, max_segments="1")
    assert str(refused.value).startswith(f"{path}: ")
    assert "\n" not in str(refused.value)
    documents = [row["document"] for batch in batches for row in batch]
    updated = [{"_id": 1, "n": shape, "m": shape} for shape in shapes]
    assert [None if text is None else json.loads(text) for text in documents] == [
        document
        for shape, after in zip(shapes, updated, strict=True)
        for document in ({"_id": 1, "n": shape}, after if view == "changes" else None)
    ]


def _damage(path: Path) -> None:
    """Flips a byte of the documents."""
    group = pq.read_metadata(path).row_group(0)
    columns = [group.column(at) for at in range(group.num_columns)]
    (column,) = (each for each in columns if each.path_in_schema == "full_document")
    raw = bytearray(path.read_bytes())
    raw[column.data_page_offset + column.total_compressed_size - 2] ^= 0xFF
    path.write_bytes(raw)


def test_a_wrong_segment_stops_a_query_with_its_name(
    landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    s, stream = Stream(), Query(landing)
    paths = [landing.land([s.insert(each)]) for each in range(3)]
    stream.run()
    paths += [landing.land([s.insert(each)]) for each in range(3)]
    with monkeypatch.context() as newer:
        newer.setattr("tailrace.lake.segment.FORMAT", 2)
        paths.append(landing.land([s.insert(9)]))

    def refused(words: str) -> None:
        with pytest.raises((PipelineRefused, SegmentUnreadable), match=words):
            stream.run()

    refused(r"seg-000000000006.parquet: its footer is not that of a segment: .*format")
    paths[6].unlink()
    kept = paths[4].read_bytes()
    paths[4].unlink()
    refused(r"seg-000000000004.parquet: is missing, and later segments are there")
    paths[4].write_bytes(kept)
    _damage(paths[4])
    refused(r"seg-000000000004.parquet: is damaged")
    paths[4].write_bytes(kept)
    for path in paths[:4]:
        path.unlink()
    refused(r"seg-000000000003.parquet: was removed before this query read it: the retention")


def test_a_scope_that_was_removed_stops_a_stream(landing: Landing) -> None:
    """It is not a scope without news, even if others have some."""
    s, stream = Stream(), Query(landing)
    path = landing.land([s.insert(1)], scope="removed")
    landing.land([s.insert(2)])
    stream.run()
    shutil.rmtree(path.parent)
    landing.land([s.insert(3)])
    with pytest.raises(PipelineRefused, match=r"removed/seg-000000000000.parquet: is missing"):
        stream.run()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"scop": "orders"}, "unknown option 'scop' of the format tailrace: it knows lake, scope"),
        ({"view": "rows"}, "view: 'rows' is not one of events, changes"),
        ({"documents": "xml"}, "documents: 'xml' is not one of json, canonical, bson"),
        ({"scope": "none"}, "has no scope 'none': it has orders"),
        ({"starting": "2999-01-01"}, r"starting: 2999-01-01T00:00:00\+00:00 is in the future"),
        ({"starting": "soon"}, "starting: 'soon' is not earliest, latest or a time"),
        ({"max_events": "0"}, "max_events: '0' is not a number from 1 to 9"),
        ({"collections": "orders"}, "collections: 'orders' is not database.collection"),
        ({"lake": "/nowhere"}, "/nowhere: no lake: there is no lake.json"),
        ({"lake": "gs://b/lake"}, "lake: no lake can lie in gs://"),
        ({"lake": " "}, "the option 'lake' is missing"),
        ({"lake": "s3:///lake"}, "lake: s3:///lake: names no bucket: write s3://BUCKET/PREFIX"),
        ({"lake": "a\0b"}, "a\0b: cannot be read: ArrowInvalid: Embedded NUL"),
        ({"aws_acces_key_id": "x"}, r"'aws_acces_key_id' .*\(is AWS_ACCESS_KEY_ID meant\?\)"),
        (
            {"max_events": "9" * 5000},
            "max_events: '9{40}' is not a number from 1 to 92233",
        ),
        ({"max_segments": str(2**63)}, "max_segments: '9223372036854775808' is not a number from"),
    ],
)
def test_bad_input_is_one_line(options: dict[str, str], words: str, landing: Landing) -> None:
    landing.land([Stream().insert(1)])
    with pytest.raises(PipelineRefused, match=words) as refused:
        schema_of({"lake": str(landing.path), **options})
    assert "\n" not in str(refused.value)


def test_options_of_aws_that_only_other_programs_know_are_harmless(landing: Landing) -> None:
    landing.land([Stream().insert(1)])
    schema_of({"lake": str(landing.path), "aws_allow_http": "true", "aws_endpoint": "http://x"})


_WITHOUT = """
import sys
sys.modules["tailrace"] = None
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.datasource import InputPartition
reader = CloudPickleSerializer().loads(sys.stdin.buffer.read())
try:
    reader.read(InputPartition(None))
except RuntimeError as error:
    print(error)
"""


def test_a_python_process_without_the_module_says_how_to_install_it() -> None:
    options = {"lake": "data/lake"}
    reader = data_source()(options).streamReader(StructType())
    serializer: Any = CloudPickleSerializer  # has no types
    pickled = serializer().dumps(reader)
    process = [sys.executable, "-c", _WITHOUT]
    said = subprocess.run(process, input=pickled, capture_output=True, check=True).stdout.decode()
    assert said.startswith("a Python process of Spark cannot import Tailrace (")
    assert "pip install" in said
    assert said.count("\n") == 1
