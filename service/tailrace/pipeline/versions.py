"""Computes the versions of each document from its events, with their times.

The input is a *sequence* of rows: open versions (stage 0), published events that serve only to
recognise repetitions (stage 1), and new events (stage 2). They are ordered by cluster time, then
ordinal. An event that arrives after a newer event of its key is a repetition, because events of a
scope arrive in order. It changes nothing.
"""

from collections.abc import Sequence
from dataclasses import astuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from tailrace.event.cluster_position import BEFORE_ALL
from tailrace.pipeline.folding import fold
from tailrace.pipeline.lineage import VersionRoute, position_sql, time_sql

OPEN, KNOWN, NEW = 0, 1, 2
"""The stages of a sequence's rows."""

_SAME = ("key", "operation", "cluster_seconds", "cluster_increment", "scope", "ordinal")

_BEFORE = f"{BEFORE_ALL + 1}L - 1"  # Spark cannot read the least number

_LINE = "PARTITION BY line, key"
_ORDER = f"{_LINE} ORDER BY at, stage, scope, ordinal"
_ALIVE = f"{_LINE}, live ORDER BY at, stage, scope, ordinal"

# If two segments have the same position, the later event is a repetition, because a segment never
# ends inside a transaction. An open version does not count as an arrival.
_ARRIVAL = "IF(stage = 0 OR cluster_seconds IS NULL, NULL, struct(at, -segment AS earlier))"
_STALE = (
    f"stage = 2 AND coalesce({_ARRIVAL} < max({_ARRIVAL}) OVER ({_LINE} ORDER BY stage, scope, "
    "ordinal ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), false)"
)

# Another scope may land an event that is published already. Segments of different scopes have no
# order, but the event has the same token and time. (A repeated row of a snapshot may have a later
# time, and newer content.)
_PUBLISHED = (
    f"stage = {NEW} AND coalesce(min(IF(token IS NULL, NULL, stage)) OVER (PARTITION BY line, key, "
    f"at, token) = {KNOWN}, false)"
)

# An insert that moves a document to another shard may come before events of the same transaction
# from the shard that it leaves (tailrace/event/document_identity.py): they are overtaken.
_IN_TRANSACTION = "PARTITION BY line, key, at ORDER BY stage, scope, ordinal ROWS BETWEEN UNBOUNDED"
_ENDS = (
    f"collect_list(IF(stage = {NEW} AND NOT stale AND (operation = 'delete' OR key_before <> "
    "document_key), struct(key_before, ordinal), NULL)) "
    f"OVER ({_IN_TRANSACTION} PRECEDING AND UNBOUNDED FOLLOWING)"
)
_LIVES = (
    f"stage = {NEW} AND NOT stale AND operation <> 'delete' AND NOT exists(ends, each -> "
    "each.key_before = document_key AND each.ordinal > ordinal)"
)
_OVERTAKEN = (
    f"stage = {NEW} AND NOT lives AND "
    f"coalesce(max(lives) OVER ({_IN_TRANSACTION} PRECEDING AND 1 PRECEDING), false)"
)

# The last document key. A delete with another key is for the same `_id` on another shard: a change
# of the shard key inserts there and deletes here, in one transaction and in any order. Outside a
# transaction, a key with other fields is older than the collection's shard key.
_OWN = (
    "last_value(IF(operation = 'delete' OR stale OR overtaken, NULL, "
    "struct(document_key, at)), true) "
    f"OVER ({_ORDER} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
)
_OF_ANOTHER = (
    "operation = 'delete' AND coalesce(own.document_key <> document_key AND (own.at = at OR "
    "json_object_keys(own.document_key) = json_object_keys(document_key)), false)"
)


def of_open(rows: DataFrame, table: str) -> DataFrame:
    """Open versions as rows of a sequence; ``table``: SQL for the name of their table."""
    return rows.selectExpr(
        *_SAME,
        "document_key",
        "document_key AS key_before",
        "document",
        "CAST(-1 AS BIGINT) AS segment",
        "valid_from_position AS at",
        f"coalesce({position_sql('cluster_seconds', 'cluster_increment')}, {_BEFORE}) AS made",
        "'present' AS image",
        "CAST(NULL AS STRING) AS update_description",
        "CAST(NULL AS STRING) AS token",
        f"{table} AS table",
        f"{OPEN} AS stage",
    )


def of_events(rows: DataFrame, stage: int | str) -> DataFrame:
    """Events as rows of a sequence; ``stage``: :data:`KNOWN`, :data:`NEW`, or SQL for one."""
    return rows.where("key IS NOT NULL").selectExpr(
        *_SAME,
        "coalesce(key_after, document_key) AS document_key",
        "document_key AS key_before",
        "full_document AS document",
        "segment",
        f"coalesce(position, {_BEFORE}) AS at",
        f"coalesce(position, {_BEFORE}) AS made",
        "image",
        "update_description",
        "token",
        "table",
        f"{stage} AS stage",
    )


def versions(
    sequence: DataFrame,
    ways: Sequence[VersionRoute],
    *,
    partial: bool,
    shared: bool,
    deletions: bool,
    moves: bool,
) -> DataFrame:
    """A sequence with the effect of each row, and the position and operation of the next row.

    ``stale`` marks a repeated event, ``live`` a row with an effect, ``gone`` a row that leaves no
    document. ``partial``: some events have no image, so updates are applied by
    :mod:`tailrace.pipeline.folding`. ``shared``: several scopes have landed the events.
    ``deletions``: some may delete a document; without them, Spark sorts the rows once less.
    ``moves``: some documents may have changed their shards.
    """
    stale = f"({_STALE}) OR ({_PUBLISHED})" if shared else _STALE
    rows = _routed(sequence, ways).selectExpr("*", f"{stale} AS stale")
    overtaken = "false"
    if deletions and moves:
        rows = rows.selectExpr("*", f"{_ENDS} AS ends").selectExpr("*", f"{_LIVES} AS lives")
        overtaken = _OVERTAKEN
    rows = rows.selectExpr("*", f"{overtaken} AS overtaken")
    live = f"NOT stale AND NOT overtaken AND stage <> {KNOWN}"
    if deletions:
        rows = rows.selectExpr("*", f"{_OWN} AS own")
        live = f"{live} AND NOT ({_OF_ANOTHER})"
    rows = rows.selectExpr("*", f"{live} AS live")
    rows = rows.drop("own", "ends", "lives", "overtaken", "key_before")
    rows = rows.selectExpr(
        "*",
        f"lead(at) OVER ({_ALIVE}) AS next",
        f"lead(operation) OVER ({_ALIVE}) AS next_operation",
        f"stage <> {OPEN} AND operation = 'delete' AS gone",
        "false AS without_base",
        "false AS unfit",
    )
    if not partial:
        return rows
    alive = rows.where("live").repartition("line", "key")
    alive = alive.sortWithinPartitions("line", "key", "at", "stage", "scope", "ordinal")
    return alive.mapInArrow(fold, alive.schema).unionAll(rows.where("NOT live"))


_INTERVAL = (
    "key",
    "document_key",
    "document",
    "IF(since IS NULL, operation, 'rename') AS operation",
    "timestamp_seconds(cluster_seconds) AS cluster_time",
    "cluster_seconds",
    "cluster_increment",
    "scope",
    "ordinal",
    "begin AS valid_from_position",
    f"{time_sql('begin')} AS valid_from",
    f"{time_sql('end')} AS valid_to",
    "end AS valid_to_position",
    "IF(next <= coalesce(until, next), next_operation, ended_by) AS ended_by",
    "end IS NULL AS is_current",
)
_TIMES = ("*", "coalesce(since, at) AS begin", "least(next, until) AS end")


def intervals(rows: DataFrame, table: str, more: Sequence[str] = ()) -> DataFrame:
    """The versions in one table with their times, which renames and drops may shorten.

    ``more``: SQL for further columns.
    """
    rows = rows.where("live AND NOT gone").selectExpr("*", "inline(hops)")
    rows = rows.where(f"home = '{table}'").selectExpr(*_TIMES).where("end IS NULL OR begin < end")
    return rows.selectExpr(*_INTERVAL, *more)


def located(rows: DataFrame) -> DataFrame:
    """Each row once for each table that has its version, as ``home``, from ``number`` 0 on; a row
    without a version has no ``home``. ``there``: whether the version lasted for any time."""
    rows = rows.selectExpr(
        "*", "posexplode_outer(IF(live AND NOT gone, hops, NULL)) AS (number, hop)"
    )
    rows = rows.selectExpr("*", "hop.home", "hop.since", "hop.until", "hop.ended_by")
    there = "home IS NOT NULL AND (end IS NULL OR begin < end) AS there"
    return rows.selectExpr(*_TIMES).selectExpr("*", there)


def located_intervals(rows: DataFrame, more: Sequence[str]) -> DataFrame:
    """The columns of :func:`intervals` for :func:`located` rows, and ``more``."""
    return rows.selectExpr(*_INTERVAL, *more)


def _routed(sequence: DataFrame, ways: Sequence[VersionRoute]) -> DataFrame:
    """Each row with its line, and the tables that have its version over time."""
    bounds = [(way.after, way.before, way.made_after, way.made_before) for way in ways]
    if not any(each is not None for bound in bounds for each in bound):
        home = "named_struct('home', table, 'since', CAST(NULL AS BIGINT), 'until', "
        home += "CAST(NULL AS BIGINT), 'ended_by', CAST(NULL AS STRING))"
        return sequence.selectExpr("*", "table AS line", f"array({home}) AS hops")
    known = sequence.sparkSession.createDataFrame(
        [astuple(way) for way in ways],
        "way string, after long, before long, made_after long, made_before long, line string, "
        "hops array<struct<home: string, since: long, until: long, ended_by: string>>",
    )
    rows = sequence.join(
        F.broadcast(known),
        F.expr(
            "table = way AND at >= coalesce(after, at) AND (before IS NULL OR at < before) "
            "AND made >= coalesce(made_after, made) AND (made_before IS NULL OR made < made_before)"
        ),
    )
    return rows.drop("way", "after", "before", "made_after", "made_before")
