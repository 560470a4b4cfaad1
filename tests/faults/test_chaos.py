"""A short run of the chaos suite; ``make chaos`` is the long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.chaos.campaign import run

pytestmark = pytest.mark.integration

KILLS, WRITERS, SEED = 5, 8, 4


def test_nothing_is_lost_or_reordered_by_kills_among_other_faults(tmp_path: Path) -> None:
    """Which faults, the seed decides; what could not be run is said in the table."""
    report = run(tmp_path, kills=KILLS, writers=WRITERS, seed=SEED, tell=print)
    print(report)
    assert report.good, str(report)
    assert report.kills >= KILLS
    assert report.written == report.findings.changes
    assert report.positions
