"""The image in a real Docker engine, by the same script as `make image-check`."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.image_check import SECONDS, why_no_engine

pytestmark = pytest.mark.integration

TARGETS = ("destinations", "lake")
"""`make image-check` also builds `pipeline`, whose Spark takes two minutes of CPU."""


@pytest.mark.skipif(bool(why_no_engine()), reason=why_no_engine())
def test_the_image_does_what_it_promises_in_a_real_engine() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.deploy.image_check", *TARGETS],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS + 1800 * len(TARGETS) + 120,  # it stops and cleans up before that
        check=False,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout
    assert "all held" in done.stdout
