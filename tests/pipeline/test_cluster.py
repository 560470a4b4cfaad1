"""Spark's standalone cluster: a master and two workers as processes, lake and tables in S3."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from tests.daemon import until
from tests.machine import free_port
from tests.pipeline.conftest import SETTINGS
from tests.pipeline.pipeline import Pipeline
from tests.pipeline.workload import Workload

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class Cluster:
    """Each worker has one core; their executors inherit this environment, and import Tailrace."""

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        self.directory = directory
        self.master = f"spark://127.0.0.1:{free_port()}"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._environment = environment
        port = self.master.rpartition(":")[2]
        self._start("master.Master", "--port", port)
        for at in (0, 1):
            place = directory / f"worker{at}"
            self._start("worker.Worker", "--cores", "1", "--memory", "700m",
                        "--work-dir", str(place), self.master)  # fmt: skip

    def _start(self, name: str, *options: str) -> None:
        home = Path(next(iter(pyspark.__path__)))
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}"]
        command += ["--host", "127.0.0.1", "--webui-port", str(free_port()), *options]
        with open(self.directory / f"{name}.log", "ab") as log:
            self._processes.append(
                subprocess.Popen(
                    command, stdout=log, stderr=log, env=self._environment, start_new_session=True
                )
            )

    def executors(self) -> list[Path]:
        """The directories of executors that have written something."""
        found = self.directory.glob("worker*/app-*/*/stderr")
        return [path.parent for path in found if path.stat().st_size]

    def kill_worker(self) -> None:
        """SIGKILL: its executor ends with it."""
        os.killpg(self._processes[-1].pid, signal.SIGKILL)

    def stop(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def cluster(stored: Pipeline, tmp_path: Path) -> Iterator[Cluster]:
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "JDK_JAVA_OPTIONS": QUICK}
    made = Cluster(tmp_path, {**environment, "SPARK_NO_DAEMONIZE": "1"})
    yield made
    made.stop()


def test_a_worker_that_is_killed_in_the_middle_changes_nothing(
    cluster: Cluster, stored: Pipeline, tmp_path: Path
) -> None:
    """The tasks of the lost worker run again on the other; each file of the tables counts once."""
    work = Workload(stored)
    for _ in range(3):
        work.land()
    document = {
        "pipeline": {
            "lake": stored.lake,
            "tables": stored.tables,
            "master": cluster.master,
            "batch_events": 4,
            "driver_memory": "600m",
            "spark": {**SETTINGS, "spark.executor.memory": "512m"},
        }
    }
    path = tmp_path / "config.yaml"
    path.write_text(json.dumps(document))
    command = [sys.executable, "-m", "tailrace", "pipeline", "--once", "--config", str(path)]
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:

        def committed() -> bool:
            assert process.poll() is None, (tmp_path / "log").read_text()
            return "batch.committed" in (tmp_path / "log").read_text()

        until(committed, "the first batch", 300)
        assert cluster.executors()
        cluster.kill_worker()
        assert process.wait(300) == 0, (tmp_path / "log").read_text()
    finally:
        process.kill()
        process.wait()
    assert "Traceback" not in (tmp_path / "log").read_text()
    work.check()
