"""A daemon is killed at any step of landing: the lake has each event exactly once."""

import json
import os
import subprocess
import sys
from pathlib import Path

import bson

from tests.faults.lander import BATCH
from tests.lake import footer, rows
from tests.lake import landed as with_rows


def test_a_landing_that_is_killed_at_any_step_lands_once(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    ended = subprocess.run(
        [sys.executable, "-m", "tests.faults.lander", str(lake)],
        stdout=subprocess.PIPE,
        check=True,
        timeout=300,
    )
    killed = json.loads(ended.stdout.splitlines()[-1])
    assert len(killed) > 25, "so many steps has a landing"
    assert killed == [True] * (len(killed) - 1) + [False]
    landed = [bson.decode(row["document_key"])["_id"] for row in rows(lake, "orders")]
    assert landed == list(range(len(landed)))
    # Children that were killed after the link have landed too, and nothing was landed twice.
    assert BATCH < len(landed) < BATCH * len(killed)
    sizes = [footer(path).rows for path in with_rows(lake, "orders")]
    assert sizes == [BATCH] * (len(landed) // BATCH)
    drafts = [name for name in os.listdir(lake / "orders") if name.endswith(".draft")]
    assert drafts == [], "the next one removes them"
