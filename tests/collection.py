"""Which tests run in which process, and in which order; how their code is loaded."""

import fcntl
import gc
import os
import re
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parent

SERVERS = {"mongod", "one_member", "three_members", "guarded", "standalone", "scripted"}
"""A test that uses one of these fixtures is an integration test."""

ABANDONED = "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"

SLOWEST_FIRST = (
    "pipeline",
    "spark",
    "deploy/test_image.py",
    "integration/test_demo",
    "faults/test_rolling_restarts.py",
    "faults",
    "destinations",
    "bench",
    "integration",
    "browser",
    "deploy",
    "contract",
    "tour",
    "",
)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Of several processes the first stores the byte code of the tests, which the others read.

    What pytest makes of their assertions takes most of the time of a collection. All that it makes
    stays until the end: no garbage collection looks at it, neither now nor during the tests. Their
    fixtures ask for a hundred of these, and each would take half a second.
    """
    gc.disable()
    try:
        return (yield from _with_byte_code())
    finally:
        gc.freeze()
        gc.enable()


def _with_byte_code() -> Generator[None, object, object]:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return (yield)
    tests, writes = os.open(TESTS, os.O_RDONLY), sys.dont_write_bytecode
    try:
        fcntl.flock(tests, fcntl.LOCK_EX | fcntl.LOCK_NB)
        sys.dont_write_bytecode = False
    except BlockingIOError:
        fcntl.flock(tests, fcntl.LOCK_SH)
    try:
        return (yield)
    finally:
        sys.dont_write_bytecode = writes
        os.close(tests)  # with the lock


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Starts slow tests first, so that no process runs one alone at the end."""

    def rank(item: pytest.Item) -> int:
        name = str(item.path.relative_to(TESTS))
        return next(at for at, start in enumerate(SLOWEST_FIRST) if name.startswith(start))

    items.sort(key=rank)
    for item in items:
        if SERVERS & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.integration)
        if "abandoned_connects" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.filterwarnings(ABANDONED))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With ``--numprocesses``, one process runs all tests of a module, because they share servers.

    All Spark tests stay in one process too, because they share one session, those of the page,
    because they share one browser, and all tests of a type of destination, because they share its
    server.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByModule(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            module = nodeid.partition("::")[0]
            if module.startswith(("tests/pipeline/", "tests/browser/")):
                return module.rpartition("/")[0]
            found = re.match(r"tests/destinations/test_(?:contract.*\[)?([a-z]+)", nodeid)
            return found[1] if found else module

    config.option.loadscopereorder = False
    return ByModule(config, log)
