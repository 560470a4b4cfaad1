"""One run: the changes, the faults, and the result, which ``report`` reads."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.daemon import until
from tests.soak.plan import SoakPlan
from tests.soak.sampling import SoakSampler
from tests.soak.schedule import FLAPPING, PlannedAction, in_order, planned_actions
from tests.soak.system import SCOPE, SoakSystem, soak_system
from tests.soak.verifying import SoakVerifications
from tests.soak.writing import BalancedChanges

_CATCH_UP_SECONDS = 300.0
_COPY_SECONDS = 600.0
_LONGEST_PAUSE = 2.0


@dataclass(frozen=True, slots=True)
class SoakHappening:
    """What was done, how it went, and in which state the scope was before."""

    seconds: float
    what: str
    outcome: str
    state: str | None


@dataclass
class SoakRun:
    """What happens in a run, and what is told of it. ``interrupted`` ends what is planned; once
    more, also the comparison at the end."""

    plan: SoakPlan
    directory: Path
    happenings: list[SoakHappening] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    interrupted: threading.Event = field(default_factory=threading.Event)
    _begin: float = field(default_factory=time.monotonic)

    def run(self) -> None:
        """Runs to the end or to an interrupt, and writes ``result.json``."""
        with soak_system(self.directory) as system:
            changes = BalancedChanges(system.server, self.plan)
            verifications = SoakVerifications(system, self.plan, self.directory)
            changes.fill()
            system.run.start()
            until(lambda: system.run.snapshot_state(SCOPE) == "done", "the copy", _COPY_SECONDS)
            self._begin = time.monotonic()
            sampler = SoakSampler(system, self.directory, self.plan.sample_every, self._begin)
            self._tell(system, "begin", "the documents are copied")
            with sampler.going_on(), verifications.going_on(), changes.going_on():
                self._act(system)
            seconds = time.monotonic() - self._begin
            system.copies[FLAPPING].start()
            unequal = self._compared(system, verifications)
            result = {
                "hours": self.plan.hours,
                "rate": self.plan.rate,
                "seconds": seconds,
                "written": changes.written,
                "failed_rounds": changes.failed_rounds,
                "unequal": unequal,
                **system.told(),
                **verifications.told(),
                "sampling_errors": sampler.errors,
            }
            self._stop(system)
        self._write(result)

    def _act(self, system: SoakSystem) -> None:
        for seconds, action in in_order(planned_actions(system, self.plan), self.plan.seconds):
            self._wait(system, seconds)
            if self.interrupted.is_set():
                break
            self._do(system, action)
        self._wait(system, self.plan.seconds)
        if self.interrupted.is_set():
            self._tell(system, "interrupt", "")
            self.interrupted.clear()

    def _compared(
        self, system: SoakSystem, verifications: SoakVerifications
    ) -> dict[str, list[str]]:
        """What is unequal at the end; less is known of it after an interrupt."""
        unequal = system.caught_up(_CATCH_UP_SECONDS, self.interrupted)
        verifications.once(until=self.interrupted)
        if self.interrupted.is_set():
            self._tell(system, "interrupt", "of the comparison at the end")
            self.failures.append("interrupted before the end of the last verification")
        return unequal

    def _do(self, system: SoakSystem, action: PlannedAction) -> None:
        act = next(action.acts)
        try:
            outcome = str(act() or "")
        except Exception as error:  # noqa: BLE001 - a finding; the run goes on
            outcome = f"failed: {error!r}"
            self.failures.append(f"{action.what}, {self._seconds():.0f} s: {error!r}")
        self._tell(system, action.what, outcome)

    def _wait(self, system: SoakSystem, seconds: float) -> None:
        while (rest := seconds - self._seconds()) > 0:
            if self.interrupted.wait(min(rest, _LONGEST_PAUSE)):
                return
            assert system.run.process is not None
            if (code := system.run.process.poll()) is not None:
                self.failures.append(f"{self._seconds():.0f} s: the service ended with {code}")
                system.run.start(ready=False)

    def _stop(self, system: SoakSystem) -> None:
        if code := system.run.stop():
            self.failures.append(f"the last stop: exit code {code}")
        tracebacks = system.run.log.count("Traceback (most recent call last)")
        if tracebacks:
            self.failures.append(f"{tracebacks} tracebacks in the log of the service")

    def _tell(self, system: SoakSystem, what: str, outcome: str) -> None:
        happening = SoakHappening(
            round(self._seconds(), 1), what, outcome, system.run.status(SCOPE).get("state")
        )
        self.happenings.append(happening)
        print(f"{happening.seconds:8.1f} s  {what}: {outcome} ({happening.state})", flush=True)

    def _seconds(self) -> float:
        return time.monotonic() - self._begin

    def _write(self, result: Mapping[str, Any]) -> None:
        told = {
            **result,
            "happenings": [asdict(happening) for happening in self.happenings],
            "failures": self.failures,
        }
        (self.directory / "result.json").write_text(json.dumps(told, indent=1) + "\n")
