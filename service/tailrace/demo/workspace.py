"""The demo's directory: its files, its lock, and how it is emptied."""

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
    """The files of one demo. The service runs in ``root`` with the shipped configuration, whose
    paths are relative: ``data/`` holds what it and the pipeline write."""

    root: Path

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def events(self) -> Path:
        """Every event, one a line: the handler ``audit``."""
        return self.data / "events.jsonl"

    @property
    def tables(self) -> Path:
        return self.data / "tables"

    @property
    def server(self) -> Path:
        """The embedded server's storage."""
        return self.root / "server"

    @property
    def picture(self) -> Path:
        return self.root / "demo.svg"

    def log(self, name: str) -> Path:
        """What a process printed: ``server``, ``service``, ``pipeline`` or ``packages``."""
        return self.root / f"{name}.log"


@contextmanager
def prepared(directory: Path) -> Iterator[Layout]:
    """Creates the directory, or empties that of an earlier demo, and locks it.

    Data and positions are removed together: a position without its data would skip events. Raises
    :class:`ConfigurationError` for a directory that holds anything else.
    """
    layout = Layout(directory.resolve())
    root = layout.root
    marker = root / _MARKER
    if root.exists() and not root.is_dir():
        raise _refused(f"{root} is not a directory")
    if root.exists() and not marker.exists() and any(root.iterdir()):
        raise _refused(f"{root} is not empty, and not of an earlier demo; choose another directory")
    root.mkdir(parents=True, exist_ok=True)
    with marker.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise _refused(f"another demo is running in {root}") from error
        for tree in (layout.data, layout.server):
            shutil.rmtree(tree, ignore_errors=True)
        for file in (*root.glob("*.log"), layout.picture):
            file.unlink(missing_ok=True)
        layout.data.mkdir()
        yield layout


def _refused(why: str) -> ConfigurationError:
    return ConfigurationError(Problem("--directory", why))
