"""The mongod program that tests start."""

import functools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyio

from tailrace.demo.programs import find_mongod
from tailrace.errors import ConfigurationError
from tests.packages import install_for_demo


@functools.cache
def program() -> Path:
    """A mongod that runs on this machine. Missing libraries are installed."""
    with ThreadPoolExecutor(1) as thread:  # the caller may run inside an event loop
        try:
            return thread.submit(anyio.run, find_mongod).result()
        except ConfigurationError:
            install_for_demo()
            return thread.submit(anyio.run, find_mongod).result()
