"""The queries of docs/tables.md work exactly as shown."""

import ast
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml
from bson import DatetimeMS, Decimal128
from pyspark.sql import SparkSession

from tests.checkout import ROOT
from tests.pipeline.events import Stream
from tests.pipeline.pipeline import Pipeline
from tests.scratch import MakeDirectory

PAGE = (ROOT / "docs" / "tables.md").read_text()
QUERIES = re.findall(
    r"```python\n(.*?)```", PAGE.split("\n## Queries\n")[1].split("\n## ")[0], re.DOTALL
)


def _milliseconds(year: int) -> DatetimeMS:
    return DatetimeMS(int(datetime(year, 6, 1, tzinfo=UTC).timestamp() * 1000))


@pytest.fixture(scope="module")
def pipeline(spark: SparkSession, session_directory: MakeDirectory) -> Pipeline:
    """Three orders, one of which changes, with the columns that the page declares."""
    (declared,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    columns = yaml.safe_load(declared)["pipeline"]["columns"]
    pipeline = Pipeline(spark, session_directory("queries"))
    s = Stream()

    def order(year: int, total: Any, name: str) -> dict[str, Any]:
        return {"at": _milliseconds(year), "total": total, "customer": {"name": name}}

    pipeline.land(
        [
            s.insert(1, **order(2024, Decimal128("1.10"), "Ada")),
            s.insert(2, **order(2026, Decimal128("2.20"), "Grace")),
            s.insert(3, **order(2026, "a lot", "Ada")),
        ]
    )
    pipeline.run(columns=columns)
    pipeline.land([s.update(1, total=Decimal128("3.30"))])
    pipeline.run()
    return pipeline


def _view(frame: Any) -> list[Any]:
    return sorted((row[0].toJson(), row.total and str(row.total)) for row in frame.collect())


def _rescued(frame: Any) -> list[Any]:
    return [(row["collection"], row["field"], row["rescued"]) for row in frame.to_dicts()]


CHECKS: list[tuple[str, Callable[[Any], Any], Any]] = [
    ("polars", lambda frame: (frame.shape, frame["cluster_time"].is_sorted()), ((3, 2), True)),
    ("operations", lambda relation: relation.fetchall(), [("insert", 3), ("update", 1)]),
    ("customers", lambda relation: sorted(relation.fetchall()), [("Ada", 2), ("Grace", 1)]),
    ("pandas", lambda series: series.to_dict(), {"insert": 2, "update": 1}),
    ("earlier", lambda frame: list(frame["operation"]), ["insert"] * 3),
    ("view", _view, [('"Ada"', None), ('"Grace"', "2.2000000000")]),
    ("rescued", _rescued, [("orders", "total", 1)]),
]


@pytest.mark.parametrize("at", range(len(CHECKS)), ids=[name for name, *_ in CHECKS])
def test_a_query_of_the_page(at: int, pipeline: Pipeline) -> None:
    """Only the path differs; the value of the last line is what a reader sees."""
    assert len(QUERIES) == len(CHECKS)
    query, (_, shown, expected) = QUERIES[at], CHECKS[at]
    assert '"data/tables' in query
    *steps, last = ast.parse(query.replace("data/tables", str(pipeline.tables))).body
    assert isinstance(last, ast.Expr)
    names: dict[str, Any] = {"spark": pipeline.spark}
    exec(compile(ast.Module(steps, []), "tables.md", "exec"), names)
    assert shown(eval(compile(ast.Expression(last.value), "tables.md", "eval"), names)) == expected
