"""Makes columns of the top-level fields of documents as they appear (``pipeline.columns: auto``).

The log records the columns of each table before the first publication that fills them, so a run
that was killed goes on with the same ones. A column never changes its type: what does not fit later
is in ``_rescued``. A field that cannot be a column of its name is there, too.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import orjson
import pyarrow as pa
import structlog

from tailrace.config.pipeline import ColumnType, TypedColumn, column_problem, is_field
from tailrace.pipeline import changes, files, spark_files
from tailrace.pipeline.lineage import connected
from tailrace.pipeline.log_snapshot import CURRENT_STATE, HISTORY_STATE, LogSnapshot, TableKind
from tailrace.pipeline.suggestion import fitting
from tailrace.pipeline.tables import DataFile
from tailrace.pipeline.typed_columns import AUTO_COLUMNS, Columns, RescuedField, stored_columns

_log = structlog.get_logger()

_FEW = 50_000
"""Up to this many events are read by this process: a job of Spark costs about a second."""

_FIELDS = 2_000
"""How many fields of a table are looked at: documents may have data as names of fields."""

_LEFT_OUT = 100
"""How many fields that are in no column are recorded."""

_TYPES: Sequence[ColumnType] = get_args(ColumnType)
"""Of two types that equally many values fit, the first one is taken: ``long`` before ``double``."""

Fields = Mapping[str, Counter[str]]
"""For each field, how many of its values fit each type of column; ``""`` counts all of them."""


@dataclass(slots=True)
class AutoColumns:
    """Finds the columns of a job's tables. ``limit``: how many a table has at most."""

    limit: int
    _seen: dict[str, Mapping[str, int]] = field(default_factory=dict)
    """By table, the last segment of each scope whose fields this job has seen."""

    def recorded(
        self, log_snapshot: LogSnapshot, chosen: Iterable[tuple[TableKind, str]]
    ) -> LogSnapshot:
        """The log, after recording in it the columns of what these tables will be published with.

        A rebuild finds them anew, in all events.
        """
        before: Mapping[str, Any] = log_snapshot.log.property(AUTO_COLUMNS)
        records = {} if log_snapshot.rebuild else dict(before)
        for name in sorted({name for _, name in chosen if log_snapshot.is_auto(name)}):
            fields = self._fields(log_snapshot, name)
            for other in _sources(log_snapshot, name):
                for path, kind in before.get(other, {}).get("columns", {}).items():
                    fields.setdefault(path, Counter({kind: 1, "": 1}))
            record = records.get(name, {})
            if fields.keys() - {*record.get("columns", ()), *record.get("rescued", ())}:
                declared = {**_stored(log_snapshot, name), **log_snapshot.declared(name)}
                records[name] = extended(record, fields, declared, self.limit)
                _report(name, before.get(name, {}), records[name])
            self._seen[name] = log_snapshot.through()
        if records == before:
            return log_snapshot
        return replace(log_snapshot, log=log_snapshot.log.set_properties({AUTO_COLUMNS: records}))

    def _fields(self, log_snapshot: LogSnapshot, name: str) -> dict[str, Counter[str]]:
        settled = log_snapshot.settled.values()
        through = self._seen.get(name) or {
            scope: min((each.get(scope, -1) for each in settled), default=-1)
            for scope in log_snapshot.scopes
        }
        logged = log_snapshot.of(name)
        news = logged if log_snapshot.rebuild else changes.newer(logged, through)
        return fields_in(log_snapshot, news)


def _stored(log_snapshot: LogSnapshot, name: str) -> Columns:
    """The columns that the tables of a collection have; some may be declared no longer."""
    columns: dict[str, TypedColumn | RescuedField] = {}
    for kind in (CURRENT_STATE, HISTORY_STATE):
        table = kind.table(log_snapshot.tables, log_snapshot.log.table.lake, name).load()
        if table.exists and not log_snapshot.rebuild:
            columns |= stored_columns(table.table.schema)
    return columns


def _sources(log_snapshot: LogSnapshot, name: str) -> Collection[str]:
    """The tables from which renames bring documents."""
    return sorted(connected(name, (each for _, _, each in log_snapshot.statements)) - {name})


def _report(table: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    new = {name: kind for name, kind in after["columns"].items()
           if name not in before.get("columns", {})}  # fmt: skip
    if new:
        _log.info("columns.added", table=table, columns=new)
    for part, consequence in (
        ("rescued", "they cannot be columns of their names: _rescued has them"),
        ("left_out", "only document has them: they have no type, or columns_limit is reached"),
    ):
        names = sorted(set(after[part]) - set(before.get(part, ())))
        if names:
            _log.warning("columns.left_out", table=table, fields=names, consequence=consequence)


def extended(
    record: Mapping[str, Any], fields: Fields, declared: Columns, limit: int
) -> dict[str, Any]:
    """A table's record with further fields, the most frequent ones first up to ``limit``.

    ``columns``: types by field; ``rescued``: fields that cannot be columns of their names;
    ``left_out``: fields that are in ``document`` only.
    """
    columns: dict[str, str] = dict(record.get("columns", {}))
    rescued: list[str] = list(record.get("rescued", ()))
    left_out: set[str] = set(record.get("left_out", ()))
    known = {*columns, *rescued, *(each.path for each in declared.values())}
    taken = {name.lower() for name in (*columns, *declared)}
    new: dict[str, str] = {}
    for name in sorted(fields, key=lambda name: (-fields[name][""], name)):
        if name in known:
            continue
        kind = max(_TYPES, key=lambda each: fields[name][each])
        can_be_named = not (name.lower() in taken or column_problem(name))
        is_full = len(columns) + len(rescued) + len(new) >= limit
        if is_full or not is_field(name) or (can_be_named and not fields[name][kind]):
            left_out.add(name)
            continue
        left_out.discard(name)
        if can_be_named:
            new[name] = kind
            taken.add(name.lower())
        else:
            rescued.append(name)
    return {
        "columns": {**columns, **dict(sorted(new.items()))},
        "rescued": rescued,
        "left_out": sorted(left_out)[:_LEFT_OUT],
    }


def fields_in(log_snapshot: LogSnapshot, chosen: Sequence[DataFile]) -> dict[str, Counter[str]]:
    """The top-level fields of the documents and updates in files of the log."""
    table, names = log_snapshot.log.table, ["full_document", "update_description"]
    if sum(each.rows for each in chosen) <= _FEW:
        rows = (part for _, part in files.read_here(table, chosen, names))
        batches = (batch for part in rows for batch in part.to_batches())
        return _sum(row for counted in _counted(batches) for row in counted.to_pylist())
    read = spark_files.read_table(log_snapshot.spark, table, chosen).select(*names)
    with spark_files.job_errors(f"{table.location}: nothing was committed"):
        counted = read.mapInArrow(_counted, "field string, kind string, count long").toArrow()
    return _sum(counted.to_pylist())


def _sum(rows: Iterable[Mapping[str, Any]]) -> dict[str, Counter[str]]:
    fields: dict[str, Counter[str]] = {}
    for row in rows:
        fields.setdefault(row["field"], Counter())[row["kind"]] += row["count"]
    return fields


def _counted(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    fields: dict[str, Counter[str]] = {}
    for batch in batches:
        for document, update in zip(*(column.to_pylist() for column in batch), strict=True):
            for name, fits in _values(document, update):
                if name not in fields:
                    if len(fields) >= _FIELDS:
                        continue
                    fields[name] = Counter()
                fields[name].update(("", *fits))
    rows = [
        {"field": name, "kind": kind, "count": count}
        for name, counts in fields.items()
        for kind, count in counts.items()
    ]
    schema = pa.schema({"field": pa.string(), "kind": pa.string(), "count": pa.int64()})
    yield pa.RecordBatch.from_pylist(rows, schema)


def _values(document: str | None, update: str | None) -> Iterator[tuple[str, Sequence[str]]]:
    """The fields of an event with the types of column that hold their values."""
    if document is not None:
        fields = orjson.loads(document)
    elif update is not None:
        fields = orjson.loads(update).get("updatedFields") or {}
    else:
        return
    for name, value in fields.items():
        if value is not None:
            above, dot, _ = name.partition(".")
            # An update names a path; only an array or a document has something at it.
            is_path = dot and document is None
            yield (above, ("json",)) if is_path else (name, fitting(value)[1])
