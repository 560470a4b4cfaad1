"""Opens the tables of a catalog, and tells whose they are."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table as IcebergTable

from tailrace.errors import PipelineRefused
from tailrace.lake.s3 import S3Access
from tailrace.pipeline.location import Location
from tailrace.pipeline.tables.iceberg.commits import LAKE
from tailrace.pipeline.tables.iceberg.data_files import plain
from tailrace.pipeline.tables.iceberg.failures import catalog_errors, reason
from tailrace.pipeline.tables.iceberg.rest import TimedRestCatalog
from tailrace.pipeline.tables.iceberg.version import IcebergVersion
from tailrace.pipeline.tables.port import Table

_OWN_TYPES = ("sql", "glue", "dynamodb", "hive", "in-memory")
"""The types of catalogs for which ``warehouse`` is a location. A REST catalog takes a name."""


@dataclass(frozen=True)
class IcebergStore:
    """:class:`tailrace.pipeline.tables.port.TableStore`: Iceberg tables of a catalog.

    ``location`` is the warehouse, whose directories are those of Delta tables. ``settings`` are
    pyiceberg's, with the ``name`` of the catalog.
    """

    location: Location
    settings: Mapping[str, str] = field(repr=False)
    namespace: str

    @cached_property
    def catalog(self) -> Catalog:
        """Raises :class:`PipelineRefused` if it does not answer."""
        properties = {**_storage(self.location), **self.settings}
        name = properties.pop("name", "default")
        kind = properties.get("type")
        if kind in _OWN_TYPES:
            properties.setdefault("warehouse", _uri(self.location))
        with catalog_errors(f"{self}: cannot be opened"):
            if kind == "rest":
                return TimedRestCatalog(name, **properties)
            try:
                return load_catalog(name, **properties)
            except Exception:
                if kind != "sql":
                    raise
                # Another process may have created the tables of the catalog meanwhile.
                return load_catalog(name, **properties)

    def __str__(self) -> str:
        return f"the {self.settings.get('type', 'Iceberg')} catalog"

    def identifier(self, name: str) -> tuple[str, ...]:
        """The namespace and the name of a table: ``tailrace_current`` and ``shop.orders``."""
        kind, _, table = name.rpartition("/")
        return (*self._namespace(kind), table)

    def _namespace(self, kind: str) -> tuple[str, ...]:
        *above, last = self.namespace.split(".")
        return (*above, f"{last}_{kind}" if kind else last)

    def root(self, table: Table) -> str:
        """The location of a table, as the catalog has it."""
        return _uri(table.location)

    def require_writable(self) -> None:
        probe = self.location / f"tailrace.probe-{uuid.uuid4().hex}"
        try:
            self.location.make()
            with probe.files.open_output_stream(probe.path):
                pass
            probe.files.delete_file(probe.path)
        except OSError as error:
            raise PipelineRefused(f"{self.location}: cannot be written: {reason(error)}") from error
        with catalog_errors(f"{self}: cannot be written"):
            for kind in ("", "current", "history"):
                self.make_namespace(self._namespace(kind))

    def make_namespace(self, namespace: tuple[str, ...]) -> None:
        """Creates a namespace if it does not exist."""
        try:
            self.catalog.create_namespace_if_not_exists(namespace)
        except Exception:
            # Another process may have created it meanwhile, or this one may only use it.
            if not self.catalog.namespace_exists(namespace):
                raise

    def load(self, table: Table, version: int | None = None) -> IcebergVersion:
        stored = self.stored(table.name)
        if stored is None:
            return self.absent(table)
        lake = stored.properties.get(LAKE)
        if lake != table.lake:
            whose = f"belongs to the lake {lake}, not to {table.lake}"
            if lake is None:
                whose = "is not a table of this pipeline"
            raise PipelineRefused(f"{self._named(table.name)}: {whose}. Give another namespace")
        if plain(stored.location()) != plain(self.root(table)):
            raise PipelineRefused(
                f"{self._named(table.name)}: is in {stored.location()}, and the warehouse is "
                f"{self.location}. Give the warehouse in which its tables are"
            )
        return IcebergVersion(table, self, stored, version)

    def stored(self, name: str) -> IcebergTable | None:
        """A table as the catalog has it; ``None`` if there is none."""
        try:
            with catalog_errors(f"{self._named(name)}: cannot be read"):
                return self.catalog.load_table(self.identifier(name))
        except (NoSuchTableError, NoSuchNamespaceError):
            return None

    def absent(self, table: Table) -> IcebergVersion:
        return IcebergVersion(table, self)

    def lake(self, name: str) -> str | None:
        stored = self.stored(name)
        return None if stored is None else stored.properties.get(LAKE)

    def names(self, kind: str) -> list[str]:
        try:
            with catalog_errors(f"{self}: its tables cannot be listed"):
                found = self.catalog.list_tables(self._namespace(kind))
        except NoSuchNamespaceError:
            return []
        return sorted(each[-1] for each in found)

    def _named(self, name: str) -> str:
        *namespace, table = self.identifier(name)
        return f"the table {table!r} in {'.'.join(namespace)} of {self}"


def _uri(location: Location) -> str:
    """The warehouse, or what is in it, as other readers of a catalog need it: a URI."""
    return f"file://{location.uri}" if location.uri.startswith("/") else location.uri


def _storage(location: Location) -> dict[str, str]:
    """How pyiceberg reads and writes the warehouse: as the pipeline does, by pyarrow."""
    properties: dict[str, Any] = {"py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"}
    if location.is_s3:
        access = S3Access.of()
        properties |= {"s3.endpoint": access.endpoint, "s3.region": access.region}
        if access.endpoint and not access.path_style:
            properties["s3.force-virtual-addressing"] = "true"
    return {name: value for name, value in properties.items() if value}
