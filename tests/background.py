"""Work beside a test or a benchmark."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def in_background(work: Callable[[], None], over: threading.Event, name: str) -> Iterator[None]:
    """Runs ``work`` in a thread in the block, after which it is ``over``, and is waited for."""
    thread = threading.Thread(target=work, name=name)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
