"""A Docker engine for the tests, with a socket, data and processes of its own.

It has no network of its own, because containers share the machine's network. So it needs neither a
bridge nor iptables, and leaves nothing behind.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

from tests.daemon import until
from tests.machine import CheckFailed, run


class Engine:
    """The engine, which runs inside ``with Engine(directory)``."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._socket = directory / "docker.sock"
        self._process: subprocess.Popen[bytes] | None = None
        # The docker command of the same package: a newer one needs a builder that is missing here.
        beside = Path(shutil.which("dockerd") or "/usr/sbin/dockerd").parent.parent / "bin/docker"
        self._docker = str(beside) if beside.exists() else "docker"

    def __enter__(self) -> Engine:
        self._directory.mkdir(parents=True, exist_ok=True)
        log = self._directory / "log"
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [
                    *("dockerd", "--host", f"unix://{self._socket}"),
                    *("--data-root", str(self._directory / "data")),
                    *("--exec-root", str(self._directory / "exec")),
                    *("--pidfile", str(self._directory / "pid")),
                    *("--iptables=false", "--ip6tables=false", "--bridge=none"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # on Ctrl-C, containers must stop first
            )
        try:
            until(self._answers, "the engine's start", 60)
        except BaseException as error:
            self._end()
            raise CheckFailed(f"the engine does not start:\n{log.read_text()[-3000:]}") from error
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if containers := self.docker("ps", "--all", "--quiet").split():
                self.docker("rm", "--force", "--volumes", *containers)
        finally:
            self._end()

    def docker(self, *arguments: str, seconds: float = 600) -> str:
        """Runs a docker command, which must succeed; returns its output."""
        command = [self._docker, "--host", f"unix://{self._socket}", *arguments]
        return run(command, seconds=seconds, env={**os.environ, "DOCKER_BUILDKIT": "1"})

    def logs(self, name: str) -> str:
        """The output of a container on both streams."""
        command = [self._docker, "--host", f"unix://{self._socket}", "logs", name]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True
        )
        return done.stdout

    def inspect(self, name: str) -> dict[str, Any]:
        """What the engine reports of a container, an image or a volume."""
        found: list[dict[str, Any]] = json.loads(self.docker("inspect", name))
        return found[0]

    def import_tree(self, root: Path, tag: str) -> None:
        """Creates an image from a directory tree."""
        tar = f"tar --directory {root} --create --one-file-system ."
        run(["sh", "-c", f"{tar} | {self._docker} --host unix://{self._socket} import - {tag}"])

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise CheckFailed("it ended")
        try:
            self.docker("version", seconds=10)
        except CheckFailed:
            return False
        return True

    def _end(self) -> None:
        """Stops the engine, removes its mounts, and then all its files."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        for mounted in reversed(_mounts_below(self._directory)):
            run(["umount", "--lazy", mounted])
        shutil.rmtree(self._directory)


def _mounts_below(directory: Path) -> list[str]:
    lines = Path("/proc/self/mounts").read_text().splitlines()
    points = [line.split(" ")[1] for line in lines]
    return [point for point in points if Path(point).is_relative_to(directory)]
