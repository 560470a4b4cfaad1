"""Which process follows a scope: some actions need that one."""

from tailrace.control.outcome import ActionRefused, elsewhere
from tailrace.engine import Handler, Watcher, WatcherState
from tailrace.verify.verifications import Verifications


def owner_of(watcher: Watcher) -> str | None:
    """The process that follows the scope; empty if none does, ``None`` if that is not known."""
    lease = watcher.status.lease()
    return lease.owner if lease is not None else None


def require_here(watcher: Watcher) -> None:
    """Refuses what only the process that follows the scope can do."""
    if watcher.status.state is WatcherState.STANDBY:
        raise elsewhere(watcher.name, owner_of(watcher), watcher.status.reason)


def require_followed(watcher: Watcher) -> None:
    """Refuses what needs the epoch in which this process follows the scope."""
    if not watcher.claim.epoch:
        raise starting(watcher, 409)


def require_loaded(watcher: Watcher) -> None:
    """Refuses what is told by what is stored of the scope, until that is read: nothing is known is
    not the same as there is nothing."""
    if not watcher.scope.desired.is_loaded:
        raise starting(watcher, 503)


def require_adopted(watcher: Watcher, verifications: Verifications) -> None:
    """Refuses what is told by the stored verifications of the scope, until they are read."""
    require_followed(watcher)
    if not verifications.has_adopted(watcher):
        message = f"scope {watcher.name!r}: its stored verifications are not read yet"
        raise ActionRefused(503, f"{message}: try again in a while")


def starting(watcher: Watcher, status: int) -> ActionRefused:
    """The refusal of what a scope can do once it is followed."""
    message = f"scope {watcher.name!r} is starting: try again when it is followed"
    return ActionRefused(status, message)


def replay_refusal(handler: Handler) -> str:
    """Why no change can be handed to this handler again; empty if one can."""
    if handler.position is None:
        return ""
    return (
        "this handler stores its own position, which an earlier change would set back: take a "
        "snapshot of the documents instead ('tailrace snapshot start')"
    )


def require_replayable(watcher: Watcher, handler: Handler) -> None:
    """Raises :class:`ActionRefused` for a handler that no change can be handed to a second time."""
    if reason := replay_refusal(handler):
        raise ActionRefused(409, f"handler {handler.name!r}: {reason}")
    if handler.commit is not None and watcher.runs(handler.name):
        message = f"handler {handler.name!r} commits these with what the scope gave it"
        raise ActionRefused(409, f"{message}: pause the scope, replay, and resume it")
