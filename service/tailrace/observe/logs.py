"""structlog, configured once: one JSON object a line, or colours for a terminal.

Events are dotted nouns with a past participle (``stream.resumed``), and all data are keys.
Documents and whole resume tokens are never logged, and secrets are masked.
"""

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog

from tailrace.errors import shortened
from tailrace.masking import MASK, is_secret_name, without_secrets_within

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}

LONGEST_VALUE = 16_384
"""Characters of one value of a line. A longer one is shown with its middle left out."""

_OUR_LIBRARIES = ("asyncio", "concurrent", "motor", "obstore", "pymongo", "uvicorn", "urllib3")
"""They log from ``warning`` on: below that they log commands, with documents."""


def configure(level: str, style: str) -> None:
    """Sets the level and style (``json`` or ``console``) of the process's log on standard error.

    What handlers and libraries write through :mod:`logging` has the same form, with their name.
    """
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _mask,
    ]
    renderer: Any
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
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[
                structlog.stdlib.add_logger_name,
                structlog.stdlib.ExtraAdder(),
                *shared,
            ],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(LEVELS[level])
    for name in _OUR_LIBRARIES:
        logging.getLogger(name).setLevel(max(logging.WARNING, LEVELS[level]))


def _mask(logger: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for key, value in event.items():
        if key.startswith("_"):  # structlog's own, taken out before the line is rendered
            continue
        if isinstance(value, str):
            value = shortened(value, LONGEST_VALUE)
        # By this name we log the digest of a resume token.
        masked = key != "token" and is_secret_name(key)
        event[key] = MASK if masked else without_secrets_within(value)
    return event
