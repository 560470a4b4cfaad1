"""The real Spark job with its real configuration, as the demo runs it: a process of its own."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio

from tailrace.demo.child_process import ChildProcess, own_environment
from tailrace.demo.directory import Layout
from tailrace.demo.service_process import find_config
from tailrace.errors import TailraceError

PIPELINE_SECONDS = 600.0
"""From its start to its end: half a minute where nothing else runs."""

GRACE_SECONDS = 1.0
"""It would finish its batch; nobody waits for the tables of a demo that was told to end."""


async def run_pipeline(layout: Layout, java: Path, say: Callable[[str], None]) -> None:
    """``tailrace pipeline --once`` on what has landed; tells how far it is.

    Raises :class:`TailraceError` unless it ended with 0.
    """
    arguments = ["pipeline", "--config", str(find_config()), "--once", "--quick-start"]
    process = ChildProcess(
        "pipeline",
        [sys.executable, "-m", "tailrace", *arguments],
        log=layout.pipeline_log,
        directory=layout.root,
        environment={**own_environment(os.environ), "JAVA_HOME": str(java)},
        grace_seconds=GRACE_SECONDS,
    )
    told = 0
    with anyio.move_on_after(PIPELINE_SECONDS) as limit:
        async with process:
            while process.exit_code is None:
                told = _tell(layout.pipeline_log, told, say)
                await anyio.sleep(0.1)
    _tell(layout.pipeline_log, told, say)
    if limit.cancelled_caught:
        what = f"did not end within {PIPELINE_SECONDS:.0f} s"
    elif process.exit_code != 0:
        what = f"ended with code {process.exit_code}"
    else:
        return
    raise TailraceError(
        f"the pipeline {what}; the end of {layout.pipeline_log}:\n{process.last_lines()}"
    )


def _tell(log: Path, told: int, say: Callable[[str], None]) -> int:
    """Says what is new in the log; returns how much of it has been told."""
    with log.open("rb") as file:
        file.seek(told)
        added = file.read()
    whole = added[: added.rfind(b"\n") + 1]
    for entry in _entries(whole):
        if entry.get("event") == "pipeline.started":
            say(f"  Spark is there after {entry['seconds']} s")
        elif entry.get("event") == "batch.committed":
            say(
                f"  {entry['events']} events of {entry['segments']} segments are in the log and "
                f"in {entry['published']} tables, after {entry['seconds']} s more"
            )
    return told + len(whole)


def _entries(lines: bytes) -> Iterator[dict[str, Any]]:
    """Our own lines; Java prints among them."""
    for line in lines.splitlines():
        if line.startswith(b'{"'):
            with suppress(ValueError):
                yield json.loads(line)
