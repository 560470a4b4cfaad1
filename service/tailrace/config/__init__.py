"""The configuration: read once, checked as a whole, frozen.

:func:`load` reads a file and reports every problem at once, each with its path. :func:`masked` and
:func:`schema` are for people and editors. Knows no driver and no handler: others find out whether
the server answers and whether a python target can be imported.

``document`` reads YAML with variables; ``settings`` and the modules that it imports are the models;
``checks`` compares sections; ``messages`` words the problems; ``loading`` joins them.
"""

from tailrace.config.delivery import DeliverySettings
from tailrace.config.handlers import (
    HandlerBase,
    HandlerSettings,
    JsonlHandlerSettings,
    LogHandlerSettings,
    ParquetHandlerSettings,
    PythonHandlerSettings,
)
from tailrace.config.loading import load, loads, masked
from tailrace.config.pipeline import PipelineSettings
from tailrace.config.scopes import ScopeSettings
from tailrace.config.settings import Settings, schema
from tailrace.config.store import MemoryStoreSettings, MongodbStoreSettings, SqliteStoreSettings

__all__ = [
    "DeliverySettings",
    "HandlerBase",
    "HandlerSettings",
    "JsonlHandlerSettings",
    "LogHandlerSettings",
    "MemoryStoreSettings",
    "MongodbStoreSettings",
    "ParquetHandlerSettings",
    "PipelineSettings",
    "PythonHandlerSettings",
    "ScopeSettings",
    "Settings",
    "SqliteStoreSettings",
    "load",
    "loads",
    "masked",
    "schema",
]
