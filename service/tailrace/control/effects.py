"""What became of a change, in words and for scripts: its effect, or that it is stored."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tailrace.control.desired_state import StoredState
from tailrace.control.follower import owner_of
from tailrace.control.subject import Effect, Subject
from tailrace.engine import WatcherState


@dataclass(frozen=True, slots=True)
class ApplyOutcome:
    """A change of what is wanted of ``subject``, and its effect."""

    subject: Subject
    stored: StoredState
    effect: Effect

    @property
    def done(self) -> bool:
        """Whether it is applied everywhere."""
        return self.effect.done

    @property
    def progress(self) -> Mapping[str, Any]:
        """For scripts: ``/status`` shows the generation that has its effect."""
        generation, state = self.stored.desired.generation, self.effect.status.state.value
        return {"state": state, "generation": generation, "effective": self.effect.done}

    def told(self, word: str, effect: str = "") -> str:
        """What became of it; ``word``: what the subject is when it has its ``effect``."""
        return f"{self._told(word)}: {effect}" if effect else self._told(word)

    def _told(self, word: str) -> str:
        subject, effect = self.subject, self.effect
        if self.stored.repeated and effect.done:
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
                    return f"{subject}: stored; applies when a process follows the scope"
                owner = who or "the process that follows it"
                return f"{subject}: stored; {owner} applies it within a second"
            case WatcherState.HALTED:
                return f"{subject}: stored; {effect.who} is halted: applies when it is restarted"
        why = effect.status.explanation or "running handler calls end first"
        return f"{subject}: stored; {effect.who} is {state.value} and is {word} after that: {why}"
