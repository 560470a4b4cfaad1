"""How the daemon keeps its memory: set once the service runs, in :mod:`tailrace.app` only.

Events are short-lived and point to nothing that points back, so reference counts free them; the
garbage collector's many looks at them find nothing (a fifth of the time of a busy stream). And
replies are large blocks that come and go: left to itself, glibc asks the kernel for each anew and
gives it back, and the kernel clears every page (a tenth).
"""

from __future__ import annotations

import ctypes
import gc
import linecache
from collections.abc import Iterator
from contextlib import contextmanager

_THRESHOLDS = (100_000, 50, 100)
"""Container objects between two collections, and between those of the older generations. Python's
own (700, 10, 10) suit programs that make cycles; ours come from exceptions, and are few."""

# glibc, malloc.h. Blocks up to the first size come from the heap, which keeps what is freed at its
# end up to the second; replies have up to 16 MB (and one event more).
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_MALLOC = {
    _M_MMAP_THRESHOLD: 32 * 1024 * 1024,
    _M_TRIM_THRESHOLD: 32 * 1024 * 1024,
    _M_ARENA_MAX: 1,  # Motor's threads would have eight for each core, each with its own remains
}


@contextmanager
def settled_memory() -> Iterator[None]:
    """Everything that is there now stays; what comes is looked at seldom. Undone at the end."""
    before = gc.get_threshold()
    linecache.clearcache()  # sources, a megabyte: PyMongo's clients note where they were made
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def settle_malloc() -> bool:
    """Tells glibc's ``malloc`` of our sizes; says whether there is a glibc to tell.

    Not undone, for nothing else can be known of what was set before: for a process of our own.
    """
    try:
        libc = ctypes.CDLL(None)
        libc.gnu_get_libc_version  # noqa: B018 - another libc has no such function
    except (OSError, AttributeError):
        return False
    libc.mallopt.argtypes = (ctypes.c_int, ctypes.c_int)
    return all(libc.mallopt(name, value) for name, value in _MALLOC.items())
