"""``python -m tests.simulation``: runs many seeds and says what they covered, or one seed alone."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator

from tests.simulation.coverage import absent, table
from tests.simulation.run import Result, simulate

_HASH_SEED = "0"
"""Some lanes are chosen by Python's hash of a key: one value for all runs."""
_ENOUGH = 300
"""So many runs cover everything that is required."""
_REPORTED = 50
"""After so many runs there is a line about how far they are."""


def main() -> int:
    """Returns 1 if a run has failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many seeds (%(default)s)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (%(default)s)")
    parser.add_argument("--seed", type=int, help="run this one alone, and print what it logged")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at once")
    arguments = parser.parse_args()
    if arguments.seed is not None:
        return _one(arguments.seed)
    return _many(range(arguments.first, arguments.first + arguments.seeds), arguments.jobs)


def _one(seed: int) -> int:
    result = simulate(seed)
    for log in result.logs:
        fields = {n: value for n, value in log.items() if n not in ("event", "traceback", "after")}
        print(f"{log['after']:9.3f}", log["event"], fields)
    print(*table(result.covered), sep="\n")
    print(_line(result))
    return 1 if result.failure else 0


def _many(seeds: range, jobs: int) -> int:
    covered, failed, began = Counter[str](), 0, time.monotonic()
    for done, result in enumerate(_results(seeds, jobs), 1):
        if done % _REPORTED == 0:
            print(f"{done} of {len(seeds)} seeds, {failed} failed", file=sys.stderr, flush=True)
        covered.update(result.covered)
        if result.failure:
            failed += 1
            print(_line(result), flush=True)
    print(*table(covered), sep="\n")
    seconds = time.monotonic() - began
    print(f"{len(seeds)} seeds in {seconds:.0f} s, {failed} failed")
    missing = absent(covered) if len(seeds) >= _ENOUGH else []
    if missing:
        print(f"not covered: {', '.join(missing)}")
    return 1 if failed or missing else 0


def _results(seeds: range, jobs: int) -> Iterator[Result]:
    if jobs == 1:
        yield from map(_brief, seeds)
        return
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        yield from pool.imap_unordered(_brief, seeds, chunksize=4)


def _brief(seed: int) -> Result:
    """Without the log, which would have to go from one process to another."""
    result = simulate(seed)
    result.logs = ()
    return result


def _line(result: Result) -> str:
    outcome = f"FAILED: {result.failure}" if result.failure else "passed"
    again = f"python -m tests.simulation --seed {result.seed}"
    return f"seed {result.seed} ({again}): {outcome}"


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != _HASH_SEED:
        os.environ["PYTHONHASHSEED"] = _HASH_SEED
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])
    raise SystemExit(main())
