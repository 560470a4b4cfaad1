"""Configures structlog: one JSON object per line, or coloured text for a terminal.

An event is a dotted noun and a past participle (``stream.resumed``); all data are keys. Documents
and whole resume tokens are never logged, and secrets are masked.
"""

import logging
import sys
import warnings
from collections.abc import MutableMapping
from typing import Any

import structlog

from tailrace.masking import MASK, is_secret_name, shortened, without_secrets_within
from tailrace.observe.colours import shows_colours

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}

LONGEST_VALUE = 16_384
"""The longest value, in characters. The middle of a longer value is left out."""

_OUR_LIBRARIES = (
    *("asyncio", "concurrent", "motor", "obstore", "py4j", "pymongo", "pyspark", "uvicorn"),
    "urllib3",
)
"""Their level is at least ``warning``: below that they log commands with documents, or each call
of Java."""


def style_of(choice: str) -> str:
    """The style of ``logging.format``: with ``auto``, lines on a terminal are for people."""
    if choice == "auto":
        return "console" if sys.stderr.isatty() else "json"
    return choice


def configure(level: str, choice: str, *fields: structlog.typing.Processor) -> None:
    """Sets the level and style (:func:`style_of`) of the process's log on standard error.

    ``fields``: processors that add keys to each line.

    Lines that handlers and libraries write through :mod:`logging` get the same form, with the
    logger's name.
    """
    style = style_of(choice)
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        *fields,
        structlog.processors.TimeStamper("iso" if style == "json" else "%Y-%m-%d %H:%M:%SZ"),
        structlog.processors.format_exc_info,
        _mask,
    ]
    renderer: Any
    if style == "json":
        renderer = structlog.processors.JSONRenderer()
    else:
        # The pretty tracebacks would show local variables, such as a connection string.
        renderer = structlog.dev.ConsoleRenderer(
            colors=shows_colours(sys.stderr),
            exception_formatter=structlog.dev.plain_traceback,
            sort_keys=False,
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
    warnings.showwarning = _log_warning
    for name in _OUR_LIBRARIES:
        logging.getLogger(name).setLevel(max(logging.WARNING, LEVELS[level]))


def _log_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: object = None,
    line: str | None = None,
) -> None:
    """Logs what :mod:`warnings` would print, such as that a compressor's package is missing."""
    at = f"{filename}:{lineno}"
    log = structlog.get_logger()
    log.warning("python.warned", category=category.__name__, warning=str(message), at=at)


def _mask(logger: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for key, value in event.items():
        if key.startswith("_"):  # structlog's own key, removed before the line is rendered
            continue
        if isinstance(value, str):
            value = shortened(value, LONGEST_VALUE)
        # Under the name "token" we log the digest of a resume token.
        masked = key != "token" and is_secret_name(key)
        event[key] = MASK if masked else without_secrets_within(value)
    return event
