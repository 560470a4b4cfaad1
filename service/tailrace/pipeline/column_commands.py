"""What ``tailrace columns`` does, with the settings and the tables that its options name."""

import argparse
from collections.abc import Callable, Iterator

from tailrace.errors import PipelineRefused
from tailrace.pipeline.log_snapshot import CURRENT_STATE
from tailrace.pipeline.options import tables_of
from tailrace.pipeline.republication import republish
from tailrace.pipeline.schemas import collection_of, table_of
from tailrace.pipeline.session import open_session
from tailrace.pipeline.suggestion import suggest, yaml_key


def suggested(options: argparse.Namespace) -> Iterator[str]:
    """The lines of a proposed declaration."""
    _, tables = tables_of(options)
    lake = tables.lake("changes")
    names = set(tables.names(CURRENT_STATE.name))
    if lake is None or not names:
        raise PipelineRefused(f"{tables.location}: there are no tables to propose columns for")
    wanted = {table_of(each): each for each in options.collection}
    for name in sorted(wanted.keys() - names):
        raise PipelineRefused(f"{tables.location}: there is no table of {wanted[name]}")
    yield "pipeline:"
    yield "  columns:"
    for name in sorted(wanted or names):
        table = CURRENT_STATE.table(tables, lake, name).load()
        suggestion = suggest(table, options.rows)
        count = f"{suggestion.rows:,}" + (
            f" of {suggestion.of_rows:,}" * (suggestion.rows < suggestion.of_rows)
        )
        yield f"    {yaml_key(collection_of(name))}:  # {count} documents"
        yield from (f"      {line}" for line in suggestion.lines())


def republish_columns(
    options: argparse.Namespace, report: Callable[[str, float | None], None]
) -> int:
    """Rebuilds the tables. Returns the exit code.

    ``report`` gets lines, each with how much of a table is done.
    """
    settings, tables = tables_of(options)
    if tables.lake("changes") is None:  # before Spark starts
        raise PipelineRefused(f"{tables.location}: there are no tables of this pipeline")
    columns = settings.columns if options.config else None
    spark = open_session(settings, [tables.location])
    try:
        done = republish(
            spark,
            tables,
            columns,
            options.collection,
            lambda name, rows, of: report(f"{name}: {rows:,} of {of:,} rows", rows / max(of, 1)),
        )
    finally:
        spark.stop()
    message = (
        f"rebuilt {done} table{'' if done == 1 else 's'}"
        if done
        else "no table has or needs typed columns"
    )
    report(message, None)
    return 0
