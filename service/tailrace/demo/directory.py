"""The demo's directory: what lies where, and whose it is."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tailrace.errors import ConfigurationError, Problem

_MARKER = ".tailrace-demo"


@dataclass(frozen=True, slots=True)
class Layout:
    """The files of one demo. The service runs in ``root``, so its ``data/`` is ours."""

    root: Path

    @property
    def data(self) -> Path:
        """What the service writes: events and checkpoints."""
        return self.root / "data"

    @property
    def events(self) -> Path:
        """Every event, one a line: the ``audit`` handler of the shipped configuration."""
        return self.data / "events.jsonl"

    @property
    def server(self) -> Path:
        """The embedded server's storage."""
        return self.root / "server"

    @property
    def server_log(self) -> Path:
        """What the embedded server printed."""
        return self.root / "server.log"

    @property
    def service_log(self) -> Path:
        """What the service printed."""
        return self.root / "service.log"

    @property
    def tables(self) -> Path:
        """The Delta tables, as the shipped configuration has them."""
        return self.data / "tables"

    @property
    def pipeline_log(self) -> Path:
        """What the pipeline and its Java printed."""
        return self.root / "pipeline.log"

    @property
    def packages_log(self) -> Path:
        """What the system's package manager printed, where something was installed."""
        return self.root / "packages.log"

    @property
    def picture(self) -> Path:
        """Events over time, and the lag."""
        return self.root / "demo.svg"


@contextmanager
def prepared(directory: Path) -> Iterator[Layout]:
    """Makes the directory, or empties that of an earlier demo; it is ours until the block ends.

    Data and positions go together: a position of data that is gone would halt the scope. Raises
    :class:`ConfigurationError` for a directory that is somebody's.
    """
    layout = Layout(directory.resolve())
    root = layout.root
    marker = root / _MARKER
    if root.exists() and not root.is_dir():
        raise ConfigurationError(Problem("--directory", f"{root} is not a directory"))
    if root.exists() and not marker.exists() and any(root.iterdir()):
        message = f"{root} is not empty, and not of an earlier demo; choose another directory"
        raise ConfigurationError(Problem("--directory", message))
    root.mkdir(parents=True, exist_ok=True)
    with marker.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            message = f"another demo is running in {root}"
            raise ConfigurationError(Problem("--directory", message)) from error
        for tree in (layout.data, layout.server):
            shutil.rmtree(tree, ignore_errors=True)
        logs = (layout.server_log, layout.service_log, layout.pipeline_log, layout.packages_log)
        for file in (*logs, layout.picture):
            file.unlink(missing_ok=True)
        layout.data.mkdir()
        yield layout
