"""Settings of the garbage collector, which are restored afterwards, and of malloc."""

import ctypes
import gc
import subprocess
import sys
from pathlib import Path

from tailrace import memory


def test_the_collector_runs_seldom_during_the_service_and_as_before_afterwards() -> None:
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    with memory.settled_memory():
        assert gc.isenabled()
        assert gc.get_threshold()[0] > 100 * 700
        assert gc.get_freeze_count() > frozen
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0


def test_malloc_is_configured_if_it_is_glibcs() -> None:
    """In a separate process, because it cannot be undone."""
    script = "from tailrace.memory import settle_malloc; print(settle_malloc())"
    run = [sys.executable, "-c", script]
    output = subprocess.check_output(run, text=True, cwd=Path(__file__).parents[2])
    glibc = hasattr(ctypes.CDLL(None), "gnu_get_libc_version")
    assert output.strip() == str(glibc)
