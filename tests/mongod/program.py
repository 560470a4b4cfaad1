"""The mongod program that tests start."""

import functools
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyio

from tailrace.demo.mongod import ready_mongod
from tests.machine import exclusive


@functools.cache
def program() -> Path:
    """A mongod that runs on this machine. Missing libraries are installed."""
    log = Path(tempfile.gettempdir(), "tailrace-tests-packages.log")
    with exclusive(), ThreadPoolExecutor(1) as thread:  # the caller may run inside an event loop
        return thread.submit(anyio.run, ready_mongod, print, log).result()
