"""What became of an order, in words and for scripts: its effect, or that it is stored."""

from collections.abc import Mapping
from typing import Any

from tailrace.control.orders import Given
from tailrace.control.spans import owner_of
from tailrace.engine import Watcher, WatcherState


def progress(given: Given, *, done: bool) -> Mapping[str, Any]:
    """For scripts: ``/status`` shows the generation that has its effect."""
    return {"generation": given.order.number, "effective": done}


def effect(watcher: Watcher, given: Given, word: str, state: WatcherState, *, done: bool) -> str:
    """What became of an order."""
    name = f"scope {watcher.name!r}"
    if given.repeated and done:
        return f"{name} is {word} already" if word == "paused" else f"{name} was not paused"
    match state:
        case WatcherState.STANDBY:
            who = owner_of(watcher)
            if who == "":
                return f"{name}: stored; no process follows it now, and the next one obeys"
            return f"{name}: stored; {who or 'the process that follows it'} obeys within a second"
        case WatcherState.HALTED if not done:
            return f"{name}: stored; it is halted, and obeys when it is restarted"
    if not done:
        why = watcher.status.explanation or "running handler calls end first"
        return f"{name}: stored; it is {state.value} and is {word} after that: {why}"
    return f"{name} is {word}"
