"""The actions. Each is done as a whole, or refused with :class:`ActionRefused`."""

from collections.abc import Callable
from dataclasses import dataclass

from tailrace.control.outcome import ActionRefused, Done
from tailrace.engine import Supervisor, Watcher, WatcherState


@dataclass(frozen=True, slots=True)
class Control:
    """The actions of one running process. ``supervisor`` follows its scopes."""

    supervisor: Supervisor

    async def restart(self, scope: str) -> Done:
        """Restarts a halted scope from its checkpoint."""
        before = self._watcher(scope).status.state.value
        if reason := self.supervisor.restart(scope):
            raise ActionRefused(409, reason)
        return Done(f"scope {scope!r} starts again", before, "starting")

    async def snapshot(
        self, scope: str, action: str, collections: tuple[str, ...], filter: str
    ) -> Done:
        """Starts, pauses, resumes or cancels a scope's snapshot."""
        watcher = self._watcher(scope)
        rows, status = watcher.plan.rows, watcher.status
        match status.state:
            case WatcherState.HALTED:
                told = f"scope {scope!r} is halted, and its snapshot with it: restart it first"
                raise ActionRefused(409, told)
            case WatcherState.STANDBY:
                told = f"scope {scope!r} is standby here: {status.reason}: ask there"
                raise ActionRefused(409, told)
            case WatcherState.STOPPED:
                raise ActionRefused(409, f"scope {scope!r} is stopped: it is not followed any more")
        calls: dict[str, Callable[[], str]] = {
            "start": lambda: rows.start(collections, filter),
            "pause": lambda: rows.pause(paused=True),
            "resume": lambda: rows.pause(paused=False),
            "cancel": rows.cancel,
        }
        seen = rows.observed()
        before = f"snapshot {seen.progress.id} {seen.progress.state.value}" if seen else "none"
        try:
            reason = calls[action]()
        except ValueError as error:
            raise ActionRefused(400, str(error)) from error
        if reason:
            raise ActionRefused(409, reason)
        return Done(f"scope {scope!r}: {action} of its snapshot is accepted", before, action)

    def _watcher(self, scope: str) -> Watcher:
        if not self.supervisor.watchers:
            raise ActionRefused(409, "the service is starting: ask again when /readyz answers 200")
        found = self.supervisor.find(scope)
        if found is None:
            names = ", ".join(each.name for each in self.supervisor.watchers)
            raise ActionRefused(404, f"there is no scope {scope!r}; there are: {names}")
        return found
