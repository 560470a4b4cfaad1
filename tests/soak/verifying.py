"""``tailrace verify``, one after the other."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from tests.background import in_background
from tests.soak.plan import SoakPlan
from tests.soak.system import SCOPE, SoakSystem

_PAUSE_SECONDS = 1.0
_LOOK_SECONDS = 0.5
DIFFERENCES = ("different", "missing", "too_many")
_RESULTS = ("compared", "equal", *DIFFERENCES, "in_flux", "set_aside")


class SoakVerifications:
    """A thread that verifies the handlers with rows; differences are written to a file."""

    def __init__(self, system: SoakSystem, plan: SoakPlan, directory: Path) -> None:
        self.exit_codes = Counter[int]()
        self.states = Counter[str]()
        """How those ended that had a result."""
        self.results = Counter[str]()
        self.reasons = Counter[str]()
        """Why nothing was compared to the end."""
        self._system = system
        self._rate = plan.rate
        self._directory = directory
        self._over = threading.Event()

    def going_on(self) -> AbstractContextManager[None]:
        return in_background(self._verify, self._over, "verifications")

    def told(self) -> dict[str, Any]:
        """For ``result.json``."""
        return {
            "verifications": dict(self.exit_codes),
            "ended": dict(self.states),
            "compared": dict(self.results),
            "reasons": dict(self.reasons),
        }

    def once(self, *options: str, until: threading.Event | None = None) -> None:
        """Verifies once, unless it lasts longer than ``until``."""
        over = until or threading.Event()
        with self._system.run.begun("verify", SCOPE, "--json", *options) as command:
            while command.poll() is None:
                if over.wait(_LOOK_SECONDS):
                    return
            output, errors = command.communicate()
        code = int(command.returncode or 0)
        self.exit_codes[code] += 1
        if code not in (0, 1):
            self.reasons[(errors.strip().splitlines() or ["no message"])[-1][:300]] += 1
            output = self._outcome(over)
        if output:
            self._count(json.loads(output))

    def _verify(self) -> None:
        while not self._over.wait(_PAUSE_SECONDS):
            self.once("--documents-per-second", str(self._rate), until=self._over)

    def _outcome(self, over: threading.Event) -> str:
        """The result of one that goes on after the service was restarted, if it goes on."""
        was_running = False
        while not over.wait(_LOOK_SECONDS):
            answer = self._system.run.get(f"/scopes/{SCOPE}/verify")[1]
            verification = json.loads(answer)["verification"] if answer.startswith("{") else None
            if verification is not None and verification["state"] not in ("running", "paused"):
                return json.dumps(verification) if was_running else ""
            was_running = was_running or verification is not None
        return ""

    def _count(self, result: Mapping[str, Any]) -> None:
        self.states[result["state"]] += 1
        self.results.update({name: result[name] for name in _RESULTS})
        if any(result[kind] for kind in DIFFERENCES):
            path = self._directory / f"differences-{sum(self.states.values())}.json"
            path.write_text(json.dumps(result, indent=1))
