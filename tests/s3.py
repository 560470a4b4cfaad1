"""An S3 server as a process of its own: moto's, which honours conditions on writes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

from tests.daemon import until

_RUNNING = re.compile(r"Running on http://([\d.]+:\d+)")

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "tests",
    "AWS_SECRET_ACCESS_KEY": "tests",
    "AWS_REGION": "us-east-1",
}


class S3:
    """A server without any buckets but ``lake``; what it holds is gone with it.

    Another server can stand in: ``TAILRACE_TEST_S3=http://host:port`` with a bucket ``lake``, and
    the credentials in the environment.
    """

    def __init__(self, directory: Path) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self.endpoint = os.environ.get("TAILRACE_TEST_S3", "")
        if not self.endpoint:
            self.endpoint = self._start(directory / "moto.log")
            request = urllib.request.Request(f"{self.endpoint}/lake", method="PUT")
            urllib.request.urlopen(request, timeout=30).close()

    @property
    def environment(self) -> dict[str, str]:
        known = {name: os.environ.get(name, value) for name, value in CREDENTIALS.items()}
        own = CREDENTIALS if self._process else known
        return {**own, "AWS_ENDPOINT_URL": self.endpoint}

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(30)

    def _start(self, log: Path) -> str:
        with open(log, "wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"],
                stdout=output,
                stderr=output,
                env={**os.environ, "PYTHONWARNINGS": ""},
            )
        match = until(lambda: _RUNNING.search(log.read_text()), "the S3 server's start", 120)
        return f"http://{match[1]}"
