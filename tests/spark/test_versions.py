"""The oldest Spark that the pipeline runs with, and delta-spark, which has no jar for the newest.

``make test`` installs that Spark beside its environment. A process of its own runs tests of
``tests/pipeline`` with it.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.pipeline.prerequisites import OLDEST_SPARK
from tests.checkout import ROOT
from tests.spark.fetched_jars import fetched

OLDEST = ".".join(map(str, OLDEST_SPARK))
SPARK = Path(sys.prefix) / f"spark-{OLDEST}"

TESTS = ("test_semantics.py", "test_killed_streams.py", "delta_spark.py")


@pytest.fixture(scope="module")
def delta_jars() -> str:
    """The jars of delta-spark for the oldest Spark; Maven fetches them once per user."""
    return ",".join(map(str, fetched("delta-jars")))


def test_the_oldest_spark_makes_the_same_tables_and_streams_and_delta_spark_reads_them(
    java: None, delta_jars: str, tmp_path: Path
) -> None:
    if not SPARK.is_dir():
        pytest.skip(f"needs pyspark {OLDEST} in {SPARK}: run make test")
    environment = {
        **{name: value for name, value in os.environ.items() if "PYTEST" not in name},
        "PYTHONPATH": os.pathsep.join([str(SPARK), str(ROOT / "service"), str(ROOT)]),
        "TAILRACE_TESTS_JARS": delta_jars,
    }
    version = [sys.executable, "-c", "import pyspark; print(pyspark.__version__)"]
    found = subprocess.run(version, env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.startswith(f"{OLDEST}.")
    tests = [str(ROOT / "tests" / "pipeline" / each) for each in TESTS]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--durations=9",
        *tests,
    ]
    done = subprocess.run(
        [*command, f"--basetemp={tmp_path / 'tests'}"],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
