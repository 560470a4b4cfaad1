"""The simulation finds nothing in some hundred runs, and the same seed is always the same run."""

import os
import subprocess
import sys

from tests.simulation.run import simulate

SEEDS = 200


def simulation(*arguments: object, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    """``python -m tests.simulation``, as a person runs it."""
    command = [sys.executable, "-m", "tests.simulation", *map(str, arguments)]
    environment = {
        **os.environ,
        "PYTHONHASHSEED": hash_seed,
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
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
    assert first.steps > 500
