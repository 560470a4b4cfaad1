"""Rebuilds tables with the declared columns, from the documents that the tables hold.

A table's new files are written in groups, so that there is progress, and committed at once: until
then readers see the table as it was, and a killed run has changed nothing.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from pyspark.sql import SparkSession

from tailrace.errors import PipelineRefused
from tailrace.pipeline import files, spark_files
from tailrace.pipeline.changes import changes_table
from tailrace.pipeline.declaration import Declaration, by_table, declare, named
from tailrace.pipeline.log_snapshot import (
    CURRENT_STATE,
    HISTORY_STATE,
    TableKind,
    declared_columns,
    found_columns,
    is_auto,
)
from tailrace.pipeline.schemas import table_of
from tailrace.pipeline.tables import DataFile, TableStore, TableVersion
from tailrace.pipeline.typed_columns import (
    COLUMNS,
    RESCUED,
    Columns,
    schema_with,
    stored_columns,
    with_columns,
)

_GROUP_BYTES = 256 * 2**20
"""How many bytes of a table are read between two reports of the progress."""

Report = Callable[[str, int, int], None]
"""Is told a table's name, and how many of its rows are written and how many it has."""


def republish(
    spark: SparkSession,
    tables: TableStore,
    declaration: Declaration | None,
    collections: Collection[str],
    report: Report,
) -> int:
    """Rebuilds the tables that have or lack declared columns; returns how many.

    ``declaration``: ``None`` for the one that the tables have. ``collections``: only these
    (``database.collection``), if any. Raises :class:`PipelineRefused`, :class:`TablesFenced`.
    """
    lake = tables.lake("changes")
    if lake is None:
        raise PipelineRefused(f"{tables.location}: there are no tables of this pipeline")
    log = changes_table(tables, lake).load()
    given = log.property(COLUMNS) if declaration is None else by_table(declaration)
    declared = (
        declared_columns(log)
        if declaration is None
        else {name: named(columns) for name, columns in by_table(declaration).items()}
    )
    done = 0
    for kind, version in _chosen(tables, lake, declared, collections):
        name = version.table.name.partition("/")[2]
        columns: Columns = declared.get(name, {})
        columns = {**columns, **found_columns(log, name, columns, auto=is_auto(given, name))}
        _republish(spark, kind, version, columns, report)
        done += 1
    if declaration is not None:
        declare(log, declaration, rebuild=False)
    return done


def _chosen(
    tables: TableStore, lake: str, declared: Mapping[str, Columns], collections: Collection[str]
) -> Iterator[tuple[TableKind, TableVersion]]:
    only = {table_of(each): each for each in collections}
    names: set[str] = set()
    for kind in (CURRENT_STATE, HISTORY_STATE):
        for name in tables.names(kind.name):
            if only and name not in only:
                continue
            version = kind.table(tables, lake, name).load()
            if version.exists:
                names.add(name)
                if name in declared or stored_columns(version.table.schema):
                    yield kind, version
    for name in only.keys() - names:
        raise PipelineRefused(f"{tables.location}: there is no table of {only[name]}")


def _republish(
    spark: SparkSession, kind: TableKind, version: TableVersion, columns: Columns, report: Report
) -> None:
    table, rows = version.table, sum(each.rows for each in version.files)
    schema = schema_with(kind.schema, columns)
    own = [f"`{name}`" for name in kind.schema.names if name != RESCUED]
    adds: list[DataFile] = []
    for group in _groups(version.files):
        read = spark_files.read_table(spark, table, group)
        made = with_columns(read, "document", columns, own).select(*spark_files.quoted(schema))
        adds += spark_files.write(made.coalesce(files.count_for(group)), table)
        report(table.name, sum(each.rows for each in adds), rows)
    version.commit(adds, schema=schema)


def _groups(chosen: Sequence[DataFile]) -> Iterator[list[DataFile]]:
    group: list[DataFile] = []
    for each in chosen:
        group.append(each)
        if sum(one.size for one in group) >= _GROUP_BYTES:
            yield group
            group = []
    if group:
        yield group
