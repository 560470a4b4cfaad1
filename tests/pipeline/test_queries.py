"""The queries of docs/tables.md work exactly as shown."""

import ast
import re
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
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
    r"```python\n(.*?)```", PAGE.split("\n## Queries\n")[1].split("\n## Exactly once")[0], re.DOTALL
)
READERS = ("DuckDB", "polars", "pandas", "Spark")


def _milliseconds(year: int) -> DatetimeMS:
    return DatetimeMS(int(datetime(year, 6, 1, tzinfo=UTC).timestamp() * 1000))


@pytest.fixture(scope="module")
def pipeline(spark: SparkSession, session_directory: MakeDirectory) -> Pipeline:
    """Three orders, one of which changes in 2026, with the columns that the page declares."""
    declared = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)[0]
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
            s.insert(1, "customers", name="Ada", address={"city": "London"}),
            s.insert(2, "customers", name="Grace", address={"city": "New York"}),
        ]
    )
    pipeline.run(columns=columns)
    pipeline.land([Stream(seconds=1_790_000_000).update(1, total=Decimal128("3.30"))])
    pipeline.run()
    return pipeline


def _run(query: str, pipeline: Pipeline) -> tuple[dict[str, Any], Any]:
    """Runs a query of the page, in which only the path differs: its names, and its last value."""
    assert '"data/tables' in query
    *steps, last = ast.parse(query.replace("data/tables", str(pipeline.tables))).body
    names: dict[str, Any] = {"spark": pipeline.spark}
    if not isinstance(last, ast.Expr):
        steps.append(last)
    exec(compile(ast.Module(steps, []), "tables.md", "exec"), names)
    if not isinstance(last, ast.Expr):
        return names, None
    return names, eval(compile(ast.Expression(last.value), "tables.md", "eval"), names)


@pytest.mark.parametrize("at", range(len(READERS)), ids=READERS)
def test_every_reader_finds_the_same_in_the_typed_columns(at: int, pipeline: Pipeline) -> None:
    names, _ = _run(QUERIES[at], pipeline)
    assert {name: names[name] for name in ("total", "in_2026", "by_city", "on_new_year")} == {
        "total": Decimal("5.5"),
        "in_2026": 2,
        "by_city": {"London": Decimal("3.3"), "New York": Decimal("2.2")},
        "on_new_year": Decimal("3.3"),
    }


def _view(frame: Any) -> list[Any]:
    return [(row[0].toJson(), row.total) for row in frame.collect()]


def _rescued(frame: Any) -> list[Any]:
    return [(row["collection"], row["field"], row["rescued"]) for row in frame.to_dicts()]


CHECKS: list[tuple[str, Callable[[Any], Any], Any]] = [
    ("view", _view, [('"Ada"', "a lot")]),
    ("customers", lambda relation: sorted(relation.fetchall()), [("Ada", 2), ("Grace", 1)]),
    ("earlier", lambda frame: list(frame["operation"]), ["insert"] * 3),
    ("rescued", _rescued, [("orders", "total", 1)]),
    ("manifest", lambda none: none, None),
]


@pytest.mark.parametrize("at", range(len(CHECKS)), ids=[name for name, *_ in CHECKS])
def test_a_query_of_the_page(at: int, pipeline: Pipeline) -> None:
    """The value of the last line is what a reader sees."""
    assert len(QUERIES) == len(READERS) + len(CHECKS)
    _, shown, expected = CHECKS[at]
    assert shown(_run(QUERIES[len(READERS) + at], pipeline)[1]) == expected
