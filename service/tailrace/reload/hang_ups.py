"""Reloads by SIGHUP. Their outcome is only in the log."""

import signal
from collections.abc import Awaitable, Callable

import structlog

from tailrace.control import ActionRefused, Control


async def reload_on_hang_ups(control: Control, hung_up: Callable[[], Awaitable[None]]) -> None:
    """Reloads once for all requests that came before it, until it is cancelled.

    ``hung_up`` returns when a request has come since its last call.
    """
    log = structlog.get_logger().bind(action="reload", by=signal.SIGHUP.name)
    while True:
        await hung_up()
        try:
            done = await control.reload(dry_run=False)
            log.info("action.done", **{"from": done.before, "to": done.after})
        except ActionRefused as refused:
            log.error("action.refused", reason=str(refused))
        except Exception as error:
            log.critical("action.failed", exc_info=error)
