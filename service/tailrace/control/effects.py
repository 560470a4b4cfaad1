"""What became of an order, in words and for scripts: its effect, or that it is stored."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tailrace.control.follower import owner_of
from tailrace.control.orders import Given
from tailrace.control.subject import Effect, Subject
from tailrace.engine import WatcherState


@dataclass(frozen=True, slots=True)
class OrderOutcome:
    """An order that was given for ``subject``, and its effect."""

    subject: Subject
    given: Given
    effect: Effect

    @property
    def done(self) -> bool:
        """Whether everybody who is meant has obeyed."""
        return self.effect.done

    @property
    def progress(self) -> Mapping[str, Any]:
        """For scripts: ``/status`` shows the generation that has its effect."""
        generation, state = self.given.order.number, self.effect.status.state.value
        return {"state": state, "generation": generation, "effective": self.effect.done}

    def told(self, word: str, effect: str = "") -> str:
        """What became of it; ``word``: what the subject is when it has its ``effect``."""
        return f"{self._told(word)}: {effect}" if effect else self._told(word)

    def _told(self, word: str) -> str:
        subject, effect = self.subject, self.effect
        if self.given.repeated and effect.done:
            return (
                f"{subject} is paused already" if word == "paused" else f"{subject} was not paused"
            )
        if effect.done:
            return f"{subject} is {word}"
        state = effect.status.state
        match state:
            case WatcherState.STANDBY:
                who = owner_of(subject.watcher)
                if who == "":
                    return f"{subject}: stored; no process follows it now, and the next one obeys"
                owner = who or "the process that follows it"
                return f"{subject}: stored; {owner} obeys within a second"
            case WatcherState.HALTED:
                return f"{subject}: stored; {effect.who} is halted, and obeys when it is restarted"
        why = effect.status.explanation or "running handler calls end first"
        return f"{subject}: stored; {effect.who} is {state.value} and is {word} after that: {why}"
