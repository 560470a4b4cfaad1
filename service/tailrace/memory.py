"""Settings of the garbage collector and of malloc.

Events are never in reference cycles: the collector frees none of them, but would take a fifth of
the CPU time of a busy stream. Replies are large blocks: by default glibc maps and unmaps each one
and the kernel clears every page, which would take a tenth.
"""

import ctypes
import gc
import linecache
from collections.abc import Iterator
from contextlib import contextmanager

_THRESHOLDS = (100_000, 50, 100)
"""Allocations between two collections, and collections of a generation before the next older one is
collected (default 700, 10, 10). The only cycles here come from exceptions."""

# glibc, malloc.h. Blocks up to M_MMAP_THRESHOLD come from the heap, which keeps up to
# M_TRIM_THRESHOLD of free memory at its end. A reply has up to 16 MB (and one more event).
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_MALLOC = {
    _M_MMAP_THRESHOLD: 32 * 1024 * 1024,
    _M_TRIM_THRESHOLD: 32 * 1024 * 1024,
    _M_ARENA_MAX: 1,  # by default Motor's threads use eight arenas per core, which all keep memory
}


@contextmanager
def settled_memory() -> Iterator[None]:
    """Excludes existing objects from collection and collects rarely; undone at the end."""
    before = gc.get_threshold()
    linecache.clearcache()  # a megabyte of sources: PyMongo's clients note where they were created
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def settle_malloc() -> bool:
    """Sets parameters of glibc's ``malloc`` for the whole process; False if they cannot be set.

    Before the first thread starts: the first one that allocates fixes the number of arenas (glibc,
    arena_get2).
    """
    try:
        libc = ctypes.CDLL(None)
        libc.gnu_get_libc_version  # noqa: B018 - another libc has no such function
    except (OSError, AttributeError):
        return False
    libc.mallopt.argtypes = (ctypes.c_int, ctypes.c_int)
    return all(libc.mallopt(name, value) for name, value in _MALLOC.items())
