"""``python -m tests.faults.chaos``: a long campaign, as tables. Exits 1 on any complaint."""

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tests.faults.chaos.campaign import run


def main() -> int:
    """Runs the campaign that the arguments describe."""
    parser = argparse.ArgumentParser(prog="tests.faults.chaos", description=__doc__)
    parser.add_argument("--rounds", type=int, default=50, help="how often the service is ended")
    parser.add_argument("--writers", type=int, default=8, help="threads that write meanwhile")
    parser.add_argument("--seed", type=int, default=None, help="draws the same faults again")
    options = parser.parse_args()
    seed = random.randrange(10**6) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="tailrace-chaos-") as directory:
        try:
            report = run(
                Path(directory),
                rounds=options.rounds,
                writers=options.writers,
                seed=seed,
                tell=lambda line: print(line, flush=True),
            )
        except AssertionError as error:
            print(f"FAILED, seed {seed}: {error}", *getattr(error, "__notes__", ()), sep="\n")
            return 1
    print(f"\n{report}")
    return 0 if report.good else 1


if __name__ == "__main__":
    sys.exit(main())
