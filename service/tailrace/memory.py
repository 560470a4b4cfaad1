"""Settings of the garbage collector and of malloc.

Events are in no reference cycle: the collector finds nothing among them, at a fifth of the CPU time
of a busy stream. Replies are large blocks: by default glibc maps and unmaps each, and the kernel
clears every page, at a tenth.
"""

import ctypes
import gc
import linecache
from collections.abc import Iterator
from contextlib import contextmanager

_THRESHOLDS = (100_000, 50, 100)
"""Allocations between two collections, and collections between those of the older generations
(default 700, 10, 10). The only cycles here come from exceptions."""

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
    """Excludes present objects from collection and collects seldom; undone at the end."""
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
    """Sets the parameters of glibc's ``malloc``, for good; whether there is a glibc."""
    try:
        libc = ctypes.CDLL(None)
        libc.gnu_get_libc_version  # noqa: B018 - another libc has no such function
    except (OSError, AttributeError):
        return False
    libc.mallopt.argtypes = (ctypes.c_int, ctypes.c_int)
    return all(libc.mallopt(name, value) for name, value in _MALLOC.items())
