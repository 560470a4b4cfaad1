"""The demo's directory: its files and its lock; empties it before a demo."""

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tailrace.errors import ConfigurationError, Problem

_MARKER = ".tailrace-demo"


class Layout:
    """The files of one demo. The service runs in ``root`` with the shipped configuration, whose
    paths are relative: the service and the pipeline write to ``data/``. With a destination, it has
    ``config`` instead, and the destination's server writes to ``destination``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.data = root / "data"
        self.events = self.data / "events.jsonl"
        self.tables = self.data / "tables"
        self.server = root / "server"
        self.destination = root / "destination"
        self.config = root / "config.yaml"

    def log(self, name: str) -> Path:
        """The output of a process: ``server``, ``service``, ``pipeline`` or ``destination``."""
        return self.root / f"{name}.log"


@contextmanager
def prepared(directory: Path) -> Iterator[Layout]:
    """Creates the directory, or empties it if it is an earlier demo's, and locks it."""
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
        # Removes everything: a position without its data would skip events.
        for tree in (layout.data, layout.server, layout.destination):
            shutil.rmtree(tree, ignore_errors=True)
        for file in (*root.glob("*.log"), layout.config):
            file.unlink(missing_ok=True)
        layout.data.mkdir()
        yield layout


def _refused(why: str) -> ConfigurationError:
    return ConfigurationError(Problem("--directory", why))
