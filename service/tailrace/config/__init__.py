"""The configuration: read once, checked whole, frozen.

``load`` is the way in; every problem of a file is reported at once, each with its path. ``masked``
and ``schema`` are for eyes and editors. Knows no driver and no handler; whether the server answers
and a python target can be imported is found out by those who use them.

``document`` reads YAML with variables; ``settings`` and the modules that it imports are the models;
``checks`` compares sections, ``outline`` and ``messages`` put problems into words, ``loading`` ties
them together, ``reference`` prints docs/configuration.md.
"""

from tailrace.config.delivery import (
    DeadLetterSettings,
    DeliverySettings,
    RetrySettings,
    SupervisorSettings,
)
from tailrace.config.handlers import (
    HandlerBase,
    HandlerSettings,
    JsonlHandlerSettings,
    LogHandlerSettings,
    ParquetHandlerSettings,
    PythonHandlerSettings,
)
from tailrace.config.json_schema import schema
from tailrace.config.loading import load, loads, masked
from tailrace.config.pipeline import PipelineSettings
from tailrace.config.scopes import RouteSettings, ScopeSettings
from tailrace.config.settings import (
    CheckpointSettings,
    HttpSettings,
    LoggingSettings,
    MongodbSettings,
    Settings,
    ShutdownSettings,
)
from tailrace.config.store import (
    MemoryStoreSettings,
    MongodbStoreSettings,
    SqliteStoreSettings,
    StoreSettings,
)

__all__ = [
    "CheckpointSettings",
    "DeadLetterSettings",
    "DeliverySettings",
    "HandlerBase",
    "HandlerSettings",
    "HttpSettings",
    "JsonlHandlerSettings",
    "LogHandlerSettings",
    "LoggingSettings",
    "MemoryStoreSettings",
    "MongodbSettings",
    "MongodbStoreSettings",
    "ParquetHandlerSettings",
    "PipelineSettings",
    "PythonHandlerSettings",
    "RetrySettings",
    "RouteSettings",
    "ScopeSettings",
    "Settings",
    "ShutdownSettings",
    "SqliteStoreSettings",
    "StoreSettings",
    "SupervisorSettings",
    "load",
    "loads",
    "masked",
    "schema",
]
