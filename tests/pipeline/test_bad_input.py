"""Unusable input: one clear message, and no partial commit."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any
from uuid import uuid4

import bson
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyarrow import parquet
from pyspark.sql import SparkSession

from tailrace.cli import main
from tailrace.errors import PipelineRefused, SegmentUnreadable
from tailrace.lake.segment import COLUMNS, FOOTER_KEY
from tailrace.pipeline import files, log_files
from tailrace.pipeline.location import Location
from tailrace.pipeline.segments import LandedLake, pending, read_footers
from tests.damage import damages, landed
from tests.pipeline.events import Stream
from tests.pipeline.landing import Landing
from tests.pipeline.pipeline import Pipeline

STORAGES = pytest.mark.parametrize("where", ["directory", "bucket"])


@pytest.fixture(params=[log_files.ROWS, 0], ids=["here", "by a worker"])
def decoded(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments are decoded in this process, and then in a worker of Spark."""
    monkeypatch.setattr(log_files, "ROWS", request.param)


@pytest.fixture
def landing(where: str, request: pytest.FixtureRequest, tmp_path: Path) -> Landing:
    """A lake with three segments, in a directory or in a bucket."""
    if where == "bucket":
        request.getfixturevalue("s3")
    landing = Landing(tmp_path / "lake" if where == "directory" else f"s3://lake/{uuid4().hex}")
    stream = Stream()
    for key in "abc":
        landing.land([stream.insert(key), stream.delete(key)])
    return landing


def opened(landing: Landing) -> LandedLake:
    return LandedLake.open(Location.of(str(landing.path)))


def segment(landing: Landing, number: int) -> Location:
    return opened(landing).file("orders", number)


def content(file: Location) -> bytes:
    with file.files.open_input_file(file.path) as source:
        data: bytes = source.read()
        return data


def overwrite(file: Location, data: bytes) -> None:
    with file.files.open_output_stream(file.path) as stream:
        stream.write(data)


def torn(landing: Landing) -> None:
    overwrite(segment(landing, 1), content(segment(landing, 1))[:-40])


def other_type(landing: Landing) -> None:
    """A segment by another writer, whose footer has no checksum."""
    file = segment(landing, 1)
    table = parquet.read_table(file.path, filesystem=file.files, partitioning=None)
    at = table.schema.get_field_index("ordinal")
    table = table.set_column(at, "ordinal", table["ordinal"].cast(pa.string()))
    record = json.loads(table.schema.metadata[FOOTER_KEY])
    del record["checksum"]
    metadata = {FOOTER_KEY: json.dumps(record).encode()}
    table = table.replace_schema_metadata(metadata)
    parquet.write_table(table, file.path, filesystem=file.files)


def newer(landing: Landing) -> None:
    """A segment of a daemon that was updated first."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tailrace.lake.segment.FORMAT", 2)
        landing.land([Stream().insert("d")])


DAMAGES: list[tuple[Callable[[Landing], object], str]] = [
    (torn, r"seg-000000000001\.parquet: is damaged, or not"),
    (
        lambda landing: landing.land([Stream().insert("d")], rows=2),
        "holds 1 rows, and its footer says 2",
    ),
    (
        lambda landing: landing.land([Stream().insert("d")], ordinals=[8], first_ordinal=8),
        "has 1 events from 8 to 8, where 6 comes next",
    ),
    (other_type, "has a column 'ordinal' of type string"),
    (newer, r"seg-000000000003\.parquet: its footer .*: format 2 is not 1: a newer version"),
]


@STORAGES
@pytest.mark.parametrize(("damage", "message"), DAMAGES, ids=[each[1] for each in DAMAGES])
def test_a_segment_that_contradicts_its_footer_is_refused(
    damage: Callable[[Landing], object], message: str, landing: Landing
) -> None:
    damage(landing)
    lake = opened(landing)
    (found,) = pending(lake, {})
    with pytest.raises(SegmentUnreadable, match=message):
        list(read_footers(lake, found.scope, found.numbers))


@STORAGES
def test_missing_segments_are_waited_for_or_refused(landing: Landing) -> None:
    """A missing number is waited for; a lake that ends before its tables is refused."""
    with pytest.raises(PipelineRefused, match="end at 2, but the tables hold all through 7"):
        pending(opened(landing), {"orders": 7})
    gone = segment(landing, 1)
    gone.files.delete_file(gone.path)
    for through, numbers in ({}, (0,)), ({"orders": 0}, ()):
        (found,) = pending(opened(landing), through)
        assert (found.numbers, found.missing) == (numbers, 1)


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "there is no lake.json"), ("{", "is not a lake's"), ('{"format": 1}', "is not a lake")],
)
def test_a_directory_without_a_lake_is_refused(
    content: str | None, message: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "lake.json").write_text(content)
    with pytest.raises(PipelineRefused, match=message):
        LandedLake.open(Location.of(str(tmp_path)))


def test_tables_of_another_lake_or_of_something_else_are_refused(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    pipeline.land([Stream().insert("k")])
    pipeline.run(history=False)
    other = Landing(tmp_path / "other")
    other.land([Stream().insert("k")])
    pipeline.lake = other.path
    with pytest.raises(PipelineRefused, match=r"changes: belongs to the lake .*, not to"):
        pipeline.run()
    pipeline.tables = tmp_path / "foreign"
    write_deltalake(pipeline.tables / "changes", pa.table({"a": [1]}))
    with pytest.raises(PipelineRefused, match="changes: is not a table of this pipeline"):
        pipeline.run()


@pytest.mark.usefixtures("quiet", "decoded")
def test_a_malformed_document_is_named_and_nothing_is_committed(pipeline: Pipeline) -> None:
    event = Stream().insert("k")
    event["fullDocument"] = bson.encode({"a": 1})[:-1] + b"\x07"
    pipeline.land([Stream().insert("k"), event])
    with pytest.raises(SegmentUnreadable, match="scope orders, segment 0, ordinal 1: malformed"):
        pipeline.run()
    assert not Location.of(str(pipeline.tables)).below()


@pytest.mark.usefixtures("quiet", "decoded")
def test_a_full_disk_of_the_tables_commits_nothing(pipeline: Pipeline) -> None:
    """Nothing is committed; once there is space, the same segments are."""
    s = Stream()
    pipeline.land([s.insert(f"k{at}", n=os.urandom(9000)) for at in range(99)])
    pipeline.tables.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(pipeline.tables)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("needs to be allowed to mount a tmpfs")
    try:
        with pytest.raises(PipelineRefused, match=r"changes: .*No space left on device.*Make room"):
            pipeline.run(history=False)
        assert not [*pipeline.tables.rglob("*.parquet"), *pipeline.tables.rglob("*.json")]
        resize = ["mount", "-o", "remount,size=20m", str(pipeline.tables)]
        subprocess.run(resize, check=True)
        pipeline.run(history=False)
        assert len(pipeline.current()) == 99
    finally:
        subprocess.run(["umount", str(pipeline.tables)], check=True)


@pytest.mark.usefixtures("decoded")
def test_repeated_ordinals_are_dropped(pipeline: Pipeline) -> None:
    s = Stream()
    events = [s.insert("k", n=1), s.insert("l", n=1), s.replace("k", n=2)]
    pipeline.land(events[:2])
    pipeline.land([events[1], events[2], events[2]], ordinals=[1, 2, 2], first_ordinal=1)
    pipeline.run(history=False)
    assert sorted(row["ordinal"] for row in pipeline.table("changes")) == [0, 1, 2]
    assert pipeline.current() == {"k": {"n": 2}, "l": {"n": 1}}
    landed = [row for row in pipeline.table("quality") if row["stage"] == "landed"]
    assert [(row["events"], row["duplicates_dropped"]) for row in landed] == [(5, 2)]


def test_a_pipeline_without_lake_and_tables_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "--once"]) == 2
    assert "--lake: is needed, here or as pipeline.lake of the file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (None, "needs Java 17 or newer, and JAVA_HOME="),
        ("echo 'openjdk version \"11.0.2\" 2019-01-15' >&2", "is Java 11; the pipeline needs 17"),
    ],
)
def test_a_pipeline_without_java_17_is_refused(
    script: str | None, message: str, tmp_path: Path
) -> None:
    if script is not None:
        java = tmp_path / "bin" / "java"
        java.parent.mkdir()
        java.write_text(f"#!/bin/sh\n{script}\n")
        java.chmod(0o755)
    lake, tables = Landing(tmp_path / "lake").path, tmp_path / "tables"
    done = command("--lake", str(lake), "--tables", str(tables), JAVA_HOME=str(tmp_path))
    assert done.returncode == 1
    assert message in done.stderr
    assert (done.stdout, done.stderr.count("\n")) == ("", 1)
    assert not tables.exists()


def no_metadata(name: str) -> str:
    """As of a Spark that PYTHONPATH leads to."""
    raise metadata.PackageNotFoundError(name)


@pytest.mark.parametrize(
    ("version", "age", "is_installed"),
    [
        ("4.1.2", "too old", True),
        ("4.4.0.dev0", "newer than what was tested", True),
        ("3.5", "too old", False),
    ],
)
def test_a_spark_of_another_version_is_refused(
    version: str,
    age: str,
    is_installed: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if is_installed:
        monkeypatch.setattr(metadata, "version", lambda _: version)
    else:
        monkeypatch.setattr(metadata, "version", no_metadata)
        monkeypatch.setattr("pyspark.__version__", version)
    lake, tables = Landing(tmp_path / "lake").path, tmp_path / "tables"
    assert main(["pipeline", "--lake", str(lake), "--tables", str(tables)]) == 1
    assert capsys.readouterr().err.splitlines() == [
        f"tailrace: Spark {version} is {age}: the pipeline needs pyspark >=4.2,<4.4"
    ]
    assert not tables.exists()


@pytest.mark.parametrize("tables", ["/proc/nowhere/tables", "{file}", "{file}/tables"])
def test_tables_where_nothing_can_be_written_are_refused_before_spark_starts(
    tables: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake, file = Landing(tmp_path / "lake"), tmp_path / "file"
    lake.land([Stream().insert("k")])
    file.touch()
    tables = tables.format(file=file)
    assert main(["pipeline", "--once", "--lake", str(lake.path), "--tables", tables]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"tailrace: {tables}: cannot be written: ")


def test_a_pipeline_without_its_extra_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(metadata, "version", no_metadata)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert main(["pipeline", "--lake", "lake", "--tables", "tables"]) == 2
    assert (
        "needs pyspark: pip install '.[pipeline]' in a checkout, or the image's target pipeline"
        in capsys.readouterr().err
    )


def command(*options: str, **environment: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tailrace", "pipeline", *options],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )


@pytest.fixture
def quiet(spark: SparkSession) -> Any:
    """Silences the log: each damage would print pages."""
    spark.sparkContext.setLogLevel("OFF")
    yield
    spark.sparkContext.setLogLevel("ERROR")


def values(lake: Path) -> list[Any]:
    """All values that the pipeline reads: footers and rows."""
    opened = LandedLake.open(Location.of(str(lake)))
    found = list(read_footers(opened, "orders", (0, 1)))
    with files.parquet_file(found[1].file, SegmentUnreadable) as reader:
        return [[each.footer for each in found], reader.read([*COLUMNS]).to_pylist()]


def test_a_damaged_segment_is_named_or_read_right(tmp_path: Path) -> None:
    path = landed(tmp_path / "lake")
    data, right, found = path.read_bytes(), values(tmp_path / "lake"), 0
    for place, damaged in damages(data, 200, seed=4):
        path.write_bytes(damaged)
        try:
            assert values(tmp_path / "lake") == right, f"byte {place}"
        except SegmentUnreadable as error:
            assert str(path) in str(error)  # noqa: PT017
            assert "\n" not in str(error)  # noqa: PT017
            found += 1
    assert found > 100


@pytest.mark.usefixtures("quiet", "decoded")
def test_a_run_on_a_segment_with_a_damaged_page_commits_nothing(either: Pipeline) -> None:
    """Its footer is as it was written."""
    pipeline = either
    pipeline.land([Stream().insert("k", text="text " * 99)])
    file = segment(pipeline.landing, 0)
    data = bytearray(content(file))
    column = parquet.read_metadata(pa.BufferReader(data)).row_group(0).column(0)
    data[column.data_page_offset + column.total_compressed_size // 2] ^= 0x10
    overwrite(file, data)
    with pytest.raises(SegmentUnreadable, match=r"/orders/seg-0+\.parquet: ") as error:
        pipeline.run()
    assert "\n" not in str(error.value)
    assert not Location.of(str(pipeline.tables)).below()
