"""Writes a log line for each event, without the document."""

from typing import Literal

import structlog

from tailrace.destination import (
    Handler,
    HandlerSettings,
    HandlerType,
    Opening,
    PerEvent,
    ProbeContext,
    RunIdentity,
)
from tailrace.event import ChangeEvent


class LogHandlerSettings(HandlerSettings):
    """Writes one log line for each event: for a first look, not a destination."""

    type: Literal["log"]
    """Selects this handler."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The level of the lines. `debug` hides them unless `logging.level` is `debug`."""


def log_handler(opening: Opening, settings: LogHandlerSettings, target: object) -> Handler:
    """A handler that logs ``event.received`` at the configured level."""
    write = getattr(structlog.get_logger().bind(handler=opening.name), settings.level)

    async def log(event: ChangeEvent, identity: RunIdentity) -> None:
        time = event.cluster_time
        write(
            "event.received",
            operation=event.operation_type,
            ns=str(event.ns) if event.ns else None,
            cluster_time=time.as_datetime().isoformat() if time else None,
            token=event.token.digest,
        )

    return Handler(opening.name, PerEvent(log))


async def _probe(opening: Opening, settings: LogHandlerSettings, context: ProbeContext) -> str:
    return "writes to the log"


LOG = HandlerType(
    LogHandlerSettings,
    lambda opening, settings: None,
    log_handler,
    probe=_probe,
    shared=lambda settings: True,
    is_comparable=lambda settings: False,
)
