"""The demo as users start it: one command, whose exit code is the proof."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from io import StringIO
from pathlib import Path

import anyio
import pytest
from anyio.abc import Process
from rich.console import Console

from tailrace.demo.demonstration import EventFile
from tailrace.demo.display import Display
from tailrace.demo.source import OWN_DATABASE
from tailrace.demo.workspace import Layout, prepared
from tailrace.errors import ConfigurationError
from tests.checkout import IMPORTS
from tests.guards import against_hanging
from tests.integration.test_demo_server import running_in
from tests.mongod import ReplicaSet

pytestmark = pytest.mark.usefixtures("java", "mongod_program")

FINISH_SECONDS = 300


@asynccontextmanager
async def demo(directory: Path, *arguments: str, events: int = 400) -> AsyncIterator[Process]:
    """``tailrace demo`` in a directory; stopped if the test leaves it running."""
    command = ["demo", "--events", str(events), "--directory", str(directory), *arguments]
    process = await anyio.open_process(
        [sys.executable, "-m", "tailrace", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": IMPORTS, "COLUMNS": "200"},
    )
    async with process:
        try:
            yield process
        finally:
            if process.returncode is None:
                process.terminate()
                with anyio.CancelScope(shield=True), anyio.move_on_after(60):
                    await process.wait()


async def output(process: Process) -> str:
    """All its output until it exits."""
    assert process.stdout is not None
    with anyio.fail_after(FINISH_SECONDS):
        printed = b"".join([part async for part in process.stdout])
        await process.wait()
    return printed.decode()


@pytest.fixture
def own(mongod: ReplicaSet) -> Iterator[ReplicaSet]:
    """A server with a user's database ``shop``, which must survive the demo."""
    with mongod.client() as client:
        client.drop_database("shop")  # other tests share the server
        client.shop.orders.insert_one({"_id": "mine"})
        yield mongod
        found = list(client.shop.orders.find())
        client.drop_database("shop")
        client.drop_database(OWN_DATABASE)
        assert found == [{"_id": "mine"}]


@pytest.mark.integration
async def test_the_demo_ends_by_itself_with_the_proof(own: ReplicaSet, tmp_path: Path) -> None:
    """On the embedded server, then in the same directory on a user's server.

    Data and positions of the first run are gone. The second is stopped while Spark works, and
    leaves neither a Java process nor its database.
    """
    directory = tmp_path / "demo"
    layout = Layout(directory)
    async with demo(directory) as process:
        printed = await output(process)
    assert process.returncode == 0, printed
    assert "service restarts  1" in printed
    for shown in ("The events give exactly", "current/shop.orders", "history/shop.archived_carts"):
        assert shown in printed
    assert "rows of audit and lake compared, 0 differ" in printed
    assert "The tables give exactly the source" in printed
    assert f"The tables are in {layout.tables}" in printed
    assert running_in(tmp_path) == []

    log = layout.log("pipeline")
    log.unlink()
    async with demo(directory, "--uri", own.uri) as process:
        with anyio.fail_after(FINISH_SECONDS):
            while not (log.exists() and log.stat().st_size):
                assert process.returncode is None
                await anyio.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        printed = await output(process)
    assert process.returncode == 1, printed
    assert f"uses the database '{OWN_DATABASE}'" in printed
    assert "The events give exactly the source" in printed
    assert "The tables" not in printed
    assert not layout.server.exists()
    with own.client() as client:
        assert OWN_DATABASE not in client.list_database_names()
    with against_hanging():  # killed; gone as soon as the kernel has freed its memory
        while running_in(tmp_path):  # noqa: ASYNC110
            await anyio.sleep(0.05)


@pytest.mark.integration
async def test_an_interrupted_demo_ends_its_processes(tmp_path: Path) -> None:
    """Ctrl-C in the middle: no server and no service keeps running."""
    directory = tmp_path / "demo"
    events = EventFile(Layout(directory).events)
    async with demo(directory, events=1_000_000) as process:
        with anyio.fail_after(FINISH_SECONDS):
            while events.read_on() < 20:
                assert process.returncode is None
                await anyio.sleep(0.05)
        process.send_signal(signal.SIGINT)
        printed = await output(process)
    assert process.returncode == 130, printed
    assert running_in(tmp_path) == []


def test_the_directory_is_emptied_and_locked(tmp_path: Path) -> None:
    """A position without its data would skip events. Other files in the directory stay."""
    with prepared(tmp_path / "demo") as layout:
        for path in (layout.data / "tailrace.db", layout.log("server"), layout.root / "notes"):
            path.write_text("")
    with prepared(tmp_path / "demo") as layout:
        assert names_in(layout.root) == [".tailrace-demo", "data", "notes"]
        assert names_in(layout.data) == []
        again = pytest.raises(ConfigurationError, match="another demo is running")
        with again, prepared(tmp_path / "demo"):
            pass
    (tmp_path / "other").mkdir()
    file = tmp_path / "other" / "thesis.txt"
    file.write_text("final")
    for directory, message in (file.parent, "not of an earlier demo"), (file, "not a directory"):
        with pytest.raises(ConfigurationError, match=message), prepared(directory):
            pass
    assert names_in(file.parent) == ["thesis.txt"]


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_only_whole_lines_are_counted(tmp_path: Path) -> None:
    """The file is read while it is written, so the last line may be incomplete.

    The file is complete with the last change and the end of the snapshot, whichever comes last.
    """
    path = tmp_path / "events.jsonl"
    file = EventFile(path)
    assert file.read_on() == 0
    for text, lines, complete in (
        ('{"a":1}\n', 1, False),
        ('{"documentKey":{"_id":"the last change"}}', 1, False),
        ("\n", 2, False),
        ('{"operationType":"snapshotEnd"}\n', 3, True),
    ):
        with path.open("a") as events:
            events.write(text)
        assert (file.read_on(), file.complete) == (lines, complete)


@pytest.mark.parametrize("terminal", [True, False])
def test_the_display_needs_no_terminal(terminal: bool) -> None:
    """A status line in a terminal, a few lines in a log, figures in both. Markup is not parsed."""
    printed = StringIO()
    console = Console(file=printed, force_terminal=terminal, width=120, color_system=None)
    display = Display(console, 100)
    with display.status("[i]wait[/i]") as status:
        for number in range(0, 110, 5):
            display.update(status, number, number - 5, 0.5)
        display.figures({"written": "105"})
    display.verdict("The events", 1, ["[bold]x[/bold] differs"])
    text = printed.getvalue()
    assert "written  105" in text
    assert "NOT give the source: 1 differences" in text
    assert "[bold]x[/bold] differs" in text
    if not terminal:
        assert 3 <= text.count(" delivered\n") <= 5
