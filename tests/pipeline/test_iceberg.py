"""Iceberg tables as the job makes them, and as other readers see them."""

import json
import re
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars
import pytest
from bson import Decimal128

from tailrace.cli import main
from tailrace.config.catalog import TablesAt
from tailrace.config.pipeline import PipelineSettings
from tailrace.errors import PipelineRefused
from tailrace.pipeline import views
from tailrace.pipeline.current_tables import CurrentStateTables
from tailrace.pipeline.location import Location
from tailrace.pipeline.maintenance import maintain
from tailrace.pipeline.segments import LandedLake
from tailrace.pipeline.tables import Table, open_store
from tailrace.pipeline.tables.iceberg import IcebergStore
from tests.checkout import ROOT
from tests.contract.tables import SCHEMA, keys, written
from tests.pipeline.events import Stream
from tests.pipeline.pipeline import Pipeline, run_without_news
from tests.s3_proxy import S3Proxy

COLUMNS = {
    "shop.orders": {
        "total": "decimal",
        "city": {"path": "customer.city", "type": "string"},
        "customer.name": "string",
        "n": "long",
    }
}
PAGE = (ROOT / "docs" / "tables.md").read_text()
SNIPPETS = re.findall(
    r"```python\n(.*?)```", PAGE.split("\n## Iceberg tables\n")[1].split("\n## ")[0], re.DOTALL
)


def configuration(pipeline: Pipeline, path: Path, **section: Any) -> str:
    """A file with which commands find the tables."""
    path.write_text(json.dumps({"pipeline": {**pipeline.section, **section}}))
    return str(path)


def texts(rows: list[dict[str, Any]]) -> list[str]:
    """The rows as text, for readers that name one time zone differently."""
    return sorted(
        str({k: v.timestamp() if isinstance(v, datetime) else v for k, v in row.items()})
        for row in rows
    )


def test_readers_agree_with_each_other(iceberg: Pipeline, tmp_path: Path) -> None:
    """A run with typed columns, of which one is declared later, and what each reader has of it."""
    s = Stream()
    iceberg.land([s.insert(n, n=n, customer={"name": f"c{n}"}) for n in range(5)])
    iceberg.run(columns={"shop.orders": {"n": "long"}})
    iceberg.land(
        [
            s.update(1, n="x"),
            s.delete(2),
            s.insert(7, n=7, total=Decimal128("12.5"), customer={"name": "Ada", "city": "London"}),
        ]
    )
    iceberg.run(columns=COLUMNS)

    store = iceberg.store
    assert isinstance(store, IcebergStore)
    expected = {0: (0, "c0"), 1: (None, "c1"), 3: (3, "c3"), 4: (4, "c4"), 7: (7, "Ada")}
    for kind, rows in (("current", 5), ("history", 7)):
        stored = store.stored(f"{kind}/shop.orders")
        assert stored is not None
        by_pyiceberg = stored.scan().to_arrow().to_pylist()
        by_polars = polars.scan_iceberg(stored).collect().to_dicts()
        by_duckdb = stored.scan().to_duckdb(kind).sql(f"SELECT * FROM {kind}").to_arrow_table()
        listed = [each.file.file_path for each in stored.scan().plan_files()]
        of_files = duckdb.sql(
            f"SELECT key, n FROM read_parquet({listed}, union_by_name=true)"
        ).fetchall()
        by_view = getattr(views, kind)(iceberg.spark, store, "shop.orders").collect()
        assert len(by_pyiceberg) == len(by_view) == rows
        assert texts(by_pyiceberg) == texts(by_polars) == texts(by_duckdb.to_pylist())
        for found in (by_pyiceberg, by_view):
            assert {(row["key"], row["n"]) for row in found} == {*of_files}
    assert {
        json.loads(row["document_key"])["_id"]["$numberInt"]: (row["n"], row["customer.name"])
        for row in iceberg.table("current/shop.orders")
    } == {str(key): value for key, value in expected.items()}

    names: dict[str, Any] = {"spark": iceberg.spark}
    catalog = f"sqlite:///{tmp_path}/catalog.db"
    for snippet in SNIPPETS:
        text = snippet.replace("sqlite:///data/catalog.db", catalog)
        text = text.replace("config.yaml", configuration(iceberg, tmp_path / "config.json"))
        exec(text.replace("tailrace_current", "tables_current"), names)
    assert names["total"] == Decimal("12.5")
    assert names["cities"].to_pylist() == [{"city": "London"}]
    assert ("London", Decimal("12.5")) in names["by_city"].fetchall()
    assert names["exact"].count() == 5


def test_commands_work_with_a_catalog(iceberg: Pipeline, tmp_path: Path, capsys: Any) -> None:
    s = Stream()
    for n in range(9):
        iceberg.land([s.insert(n, n=n)])
    iceberg.run(batch_events=1, publish_ratio=10)
    config = configuration(iceberg, tmp_path / "config.json")
    run_without_news("--config", config, slow="pyspark")  # pyiceberg imports pandas
    assert main(["tables", "status", "--config", config, "--json"]) == 0
    (table,) = json.loads(capsys.readouterr().out)["tables"]
    assert (table["table"], table["rows"], table["events_waiting"]) == ("shop.orders", 9, 0)
    assert main(["columns", "suggest", "--config", config]) == 0
    assert '"n": long  # 9 fit' in capsys.readouterr().out

    lake = LandedLake.open(Location.of(str(iceberg.lake)))
    done = maintain(lake, iceberg.store, PipelineSettings(vacuum_hours=0))
    assert done["compacted_files"] >= 9, "those of the log"
    assert done["removed_files"] > done["compacted_files"]
    assert len(iceberg.current()) == len(iceberg.table("changes")) == 9
    iceberg.land([s.delete(3)])
    iceberg.run()
    found = CurrentStateTables.of(iceberg.tables_at, iceberg.landing.identity)
    assert found is not None
    assert found.collections() == [("shop", "orders")]
    current = found.current("shop", "orders")
    assert current is not None
    assert current.segment("orders") == found.published("orders") == 9
    assert len([row for file in current.files for row in current.rows(file)]) == 8


def test_wrong_credentials_of_the_warehouse_end_a_run_before_spark_starts(
    s3: S3Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    pipeline = Pipeline(None, tmp_path, catalog={"type": "sql", "uri": "sqlite://"})
    config = configuration(pipeline, tmp_path / "config.json", warehouse="s3://lake/wrong")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    assert main(["pipeline", "--once", "--config", config]) == 1
    with s3.failing(status=400, code="ExpiredToken", methods=["PUT", "POST"]):
        assert main(["pipeline", "--once", "--config", config]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert [line.count("s3://lake/wrong: cannot be written: ") for line in lines] == [1, 1]
    assert "signature you provided" in lines[0]
    assert "ExpiredToken" in lines[1]


@pytest.mark.parametrize(
    ("section", "code", "message"),
    [
        ({"catalog": {"type": "rest", "uri": "http://127.0.0.1:9"}}, 1, "Connection refused"),
        ({"warehouse": "/proc/nowhere"}, 1, "/proc/nowhere: cannot be written"),
        ({"catalog": {"type": "odd"}}, 2, "pipeline.catalog: needs a type, which is sql, rest"),
        ({"warehouse": None}, 2, "format iceberg needs warehouse"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_run_is_refused_in_one_line_before_spark_starts(
    tmp_path: Path, capsys: Any, section: dict[str, Any], code: int, message: str
) -> None:
    pipeline = Pipeline(None, tmp_path, catalog={"type": "sql", "uri": "sqlite://"})
    config = configuration(pipeline, tmp_path / "config.json", **section)
    assert main(["pipeline", "--once", "--config", config]) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_tables_are_in_a_bucket(
    s3: S3Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variables that name the bucket for all other clients are enough."""
    settings = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"}
    store = open_store(TablesAt(f"s3://lake/{tmp_path.name}", settings))
    store.require_writable()
    table = Table(store, "changes", SCHEMA, "lake-1", ("scope", "done"), bounded=True)
    version = table.load()
    for number, key in enumerate(("one", "two", "three")):
        version = version.commit(written(table, key), segments={"a": number})
    assert version.row_with("key", "two", "number", seconds=9).row == {"number": 1}
    assert version.compact(2**20) == 3
    assert table.load().vacuum(0) > 3
    assert (keys(table.load()), table.load().segment("a")) == (["one", "three", "two"], 2)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "expired")
    refused = open_store(TablesAt(f"s3://lake/{tmp_path.name}", settings))
    with pytest.raises(PipelineRefused, match="cannot be written") as found:
        refused.require_writable()
    assert "\n" not in str(found.value)
