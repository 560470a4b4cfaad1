"""Opens the tables below a location, and tells whose they are."""

from __future__ import annotations

from dataclasses import dataclass

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from tailrace.errors import PipelineRefused
from tailrace.pipeline.location import Location
from tailrace.pipeline.object_store import require_conditional_writes
from tailrace.pipeline.tables.delta.actions import lake_of
from tailrace.pipeline.tables.delta.failures import read_errors
from tailrace.pipeline.tables.delta.version import DeltaVersion
from tailrace.pipeline.tables.port import Table, TableVersion


@dataclass(frozen=True, slots=True)
class DeltaStore:
    """:class:`tailrace.pipeline.tables.port.TableStore`: Delta tables in a directory."""

    location: Location

    def require_writable(self) -> None:
        if self.location.is_s3:
            require_conditional_writes(self.location)
        self.location.require_writable()

    def load(self, table: Table, version: int | None = None) -> TableVersion:
        location = table.location
        delta = _open(location, version)
        if delta is None:
            return self.absent(table)
        lake = lake_of(delta)
        if lake == table.lake:
            return DeltaVersion(table, delta)
        whose = f"belongs to the lake {lake}, not to {table.lake}"
        if lake is None:
            whose = "is not a table of this pipeline"
        raise PipelineRefused(f"{location}: {whose}. Give another --tables directory")

    def absent(self, table: Table) -> TableVersion:
        return DeltaVersion(table, None)

    def lake(self, name: str) -> str | None:
        delta = _open(self.location / name)
        return None if delta is None else lake_of(delta)

    def names(self, kind: str) -> list[str]:
        return [name for name, is_directory in (self.location / kind).names() if is_directory]


def _open(location: Location, version: int | None = None) -> DeltaTable | None:
    """The table at a location; ``None`` if there is none."""
    try:
        with read_errors(location):
            return DeltaTable(location.uri, version, storage_options={**location.options})
    except TableNotFoundError:
        return None
