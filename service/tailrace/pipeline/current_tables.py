"""The tables ``current`` of a lake as files of documents, to compare them. Starts no Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tailrace.config.catalog import TablesAt
from tailrace.errors import PipelineRefused, describe
from tailrace.pipeline.completeness import COMPLETE
from tailrace.pipeline.log_snapshot import CURRENT_STATE, published
from tailrace.pipeline.schemas import CHANGES, collection_of, table_name
from tailrace.pipeline.tables import PUBLISHED, Table, TableStore, TableVersion, open_store

_ROWS = 1000
"""Rows that are in memory at once."""


@dataclass(frozen=True, slots=True)
class CurrentStateTable:
    """One version of the table of a collection."""

    found: TableVersion

    @property
    def name(self) -> str:
        """For people: ``current/shop.orders, version 7``."""
        return f"{self.found.table.name}, version {self.found.version}"

    @property
    def files(self) -> Sequence[str]:
        """Its files, by names that no other content has."""
        return [f"{self.found.identity}/{each.path}" for each in self.found.files]

    @property
    def incomplete(self) -> str:
        """Why documents are missing in it; empty if none are."""
        known: Mapping[str, Any] = self.found.property(COMPLETE)
        return "" if known.get("complete", True) else str(known.get("reason"))

    def segment(self, scope: str) -> int:
        """The last segment of a scope that is in it; -1 for none."""
        published: int = self.found.property(PUBLISHED).get(scope, -1)
        return max(self.found.segment(scope), published)

    def rows(self, name: str) -> Iterator[tuple[str, str | None]]:
        """Document key and document of each row of a file, as canonical Extended JSON.

        Raises ``OSError``, and :class:`PipelineRefused` for a damaged file.
        """
        location = self.found.table.location / name.partition("/")[2]
        with location.files.open_input_file(location.path) as source:
            try:
                columns = ["document_key", "document"]
                for batch in pq.ParquetFile(source).iter_batches(_ROWS, columns=columns):
                    yield from zip(*(batch.column(at).to_pylist() for at in columns), strict=True)
            except pa.ArrowException as error:
                raise PipelineRefused(f"{location}: is damaged: {describe(error)}") from error


@dataclass(frozen=True, slots=True)
class CurrentStateTables:
    """The tables that a pipeline makes of one lake."""

    store: TableStore
    lake: str

    @classmethod
    def of(cls, tables_at: TablesAt, lake: str) -> CurrentStateTables | None:
        """Those at a location; ``None`` if there are none of this lake."""
        store = open_store(tables_at)
        return cls(store, lake) if store.lake("changes") == lake else None

    def collections(self) -> Sequence[tuple[str, str]]:
        """Database and collection of each table, but for very long names."""
        found = map(collection_of, self.store.names(CURRENT_STATE.name))
        pairs = (name.partition(".") for name in found)
        return [(database, name) for database, _, name in pairs if "!!" not in name]

    def published(self, scope: str) -> int:
        """The last segment of a scope that all tables have; -1 for none."""
        log = Table(self.store, "changes", CHANGES, self.lake).load()
        segment: int = published(log, CURRENT_STATE).get(scope, -1)
        return segment

    def current(self, database: str, collection: str) -> CurrentStateTable | None:
        """The table of a collection as committed now; ``None`` if there is none."""
        name = table_name(database, collection)
        found = CURRENT_STATE.table(self.store, self.lake, name).load()
        return CurrentStateTable(found) if found.exists else None
