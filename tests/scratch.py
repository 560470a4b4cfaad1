"""Directories of a test run: removed at its end, or by a later run if it was cut off.

A process of a run puts a mark with its pid into the run's directory, and removes the mark at its
end. What is left without a mark is what failed, which pytest keeps for three runs.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

MakeDirectory = Callable[[str], Path]
"""Creates a directory that lasts as long as the session; takes a name for people."""

_MARK = "tailrace-owner-"


@contextmanager
def owned(run: Path) -> Iterator[None]:
    """Marks the run's directory; before that, removes the directories of runs that were cut off."""
    for other in {mark.parent for mark in run.parent.glob(f"*/{_MARK}*")} - {run}:
        if not any(_alive(int(mark.name.removeprefix(_MARK))) for mark in other.glob(f"{_MARK}*")):
            shutil.rmtree(other, ignore_errors=True)
    mark = run / f"{_MARK}{os.getpid()}"
    mark.touch()
    yield
    mark.unlink(missing_ok=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
