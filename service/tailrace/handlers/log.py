"""Writes a log line for each event, without the document."""

import structlog

from tailrace.config.handlers import LogHandlerSettings
from tailrace.engine import Handler, PerEvent, RunIdentity
from tailrace.event import ChangeEvent


def log_handler(name: str, settings: LogHandlerSettings) -> Handler:
    """A handler that logs ``event.received`` at the configured level."""
    write = getattr(structlog.get_logger().bind(handler=name), settings.level)

    async def log(event: ChangeEvent, identity: RunIdentity) -> None:
        time = event.cluster_time
        write(
            "event.received",
            operation=event.operation_type,
            ns=str(event.ns) if event.ns else None,
            cluster_time=time.as_datetime().isoformat() if time else None,
            token=event.token.digest,
        )

    return Handler(name, PerEvent(log))
