"""Reloads by SIGHUP. Their outcome is only in the log."""

import signal

import anyio
import structlog

from tailrace.control.control import Reload
from tailrace.control.outcome import ActionRefused


class Sighup:
    """What SIGHUP requested, also before anything can be reloaded."""

    def __init__(self) -> None:
        self._requested = anyio.Event()

    def request(self) -> None:
        """Asks for a reload that begins after this call."""
        self._requested.set()

    async def run(self, reload: Reload) -> None:
        """Reloads once for all requests that came before it, until it is cancelled."""
        log = structlog.get_logger().bind(action="reload", by=signal.SIGHUP.name)
        while True:
            await self._requested.wait()
            self._requested = anyio.Event()
            try:
                done = await reload(dry_run=False)
                log.info("action.done", **{"from": done.before, "to": done.after})
            except ActionRefused as refused:
                log.error("action.refused", reason=str(refused))
            except Exception as error:
                log.critical("action.failed", exc_info=error)
