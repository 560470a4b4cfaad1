"""What cannot be worked with: one clear message, and nothing committed by half."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bson
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyarrow import parquet

from tailrace.cli import main
from tailrace.errors import PipelineRefused, SegmentUnreadable
from tailrace.lake.segment import FOOTER_KEY
from tailrace.pipeline.location import Location
from tailrace.pipeline.segments import LandedLake, pending, read_footers
from tests.pipeline.events import Stream
from tests.pipeline.landing import Landing
from tests.pipeline.pipeline import Pipeline


@pytest.fixture
def landing(tmp_path: Path) -> Landing:
    """Three segments."""
    landing = Landing(tmp_path / "lake")
    stream = Stream()
    for key in "abc":
        landing.land([stream.insert(key), stream.delete(key)])
    return landing


def read(landing: Landing) -> list[Any]:
    lake = LandedLake.open(Location.of(str(landing.path)))
    (found,) = pending(lake, {})
    return list(read_footers(lake, found.scope, found.numbers))


def segment(landing: Landing, number: int) -> Path:
    return landing.path / "orders" / f"seg-{number:012d}.parquet"


def rewrite(path: Path, table: pa.Table) -> None:
    """Another writer's file, with a footer that has no checksum."""
    record = json.loads(table.schema.metadata[FOOTER_KEY])
    del record["checksum"]
    text = json.dumps(record).encode()
    parquet.write_table(table.replace_schema_metadata({FOOTER_KEY: text}), path)


def torn(landing: Landing) -> None:
    path = segment(landing, 1)
    path.write_bytes(path.read_bytes()[:-40])


def other_type(landing: Landing) -> None:
    table = parquet.read_table(segment(landing, 1))
    at = table.schema.get_field_index("ordinal")
    rewrite(
        segment(landing, 1),
        table.set_column(at, "ordinal", table["ordinal"].cast(pa.string())),
    )


DAMAGES: list[tuple[Callable[[Landing], object], str]] = [
    (torn, r"seg-000000000001\.parquet: is damaged, or not"),
    (lambda landing: landing.land([], lake="other"), "belongs to the lake other, not to"),
    (
        lambda landing: landing.land([Stream().insert("d")], rows=2),
        "holds 1 rows, and its footer says 2",
    ),
    (
        lambda landing: landing.land([Stream().insert("d")], ordinals=[8], first_ordinal=8),
        "has 1 events from 8 to 8, where 6 comes next",
    ),
    (other_type, "has a column 'ordinal' of type string"),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGES, ids=[each[1] for each in DAMAGES])
def test_a_segment_that_its_footer_does_not_vouch_for(
    damage: Callable[[Landing], object], message: str, landing: Landing
) -> None:
    damage(landing)
    with pytest.raises(SegmentUnreadable, match=message):
        read(landing)


def test_a_missing_number_is_waited_for(landing: Landing) -> None:
    segment(landing, 1).unlink()
    lake = LandedLake.open(Location.of(str(landing.path)))
    (found,) = pending(lake, {})
    assert (found.numbers, found.missing) == ((0,), 1)
    (found,) = pending(lake, {"orders": 0})
    assert (found.numbers, found.missing) == ((), 1)


def test_a_lake_that_ends_before_the_tables(landing: Landing) -> None:
    lake = LandedLake.open(Location.of(str(landing.path)))
    with pytest.raises(PipelineRefused, match="end at 2, but the tables hold all through 7"):
        pending(lake, {"orders": 7})


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "there is no lake.json"), ("{", "is not a lake's"), ('{"format": 1}', "is not a lake")],
)
def test_no_lake(content: str | None, message: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "lake.json").write_text(content)
    with pytest.raises(PipelineRefused, match=message):
        LandedLake.open(Location.of(str(tmp_path)))


def test_tables_of_another_lake(pipeline: Pipeline, tmp_path: Path) -> None:
    stream = Stream()
    pipeline.land([stream.insert("k")])
    pipeline.run(history=False)
    other = Landing(tmp_path / "other")
    other.land([stream.insert("k")])
    pipeline.lake = other.path
    with pytest.raises(PipelineRefused, match=r"changes: belongs to the lake .*, not to"):
        pipeline.run()


def test_a_table_of_something_else(pipeline: Pipeline) -> None:
    pipeline.land([Stream().insert("k")])
    pipeline.tables.mkdir()
    write_deltalake(pipeline.tables / "changes", pa.table({"a": [1]}))
    with pytest.raises(PipelineRefused, match="changes: is not a table of this pipeline"):
        pipeline.run()


def test_a_document_that_is_no_bson(pipeline: Pipeline) -> None:
    event = Stream().insert("k")
    event["fullDocument"] = bson.encode({"a": 1})[:-1] + b"\x07"
    pipeline.land([Stream().insert("k"), event])
    with pytest.raises(SegmentUnreadable, match="scope orders, segment 0, ordinal 1: malformed"):
        pipeline.run()
    assert not list(pipeline.tables.rglob("*.json"))


def test_a_full_disk(pipeline: Pipeline) -> None:
    """Nothing is committed; with room again the same segments are."""
    s = Stream()
    pipeline.land([s.insert(f"k{at}", n=os.urandom(9000)) for at in range(99)])
    pipeline.tables.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(pipeline.tables)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("needs to be allowed to mount a tmpfs")
    try:
        with pytest.raises(PipelineRefused, match=r"changes: .*No space left on device.*Make room"):
            pipeline.run(history=False)
        assert not list(pipeline.tables.rglob("*.parquet"))
        assert not list(pipeline.tables.rglob("*.json"))
        resize = ["mount", "-o", "remount,size=20m", str(pipeline.tables)]
        subprocess.run(resize, check=True)
        pipeline.run(history=False)
        assert len(pipeline.current()) == 99
    finally:
        subprocess.run(["umount", str(pipeline.tables)], check=True)


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


def test_neither_lake_nor_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "--once"]) == 2
    assert "--lake: is needed, here or as pipeline.lake of the file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (None, "needs Java 17 or newer, and JAVA_HOME="),
        ("echo 'openjdk version \"11.0.2\" 2019-01-15' >&2", "is Java 11; the pipeline needs 17"),
        ("echo 'java version \"1.8.0_292\"' >&2", "is Java 8; the pipeline needs 17"),
        ("echo nothing", "does not tell its version"),
    ],
)
def test_no_java_or_an_old_one(
    script: str | None,
    message: str,
    landing: Landing,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if script is not None:
        java = tmp_path / "bin" / "java"
        java.parent.mkdir()
        java.write_text(f"#!/bin/sh\n{script}\n")
        java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    tables = tmp_path / "tables"
    assert main(["pipeline", "--lake", str(landing.path), "--tables", str(tables)]) == 1
    printed = capsys.readouterr()
    assert message in printed.err
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert not tables.exists()


def test_without_the_extra(landing: Landing, tmp_path: Path) -> None:
    (tmp_path / "pyspark.py").write_text("raise ModuleNotFoundError(name='pyspark')")
    done = subprocess.run(
        [sys.executable, "-m", "tailrace", "pipeline", "--lake", "lake", "--tables", "tables"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 2
    assert "needs pyspark: pip install 'tailrace[pipeline]'" in done.stderr
