"""The real Spark job with the shipped configuration, as a process of its own; and its Java."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio

from tailrace.demo import java, packages
from tailrace.demo.child_process import ChildProcess, own_environment
from tailrace.demo.directory import Layout
from tailrace.demo.display import Display
from tailrace.demo.service_process import find_config
from tailrace.errors import TailraceError

PIPELINE_SECONDS = 600.0
"""From its start to its end: half a minute where nothing else runs."""

GRACE_SECONDS = 1.0
"""It would finish its batch; nobody waits for the tables of a demo that was told to end."""


async def ready_java(display: Display, log: Path) -> Path | None:
    """The home of a Java for Spark, installed where that may be done; ``None`` where there is none,
    and the display has said why."""
    if home := await java.find_java():
        return home
    needed = f"Spark needs Java {java.OLDEST_JAVA} or newer, and there is none here"
    if not packages.may_install():
        display.say(f"{needed}. No tables are made. Install it, then start again: {java.command()}")
        return None
    display.say(f"{needed}: {java.command()}")
    try:
        with display.waiting("Java is being installed"):
            await java.install_java(log)
    except TailraceError as error:
        display.say(f"Java could not be installed: {error}. No tables are made")
        return None
    home = await java.find_java()
    if home is None:
        display.say(f"Java was installed and does not run; see {log}")
    return home


async def run_pipeline(layout: Layout, java_home: Path) -> None:
    """``tailrace pipeline --once`` on what has landed. Raises :class:`TailraceError` unless it
    ended with 0."""
    arguments = ["pipeline", "--config", str(find_config()), "--once", "--quick-start"]
    process = ChildProcess(
        [sys.executable, "-m", "tailrace", *arguments],
        log=layout.log("pipeline"),
        directory=layout.root,
        environment=own_environment(JAVA_HOME=str(java_home)),
        grace_seconds=GRACE_SECONDS,
    )
    code = None
    with anyio.move_on_after(PIPELINE_SECONDS):
        async with process:
            code = await process.wait()
    if code == 0:
        return
    what = f"did not end within {PIPELINE_SECONDS:.0f} s"
    if code is not None:
        what = f"ended with code {code}"
    raise TailraceError(f"the pipeline {what}; the end of {process.log}:\n{process.last_lines()}")
