"""structlog, configured once: one JSON object a line, or colours for a person.

Events are dotted nouns with a past participle (``stream.resumed``), and all data are keys.
Documents and whole resume tokens are never logged, and passwords in URLs are masked, whoever put
them there.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog

from service.errors import without_secrets

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def configure(level: str, style: str) -> None:
    """Decides level (``debug`` … ``error``) and style (``json`` or ``console``) for the process.

    Logs go to standard error. Libraries that use :mod:`logging` speak from ``warning`` on, in
    the same form.
    """
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: Any
    shared.append(structlog.processors.format_exc_info)
    shared.append(_mask)
    if style == "json":
        renderer = structlog.processors.JSONRenderer()
    else:
        # The pretty tracebacks show local variables: a connection string may be among them.
        renderer = structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)


def _mask(logger: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for key, value in event.items():
        if isinstance(value, str):
            event[key] = without_secrets(value)
    return event
