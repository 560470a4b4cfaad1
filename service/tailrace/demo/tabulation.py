"""The second half of the demo: Spark makes tables of what has landed, and they are looked at."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tailrace.demo import java, packages
from tailrace.demo.directory import Layout
from tailrace.demo.display import Display
from tailrace.demo.pipeline_process import run_pipeline
from tailrace.demo.plan import ARCHIVED_CARTS, ORDERS
from tailrace.demo.tables import (
    compare_tables,
    sample_of_current,
    sample_of_history,
    sizes,
)
from tailrace.errors import TailraceError


async def tabulate(
    display: Display, layout: Layout, database: str, source: Mapping[str, list[bytes]]
) -> bool:
    """Makes the tables and shows some of them; says whether they are there and are the source.

    ``source`` holds the raw documents of each namespace of ``database``.

    Raises :class:`TailraceError` where the pipeline fails.
    """
    home = await _java(display, layout)
    if home is None:
        return False
    display.say("The pipeline makes tables of the landed segments, in a process of its own")
    with display.waiting("Spark is at work"):
        await run_pipeline(layout, home, display.say)
    display.sample(sizes(layout.tables))
    display.sample(sample_of_current(layout.tables, f"{database}.{ORDERS}"))
    display.sample(sample_of_history(layout.tables, f"{database}.{ARCHIVED_CARTS}"))
    found = compare_tables(layout.tables, source)
    display.verdict("The tables", sum(map(len, source.values())), found)
    display.say(f"  {layout.tables}, log: {layout.pipeline_log}")
    return not found


async def _java(display: Display, layout: Layout) -> Path | None:
    home = await java.find_java()
    if home is not None:
        return home
    needed = f"Spark needs Java {java.OLDEST_JAVA} or newer, and there is none here"
    if not packages.may_install():
        display.say(f"{needed}. No tables are made. Install it, then start again: {java.command()}")
        return None
    display.say(f"{needed}: {java.command()}")
    try:
        with display.waiting("Java is being installed"):
            await java.install_java(layout.packages_log)
    except TailraceError as error:
        display.say(f"Java could not be installed: {error}. No tables are made")
        return None
    home = await java.find_java()
    if home is None:
        display.say(f"Java was installed and does not run; see {layout.packages_log}")
    return home
