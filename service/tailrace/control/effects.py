"""What became of an order, in words and for scripts: its effect, or that it is stored."""

from collections.abc import Mapping
from typing import Any

from tailrace.control.follower import owner_of
from tailrace.control.orders import Given
from tailrace.control.subject import Effect, Subject
from tailrace.engine import WatcherState


def progress(given: Given, effect: Effect) -> Mapping[str, Any]:
    """For scripts: ``/status`` shows the generation that has its effect."""
    state = effect.status.state.value
    return {"state": state, "generation": given.order.number, "effective": effect.done}


def told(subject: Subject, given: Given, word: str, effect: Effect) -> str:
    """What became of an order."""
    if given.repeated and effect.done:
        return f"{subject} is {word} already" if word == "paused" else f"{subject} was not paused"
    if effect.done:
        return f"{subject} is {word}"
    state = effect.status.state
    match state:
        case WatcherState.STANDBY:
            who = owner_of(subject.watcher)
            if who == "":
                return f"{subject}: stored; no process follows it now, and the next one obeys"
            return (
                f"{subject}: stored; {who or 'the process that follows it'} obeys within a second"
            )
        case WatcherState.HALTED:
            return f"{subject}: stored; {effect.who} is halted, and obeys when it is restarted"
    why = effect.status.explanation or "running handler calls end first"
    return f"{subject}: stored; {effect.who} is {state.value} and is {word} after that: {why}"
