"""How the daemon ends: a first signal drains, a second one forces the end, and a thread ends a
process that hangs. The exit code says which it was."""

import signal
from collections.abc import Callable

import anyio
import structlog

from tailrace.engine import Supervisor
from tailrace.observe.output import Output
from tailrace.signals import LastResort, StopSignals
from tailrace.stream import Interrupt

FINISHED, FAILED, USAGE, NOT_DRAINED = 0, 1, 2, 3
"""The documented exit codes."""
CLOSING_SECONDS = 10.0  # after the grace period: for the last saves, killCursors and closing


class Shutdown:
    """The end of one service. ``stop`` is set by the first signal. ``running`` is cancelled when
    the grace period is over, or by a second signal."""

    def __init__(self, signals: StopSignals, output: Output, grace: Callable[[], float]) -> None:
        self.stop = Interrupt()
        self.running = anyio.CancelScope()
        self._done = Interrupt()
        self._signals = signals
        self._output = output
        self._grace = grace
        self._log = structlog.get_logger()

    def listen(self) -> None:
        """Installs the signal handlers again: a handler's module may have installed its own."""
        self._signals.listen()
        self.bound()

    def bound(self) -> None:
        """Ends the process after a stop even if something hangs, such as a handler that swallows
        its cancellation, or the event loop. Call it again if the grace period may have changed."""
        longest = self._grace() + CLOSING_SECONDS
        self._signals.last_resort = LastResort(longest, CLOSING_SECONDS / 5, self._leave)

    async def handle_signals(self, reload: Callable[[], None]) -> None:
        """Applies each signal until :meth:`finish`. ``reload`` is called for a hang-up."""
        seen = hang_ups = 0
        with self._done.interrupts():
            while True:
                for number in self._signals.received[seen:]:
                    seen += 1
                    self._apply(number)
                if self._signals.hang_ups > hang_ups:
                    hang_ups = self._signals.hang_ups
                    reload()
                await self._signals.wait()

    def finish(self) -> None:
        """No signal has an effect any more."""
        self._done.set()

    def exit_code(self, supervisor: Supervisor) -> int:
        """The exit code, which the log explains."""
        if self.running.cancelled_caught:
            self._log.error("service.not_drained", grace_seconds=self._grace())
            return NOT_DRAINED
        halted = supervisor.halted
        if halted and not self.stop.is_set:
            self._log.error(
                "service.failed",
                halted=halted,
                restart_helps=supervisor.fenced,
                exit_code=FAILED,
            )
            return FAILED
        if unsaved := supervisor.unsaved:
            self._log.error(
                "service.not_saved",
                scopes=unsaved,
                consequence="what was handled since the last save will come again",
                exit_code=NOT_DRAINED,
            )
            return NOT_DRAINED
        self._log.info("service.stopped", halted=halted)
        return FINISHED

    def _apply(self, number: signal.Signals) -> None:
        grace = self._grace()
        if not self.stop.is_set:
            self._log.info("service.stopping", signal=number.name, grace_seconds=grace)
            self.stop.set()
            self.running.deadline = anyio.current_time() + grace
        elif self._signals.forces(number):
            self._log.warning("service.forced", signal=number.name)
            self.running.cancel()

    def _leave(self) -> None:
        """Ends the process at once. Called from another thread if the process hangs."""
        self._log.error("service.not_drained", reason="something hangs: the process exits")
        self._output.leave(NOT_DRAINED)
