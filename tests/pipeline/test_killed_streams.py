"""Streams from S3 go on where they were though Spark is killed; ``tests/spark`` runs this, too."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.checkout import ROOT
from tests.pipeline import early_connection
from tests.pipeline.events import Stream
from tests.pipeline.killed_streams import Streams
from tests.pipeline.landing import Landing
from tests.s3_proxy import S3Proxy


@pytest.mark.filterwarnings("ignore:Delete operation did not match any records")
def test_both_views_are_exact_though_spark_is_killed_after_a_batch(
    spark: SparkSession, s3: S3Proxy, tmp_path: Path
) -> None:
    lake = f"s3://lake/{tmp_path.name}"
    landing, s = Landing(lake), Stream()
    update = s.update(1, n=2)
    landing.land([s.insert(1, n=1), s.insert(2, n=1), s.insert(3, "older", n=0)])
    landing.land([update, s.delete(2), s.insert(4)])
    landing.land([update, s.insert(2, n=5), s.insert(6, n=6)])
    streams = Streams(lake, tmp_path)
    killed = subprocess.run(
        [sys.executable, "-m", "tests.pipeline.killed_streams", lake, str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYSPARK_PYTHON": str(early_connection.python(tmp_path))},
        start_new_session=True,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert [streams.committed(view) for view in ("events", "changes")] == [1, 1]

    landing.land([s.rename("older", "orders"), s.insert(5, n=5)])
    streams.read_events(spark)
    streams.merge_changes(spark)
    assert [streams.committed(view) for view in ("events", "changes")] == [4, 4]
    events = pq.read_table(tmp_path / "events").column("ordinal").to_pylist()
    assert sorted(events) == list(range(11))
    rows = DeltaTable(f"{tmp_path}/orders").to_pyarrow_table().to_pylist()
    assert sorted((row["key"], json.loads(row["document"])) for row in rows) == [
        ('{"$numberInt":"3"}', {"_id": 3, "n": 0}),
        ('{"$numberInt":"5"}', {"_id": 5, "n": 5}),
    ]
