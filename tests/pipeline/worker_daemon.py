"""PySpark's daemon, which forks the Python workers, but waits for those that end.

PySpark ignores SIGCHLD, and the kernel then forgets the CPU time of an ended worker (wait(2)). With
the setting :data:`SETTING` the daemon has it, as other processes have that of their children.
"""

import os
import runpy
import signal
from contextlib import suppress
from typing import Any

SETTING = {"spark.python.daemon.module": "tests.pipeline.worker_daemon"}

_set = signal.signal


def _wait(*_: object) -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _signal(number: int, handler: Any) -> Any:
    ignored = number == signal.SIGCHLD and handler == signal.SIG_IGN
    return _set(number, _wait if ignored else handler)


if __name__ == "__main__":
    signal.signal = _signal
    runpy.run_module("pyspark.daemon", run_name="__main__")
