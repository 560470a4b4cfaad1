"""The table of types of handlers: those of Tailrace, and those that other packages add.

To add a type here: write its module and put its row into the table. Another package adds a row by
an entry point of the group ``tailrace.handlers``. Such a row is loaded only if it is used or
listed.
"""

from collections.abc import Collection, Mapping
from typing import Any

from tailrace.config.handlers import AnyHandlerSettings
from tailrace.handlers.handler_type import HandlerType
from tailrace.handlers.jsonl import JSONL
from tailrace.handlers.log import LOG
from tailrace.handlers.parquet import PARQUET
from tailrace.handlers.python import PYTHON

BUILT_IN: Mapping[str, HandlerType[Any]] = {
    each.name: each for each in (LOG, JSONL, PARQUET, PYTHON)
}


def type_of(settings: AnyHandlerSettings) -> HandlerType[Any]:
    """The row of a handler's settings."""
    return BUILT_IN[settings.type]


def handler_models(words: Collection[str]) -> Mapping[str, type[AnyHandlerSettings] | str]:
    """The settings of each type, as :func:`tailrace.config.load` wants them."""
    return {name: each.settings for name, each in BUILT_IN.items()}


def installed_models() -> Collection[type[AnyHandlerSettings]]:
    """The settings of every type that can be loaded."""
    return [each.settings for each in BUILT_IN.values()]
