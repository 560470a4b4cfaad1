"""Spark's standalone cluster: a master and two workers as processes, lake and tables in S3."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

from tailrace.errors import TablesFenced
from tailrace.pipeline import class_archive
from tailrace.pipeline.tables.delta import DeltaVersion
from tests.daemon import until
from tests.machine import free_port
from tests.pipeline.conftest import SETTINGS
from tests.pipeline.pipeline import Pipeline
from tests.pipeline.workload import Workload
from tests.s3 import CREDENTIALS
from tests.s3_proxy import S3Proxy
from tests.scratch import MakeDirectory

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
        for _ in (0, 1):
            self.start_worker()

    def start_worker(self) -> None:
        place = self.directory / f"worker{len(self._processes)}"
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

    def executors(self) -> int:
        """How many executors have written something."""
        found = self.directory.glob("worker*/app-*/*/stderr")
        return sum(path.stat().st_size > 0 for path in found)

    def kill_worker(self) -> None:
        """SIGKILL: its executor ends with it."""
        os.killpg(self._processes[-1].pid, signal.SIGKILL)

    def stop(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


_COMMAND = """
import sys
from tailrace.cli import main
from tailrace.pipeline import log_files, table_groups

log_files.ROWS = table_groups.TABLE_ROWS = 0
sys.exit(main(sys.argv[1:]))
"""
"""The command, with all batches and tables too large for its own process."""


class Driver:
    """``tailrace pipeline --once`` as a driver of the cluster, in a session of its own."""

    def __init__(self, cluster: Cluster, tables: Pipeline, directory: Path, code: str = "") -> None:
        spark = {**SETTINGS, "spark.executor.memory": "512m"}
        document = {
            "lake": tables.lake,
            "tables": tables.tables,
            "master": cluster.master,
            "batch_events": 4,
            "driver_memory": "600m",
            "parallel_collections": 1,
            "spark": spark,
        }
        directory.mkdir()
        path = directory / "config.yaml"
        path.write_text(json.dumps({"pipeline": document}))
        command = [sys.executable, "-c", code + _COMMAND]
        command += ["pipeline", "--once", "--config", str(path)]
        with open(directory / "log", "wb") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, start_new_session=True
            )
        self._log = directory / "log"

    @property
    def log(self) -> str:
        return self._log.read_text()

    def has_committed(self) -> bool:
        assert self._process.poll() is None, self.log
        return "batch.committed" in self.log

    def wait(self) -> int:
        return self._process.wait(900)

    def kill(self) -> None:
        """SIGKILL of its Python and its Java."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@pytest.fixture(scope="module")
def cluster(java: None, bucket: S3Proxy, session_directory: MakeDirectory) -> Iterator[Cluster]:
    environment = {**os.environ, **CREDENTIALS, "AWS_ENDPOINT_URL": bucket.endpoint}
    options = " ".join([QUICK, *class_archive.options()])
    environment |= {"SPARK_LOCAL_IP": "127.0.0.1", "JDK_JAVA_OPTIONS": options}
    made = Cluster(session_directory("cluster"), {**environment, "SPARK_NO_DAEMONIZE": "1"})
    yield made
    made.stop()


@pytest.fixture
def driver(cluster: Cluster, stored: Pipeline, tmp_path: Path) -> Iterator[Callable[..., Driver]]:
    """Starts drivers for ``stored``."""
    started: list[Driver] = []

    def start(code: str = "") -> Driver:
        directory = tmp_path / f"driver{len(started)}"
        started.append(Driver(cluster, stored, directory, code))
        return started[-1]

    yield start
    for each in started:
        each.kill()


_KILLED = """
import os, signal
from tailrace.pipeline.tables.delta import DeltaVersion

commit, tables = DeltaVersion.commit, []

def killed(self, *arguments, **keywords):
    done = commit(self, *arguments, **keywords)
    tables.append(self.table.name)
    if tables.count("changes") == 3 and tables[-1] != "changes":
        os.kill(os.getpid(), signal.SIGKILL)
    return done

DeltaVersion.commit = killed
"""
"""Before the command: it ends once the log and one table have the third batch."""


def test_a_lost_worker_a_killed_driver_and_two_at_once_leave_each_event_once(
    cluster: Cluster,
    stored: Pipeline,
    driver: Callable[..., Driver],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The tasks of the worker run again on the other; each file of the tables counts once.

    Of the two drivers after the killed one, this process is that which commits too late: the store
    refuses it.
    """
    work = Workload(stored)
    for _ in range(3):
        work.land()
    first = driver(_KILLED)
    until(first.has_committed, "the first batch", 600)
    assert cluster.executors() > 0
    cluster.kill_worker()
    assert first.wait() == -signal.SIGKILL, first.log
    assert "Traceback" not in first.log
    work.land()
    commit, others = DeltaVersion.commit, list[Driver]()

    def overtaken(*arguments: Any, **keywords: Any) -> Any:
        if not others:
            others.append(driver())
            assert others[0].wait() == 0, others[0].log
        return commit(*arguments, **keywords)

    refused = pytest.raises(TablesFenced, match="another pipeline writes this table")
    with monkeypatch.context() as patch, refused:
        patch.setattr(DeltaVersion, "commit", overtaken)
        stored.run(batch_events=4, parallel_collections=1)
    work.check()
