"""The state of the tables, from the tables alone; with a lake, also how far they are behind it.

It starts no Spark, and may run beside a pipeline.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tailrace.errors import PipelineRefused
from tailrace.pipeline import freshness
from tailrace.pipeline.changes import changes_table
from tailrace.pipeline.completeness import COMPLETE
from tailrace.pipeline.freshness import ScopeInLake
from tailrace.pipeline.log_snapshot import CURRENT_STATE, HISTORY_STATE
from tailrace.pipeline.quality import quality_table
from tailrace.pipeline.schemas import NO_TABLE, table_name
from tailrace.pipeline.segments import LandedLake
from tailrace.pipeline.tables import DataFile, TableStore, TableVersion, published_at
from tailrace.pipeline.typed_columns import AUTO_COLUMNS

_READERS = 8
"""How many tables are opened concurrently: object stores answer slowly."""


def read(store: TableStore, lake: LandedLake | None = None) -> dict[str, Any]:
    """The record that ``tailrace tables status --json`` prints.

    Raises :class:`PipelineRefused` if there are no tables, or they belong to another lake.
    """
    identity = store.lake("changes")
    if identity is None:
        raise PipelineRefused(f"{store.location}: there are no tables of this pipeline")
    if lake is not None and lake.identity != identity:
        raise PipelineRefused(f"{store.location}: its tables are not of the lake {lake.location}")
    log, now = changes_table(store, identity).load(), time.time()
    in_lake = None if lake is None else freshness.in_lake(lake, log)
    files: dict[str, list[DataFile]] = {}
    for file in log.files:
        files.setdefault(file.partition["table"] or NO_TABLE, []).append(file)
    names = {*store.names(CURRENT_STATE.name), *files}
    found = log.property(AUTO_COLUMNS)
    rescued, set_aside = _counted(quality_table(store, identity).load())

    def of(name: str) -> dict[str, Any]:
        own = files.get(name, [])
        current = CURRENT_STATE.table(store, identity, name).load()
        history = HISTORY_STATE.table(store, identity, name).load()
        scopes = {file.partition["scope"] or "" for file in own}
        waiting = freshness.in_log(own, {scope: current.segment(scope) for scope in scopes})
        lags = [waiting.seconds(now)]
        lags += [landed.waiting.seconds(now) for scope, landed in (in_lake or {}).items()
                 if scope in scopes]  # fmt: skip
        return {
            "table": name,
            **_size(current),
            "history": _size(history) if history.exists else None,
            "published_at": published_at(current),
            "lag_seconds": round(max(lags), 3),
            "events_waiting": waiting.events,
            **_completeness(current),
            "rescued": sum(rescued[name].values()),
            "rescued_by_field": {field: n for field, n in rescued[name].items() if field and n},
            "fields_left_out": found.get(name, {}).get("left_out", []),
            "set_aside": set_aside[name],
        }

    with ThreadPoolExecutor(_READERS) as readers:
        tables = list(readers.map(of, sorted(names - {NO_TABLE})))
    return {
        "tables": tables,
        "changes": {**_size(log), "committed_at": published_at(log)},
        "set_aside_without_table": set_aside[NO_TABLE],
        "lake": None if in_lake is None else {name: _scope(in_lake[name], now) for name in in_lake},
    }


def _scope(scope: ScopeInLake, now: float) -> dict[str, Any]:
    return {
        "landed_segment": scope.landed,
        "read_segment": scope.logged,
        "missing_segment": scope.missing,
        "lag_seconds": round(scope.waiting.seconds(now), 3),
        "events_waiting": scope.waiting.events,
    }


def _size(version: TableVersion) -> dict[str, Any]:
    files = version.files
    return {
        "rows": sum(each.rows for each in files),
        "files": len(files),
        "bytes": sum(each.size for each in files),
    }


def _completeness(current: TableVersion) -> Mapping[str, Any]:
    known = current.property(COMPLETE)
    return {name: known.get(name) for name in ("complete", "since", "reason")}


def _counted(quality: TableVersion) -> tuple[Mapping[str, Counter[str]], Counter[str]]:
    """The values that did not fit, by table and field, and the events that were set aside, by
    table."""
    rescued: defaultdict[str, Counter[str]] = defaultdict(Counter)
    set_aside: Counter[str] = Counter()
    for row in quality.rows("stage", "database", "collection", "field", "rescued", "set_aside"):
        database, collection = row["database"], row["collection"]
        if row["stage"] in ("current", "columns"):
            name = f"{database}.{collection}"  # of a table, not of a collection
        elif database is None or collection is None:
            name = NO_TABLE
        else:
            name = table_name(database, collection)
        rescued[name][row["field"]] += row["rescued"] or 0
        set_aside[name] += row["set_aside"] or 0
    return rescued, set_aside
