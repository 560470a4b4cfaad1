"""A server of Spark Connect as a process group, which is killed as a whole."""

import os
import signal
import socket
import subprocess
from pathlib import Path

import pyspark

from tailrace.pipeline import class_archive
from tests.checkout import ROOT
from tests.daemon import until
from tests.machine import free_port
from tests.pipeline import early_connection
from tests.pipeline.conftest import SETTINGS

LONG = 1800.0
"""A time limit in seconds that no machine reaches."""


class ConnectServer:
    """Listens on loopback only. Its content is that of its clients' sessions."""

    def __init__(self, directory: Path, class_path: str) -> None:
        self.environment = {
            **os.environ,
            "SPARK_LOCAL_IP": "127.0.0.1",
            # The first Java only makes the command line of the second one.
            "JDK_JAVA_OPTIONS": " ".join(["-XX:TieredStopAtLevel=1", *class_archive.options()]),
            # After Spark's own jars, or Java would refuse the archive of their classes.
            "SPARK_DIST_CLASSPATH": class_path,
            "PYSPARK_PYTHON": str(early_connection.python(directory)),
            "PYTHONPATH": os.pathsep.join([str(ROOT / "service"), str(ROOT)]),
        }
        self._directory = directory
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"sc://127.0.0.1:{self._port}"

    @property
    def log(self) -> str:
        return (self._directory / "server.log").read_text()

    def start(self) -> None:
        """Starts it unless it runs; returns when it answers."""
        if self._process is not None:
            return
        self._port = free_port()
        settings = {
            **SETTINGS,
            "spark.ui.enabled": "false",
            "spark.log.level": "WARN",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self._port),
        }
        options = [f"--conf={name}={value}" for name, value in settings.items()]
        submit = str(Path(pyspark.__path__[0], "bin", "spark-submit"))
        server = "org.apache.spark.sql.connect.service.SparkConnectServer"
        with open(self._directory / "server.log", "ab") as log:
            self._process = subprocess.Popen(
                [submit, "--master=local[2]", *options, f"--class={server}"],
                cwd=self._directory,
                env=self.environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        until(self._answers, "the start of Spark Connect", LONG)

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self._port)) == 0

    def kill(self) -> None:
        """Sends SIGKILL to Java and to its Python processes."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
