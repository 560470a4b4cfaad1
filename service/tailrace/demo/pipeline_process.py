"""The Spark job with the shipped configuration, as a process of its own."""

import sys

import anyio

from tailrace.demo.child_process import ChildProcess, own_environment
from tailrace.demo.service_process import find_config
from tailrace.demo.workspace import Layout
from tailrace.errors import TailraceError

PIPELINE_SECONDS = 600.0
"""From its start to its end: half a minute where nothing else runs."""

_QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Without Java's second compiler, which pays only for runs of minutes."""

GRACE_SECONDS = 1.0
"""Short: after SIGTERM it would finish its batch, which an interrupted demo does not need."""


async def run_pipeline(layout: Layout) -> None:
    """``tailrace pipeline --once`` on what has landed.

    Raises :class:`TailraceError` if it fails, with the end of what it printed.
    """
    arguments = ["pipeline", "--config", str(find_config()), "--once"]
    process = ChildProcess(
        [sys.executable, "-m", "tailrace", *arguments],
        log=layout.log("pipeline"),
        directory=layout.root,
        environment=own_environment(JDK_JAVA_OPTIONS=_QUICK_START),
        grace_seconds=GRACE_SECONDS,
    )
    ended = f"did not end within {PIPELINE_SECONDS:.0f} s"
    with anyio.move_on_after(PIPELINE_SECONDS):
        async with process:
            code = await process.wait()
        if code == 0:
            return
        ended = f"ended with code {code}"
    raise TailraceError(f"the pipeline {ended}; the end of {process.log}:\n{process.last_lines()}")
