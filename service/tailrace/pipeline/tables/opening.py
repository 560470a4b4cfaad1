"""Opens the tables in the format that the configuration names."""

from tailrace.config.catalog import TablesAt
from tailrace.errors import PipelineRefused, how_to_install
from tailrace.pipeline.location import Location
from tailrace.pipeline.tables.delta import DeltaStore
from tailrace.pipeline.tables.port import TableStore


def open_store(at: TablesAt) -> TableStore:
    """Raises :class:`PipelineRefused` without pyiceberg, which only Iceberg tables need."""
    location = Location.of(at.where)
    if at.catalog is None:
        return DeltaStore(location)
    try:
        from tailrace.pipeline.tables.iceberg import IcebergStore
    except ModuleNotFoundError as error:
        raise PipelineRefused(
            f"format iceberg needs {error.name}: {how_to_install('iceberg')}"
        ) from error
    return IcebergStore(location, at.catalog, at.namespace)
