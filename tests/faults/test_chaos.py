"""A short run of the chaos suite; ``make chaos`` is the long one."""

from pathlib import Path

from tests.faults.chaos.campaign import run

WRITERS, SEED = 3, 4
FAULTS = ("primary stepped down", "primary killed")
ROUNDS = 4


def test_a_short_chaos_run_loses_reorders_and_needlessly_repeats_nothing(tmp_path: Path) -> None:
    """The seed decides which elections end in a kill and which in a clean stop."""
    report = run(tmp_path, rounds=ROUNDS, writers=WRITERS, seed=SEED, tell=print, faults=FAULTS)
    print(report)
    assert report.good, str(report)
    assert (report.kills, report.stops) == (2, 4)
    assert report.written == report.account.changes
