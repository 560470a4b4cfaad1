"""The simulation finds nothing in some hundred runs, and it finds faults that are put in."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tailrace.event import ChangeEvent
from tailrace.event.reply import Reply
from tailrace.model import Checkpoint
from tailrace.stores.memory import MemoryCheckpoints
from tests.simulation.ledger import Ledger
from tests.simulation.run import simulate
from tests.simulation.source import SimulatedCursor

SEEDS = 60
_TRIED = 100
"""A fault that is put in is found in one of so many runs."""


def simulation(*arguments: object) -> subprocess.CompletedProcess[str]:
    """``python -m tests.simulation``, as a person runs it."""
    command = [sys.executable, "-m", "tests.simulation", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def test_no_run_breaks_a_promise() -> None:
    """``make simulate SEEDS=10000`` makes many more."""
    run = simulation("--seeds", SEEDS, "--jobs", 2)
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"{SEEDS} seeds" in run.stdout


def test_a_seed_is_always_the_same_run() -> None:
    first, second = simulate(3), simulate(3)
    assert first.digest == second.digest
    assert first.covered == second.covered
    assert first.covered["changes"] > 0


def loses_an_event(patch: pytest.MonkeyPatch) -> None:
    """Stands for a stream that resumes too late: the first event of longer replies is missing."""
    read = SimulatedCursor.next_batch

    async def next_batch(
        self: SimulatedCursor, await_ms: int | None = None, most: int | None = None
    ) -> Reply:
        reply = await read(self, await_ms, most)
        if len(reply.bounds) > 4:
            return replace(reply, bounds=reply.bounds[2:], survey=None)
        return reply

    patch.setattr(SimulatedCursor, "next_batch", next_batch)


def forgets_a_save(patch: pytest.MonkeyPatch) -> None:
    """Stands for a stop that does not save what is handled: a save in five is lost."""
    save, saves = MemoryCheckpoints.save, [0]

    async def saved(self: MemoryCheckpoints, checkpoint: Checkpoint) -> None:
        saves[0] += 1
        if saves[0] % 5:
            await save(self, checkpoint)

    patch.setattr(MemoryCheckpoints, "save", saved)


def turns_round(patch: pytest.MonkeyPatch) -> None:
    """Stands for lanes that mix up the order: the events of a call come in the other order."""
    apply = Ledger.apply

    def applied(self: Ledger, events: Sequence[ChangeEvent]) -> None:
        apply(self, events[::-1])

    patch.setattr(Ledger, "apply", applied)


FAULTS: list[tuple[Callable[[Any], None], str]] = [
    (loses_an_event, "lacks"),
    (forgets_a_save, "again, which it had answered"),
    (turns_round, "before"),
]


@pytest.mark.parametrize(("fault", "says"), FAULTS, ids=[each.__name__ for each, _ in FAULTS])
def test_a_fault_is_found(
    fault: Callable[[Any], None], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    assert any(says in simulate(seed).failure for seed in range(_TRIED))
