"""What docs/spark.md shows works as it stands, on S3."""

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

from tests.checkout import ROOT
from tests.pipeline.events import Stream
from tests.pipeline.landing import Landing
from tests.s3 import CREDENTIALS
from tests.s3_proxy import S3Proxy

PAGE = (ROOT / "docs" / "spark.md").read_text()
QUERY, DELTA, ICEBERG = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.filterwarnings("ignore:Delete operation did not match any records")
def test_the_page_reads_a_lake_and_merges_its_changes_into_delta_and_iceberg(
    spark: SparkSession, s3: S3Proxy, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = f"s3://lake/{tmp_path.name}"
    landing, s = Landing(lake), Stream()
    access = {**CREDENTIALS, "AWS_ENDPOINT_URL": s3.endpoint}
    reached = f'"{lake}").options(**{access!r})'
    shown = {'"data/lake")': reached, "data/orders": f"{tmp_path}/orders"}
    shown["data/checkpoint"] = f"{tmp_path}/checkpoint"

    def code(text: str) -> str:
        for old, new in shown.items():
            text = text.replace(old, new)
        return text

    landing.land([s.insert(1, n=1), s.insert(2, n=1), s.insert(3, "older", n=0)])
    landing.land([s.update(1, n=2), s.delete(2), s.insert(4)])
    landing.land([s.rename("older", "orders"), s.insert(5, n=5)])
    exec(code(DELTA), {"spark": spark})
    rows = DeltaTable(f"{tmp_path}/orders").to_pyarrow_table().to_pylist()
    assert {row["key"]: json.loads(row["document"]) for row in rows} == {
        '{"$numberInt":"3"}': {"_id": 3, "n": 0},
        '{"$numberInt":"5"}': {"_id": 5, "n": 5},
    }

    exec(code(QUERY), {"spark": spark})
    assert "rename" in capsys.readouterr().out
    catalog = SqlCatalog("tests", uri="sqlite://", warehouse=str(tmp_path / "iceberg"))
    catalog.create_namespace("shop")
    fields = [("key", pa.string()), ("document", pa.string())]
    fields.append(("cluster_time", pa.timestamp("us", "UTC")))
    table = catalog.create_table("shop.orders", pa.schema(fields))
    iceberg: dict[str, Any] = {"table": table}
    exec(ICEBERG, iceberg)
    reader = spark.read.format("tailrace").options(lake=lake, view="changes", **access)
    for number in range(2):
        iceberg["merge"](reader.option("collections", "shop.orders").load(), number)
    found = table.scan().to_arrow().select(["key", "document"]).to_pylist()
    assert {row["key"]: row["document"] for row in found} == {
        row["key"]: row["document"] for row in rows
    }
    assert len(found) == len(rows) == 2
