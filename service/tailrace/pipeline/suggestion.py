"""Proposes typed columns from the documents that ``current`` holds. It needs no Spark.

A value fits a type exactly if it would be in the column
(:mod:`tailrace.pipeline.typed_columns`), so the counts are those of ``_rescued``.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
from pyarrow import parquet

from tailrace.config.pipeline import ColumnType, columns_of
from tailrace.pipeline.column_values import FIRST_YEAR, LAST_YEAR
from tailrace.pipeline.tables import TableVersion

_SHARE = 0.9
"""A column is proposed if this share of the values at the path fit it."""

_PRESENT = 0.01
"""A path is shown if this share of the documents have a value there."""

_PATHS = 5_000
"""How many paths of a collection are counted: documents may have data as names of fields."""

_BATCH_ROWS = 1_000
_PLAIN_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)*\Z")
_YAML_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
_DECIMAL_DIGITS = 28


@dataclass(slots=True)
class PathCounts:
    """What documents have at one path: values by type of BSON, and by the column that they fit."""

    kinds: Counter[str] = field(default_factory=Counter)
    fits: dict[ColumnType, Counter[str]] = field(default_factory=dict)

    def add(self, kind: str, fits: Sequence[ColumnType]) -> None:
        self.kinds[kind] += 1
        for each in fits:
            self.fits.setdefault(each, Counter())[kind] += 1

    def best(self) -> ColumnType | None:
        """The type that the most values fit; the first one of several."""
        found = max(self.fits, key=lambda each: self.fits[each].total(), default=None)
        few = found is None or self.fits[found].total() < _SHARE * self.kinds.total()
        return None if few else found


@dataclass(slots=True)
class Suggestion:
    """What was found in the documents of one collection."""

    rows: int = 0
    of_rows: int = 0
    paths: dict[str, PathCounts] = field(default_factory=dict)

    def lines(self) -> Iterator[str]:
        """The lines of YAML below the collection's name, each with counts as a comment."""
        taken: set[str] = set()
        for path, counts in sorted(self.paths.items()):
            total = counts.kinds.total()
            if total < _PRESENT * self.rows or set(counts.kinds) == {"document"}:
                continue
            kind = counts.best()
            if kind is None:
                yield f"# {path}: no type fits ({_listed(counts.kinds)})"
                continue
            fit = counts.fits[kind]
            rest = counts.kinds - fit
            misfits = f"; {rest.total():,} would be rescued ({_listed(rest)})" if rest else ""
            entry = _entry(path, kind, taken)
            yield f"{entry}  # {fit.total():,} fit{misfits}"


def suggest(table: TableVersion, most_rows: int) -> Suggestion:
    """Reads up to ``most_rows`` documents of ``current``, the same number from each file."""
    suggestion = Suggestion(of_rows=sum(file.rows for file in table.files))
    left, remaining = most_rows, len(table.files)
    for file in table.files:
        share = -(-left // remaining)
        read = 0
        for text in _documents(table, file.path, min(share, file.rows)):
            read += 1
            if text is not None:
                _count(orjson.loads(text), "", suggestion.paths)
        suggestion.rows += read
        left, remaining = left - read, remaining - 1
    return suggestion


def _documents(table: TableVersion, path: str, most: int) -> Iterator[str | None]:
    location = table.table.location / path
    if most <= 0:
        return
    with location.files.open_input_file(location.path) as source:
        for batch in parquet.ParquetFile(source).iter_batches(_BATCH_ROWS, columns=["document"]):
            texts = batch.column(0).to_pylist()
            yield from texts[:most]
            most -= len(texts)
            if most <= 0:
                return


def _count(document: Mapping[str, Any], above: str, paths: dict[str, PathCounts]) -> None:
    for name, value in document.items():
        if value is None or not name or "." in name:
            continue
        path = f"{above}{name}"
        kind, fits = fitting(value)
        if path not in paths:
            if len(paths) >= _PATHS:
                continue
            paths[path] = PathCounts()
        paths[path].add(kind, fits)
        if kind == "document":
            _count(value, f"{path}.", paths)


def fitting(value: Any) -> tuple[str, tuple[ColumnType, ...]]:
    """The type of a canonical value, and the columns that hold it; the best one first."""
    match value:
        case str():
            return "string", ("string",)
        case bool():
            return "bool", ("boolean",)
        case list():
            return "array", ("json",)
        case {"$numberInt": str(), **more} if not more:
            return "int", ("long", "double")
        case {"$numberLong": str(text), **more} if not more:
            number = int(text)
            exact = float(number) < 2**63 and int(float(number)) == number
            return "long", ("long", "double") if exact else ("long",)
        case {"$numberDouble": str(), **more} if not more:
            return "double", ("double",)
        case {"$numberDecimal": str(text), **more} if not more:
            return "decimal", ("decimal",) if _decimal_fits(text) else ()
        case {"$date": {"$numberLong": str(text), **inner}, **more} if not (more or inner):
            return "date", ("timestamp",) if FIRST_YEAR <= int(text) <= LAST_YEAR else ()
        case dict() if any(name.startswith("$") for name in value):
            name = min(value).lstrip("$")  # $binary, $timestamp, $minKey, …
            return ("objectId", ("objectId",)) if name == "oid" else (name, ())
    return "document", ("json",)


def _decimal_fits(text: str) -> bool:
    """Whether DECIMAL(38, 10) holds a Decimal128 exactly."""
    if text in ("NaN", "Infinity", "-Infinity"):
        return False
    digits, _, exponent = text.partition("E")
    whole, _, fraction = digits.lstrip("+-").partition(".")
    power = int(exponent or 0)
    if power <= 0 and len(fraction.rstrip("0")) - power > 10:
        return False
    return len(whole.lstrip("0")) + power <= _DECIMAL_DIGITS or not (whole + fraction).strip("0")


def _entry(path: str, kind: ColumnType, taken: set[str]) -> str:
    """The line of YAML. A column whose path cannot be its name gets another name."""
    for name in (path, *_names(path)):
        if name.lower() in taken:
            continue
        short = name == path
        try:
            columns_of({name: kind if short else {"path": path, "type": kind}})
        except ValueError:
            continue
        taken.add(name.lower())
        key = yaml_key(name)
        return f"{key}: {kind}" if short else f"{key}: {{path: {json.dumps(path)}, type: {kind}}}"
    return f"# {json.dumps(path)}: {kind}"


def _names(path: str) -> Iterator[str]:
    plain = re.sub(r"\W", "_", path).strip("_") or "column"
    yield plain
    for number in range(2, 100):
        yield f"{plain}_{number}"


def yaml_key(key: str) -> str:
    """A key of a mapping in YAML, in quotes if it needs them."""
    plain = _PLAIN_KEY.match(key) and key.lower() not in _YAML_WORDS
    return key if plain else json.dumps(key, ensure_ascii=False)


def _listed(kinds: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items()))
