"""Whether a run would find nothing to do: then it needs no Spark, whose start costs seconds."""

from tailrace.config.pipeline import PipelineSettings
from tailrace.pipeline import segments
from tailrace.pipeline.changes import changes_table
from tailrace.pipeline.declaration import Declaration, is_declared
from tailrace.pipeline.log_snapshot import CURRENT_STATE, HISTORY_STATE, published
from tailrace.pipeline.quality import is_counted
from tailrace.pipeline.schemas import NO_TABLE
from tailrace.pipeline.segments import LandedLake
from tailrace.pipeline.tables import TableStore


def is_up_to_date(
    lake: LandedLake, tables: TableStore, settings: PipelineSettings, columns: Declaration | None
) -> bool:
    """Whether the tables have all segments and columns, and all of it is counted.

    ``columns``: those that the file declares; ``None`` without a file. Raises
    :class:`PipelineRefused` if the tables are not of this lake.
    """
    log = changes_table(tables, lake.identity).load()
    if not log.exists or not (columns is None or is_declared(log, columns)):
        return False
    kinds = [CURRENT_STATE, HISTORY_STATE] if settings.history else [CURRENT_STATE]
    scopes = set(lake.scopes()).union(*(published(log, kind) for kind in kinds))
    through = {scope: log.segment(scope) for scope in scopes}
    if any(each.numbers or each.missing is not None for each in segments.pending(lake, through)):
        return False
    logged = {file.partition["table"] or NO_TABLE for file in log.files} - {NO_TABLE}
    return all(
        published(log, kind) == through and logged <= set(tables.names(kind.name)) for kind in kinds
    ) and is_counted(tables, log)
