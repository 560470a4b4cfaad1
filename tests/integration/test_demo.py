"""The demo as its users start it: one command, and its exit code is the proof."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import StringIO
from pathlib import Path

import anyio
import pytest
from anyio.abc import Process
from rich.console import Console

from tailrace.demo.account import Account
from tailrace.demo.directory import Layout, prepared
from tailrace.demo.display import Display
from tailrace.demo.event_file import EventFile
from tailrace.errors import ConfigurationError
from tests.checkout import IMPORTS

pytestmark = pytest.mark.usefixtures("java", "mongod_program")

ROOT = Path(__file__).parents[2]
FINISH_SECONDS = 300


@asynccontextmanager
async def demo(directory: Path, events: int = 400) -> AsyncIterator[Process]:
    """``tailrace demo`` in a directory; killed if the test leaves it running."""
    environment = {**os.environ, "PYTHONPATH": IMPORTS, "COLUMNS": "200"}
    arguments = ["demo", "--events", str(events), "--directory", str(directory)]
    process = await anyio.open_process(
        [sys.executable, "-m", "tailrace", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
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
    """All that it prints until its end."""
    assert process.stdout is not None
    with anyio.fail_after(FINISH_SECONDS):
        printed = b"".join([part async for part in process.stdout])
        await process.wait()
    return printed.decode()


def running_in(directory: Path) -> list[Path]:
    """The processes whose working directory lies there."""
    return [
        process
        for process in Path("/proc").glob("[0-9]*")
        if os.access(process / "cwd", os.R_OK)
        and Path(os.path.realpath(process / "cwd")).is_relative_to(directory)
    ]


def names_in(directory: Path) -> list[str]:
    """What lies in a directory."""
    return sorted(path.name for path in directory.iterdir())


@pytest.mark.integration
async def test_the_demo_ends_by_itself_with_the_proof(tmp_path: Path) -> None:
    """Twice in one directory: data and positions of the first run are gone in the second. That one
    is told to end while Spark works, and leaves no Java behind."""
    directory = tmp_path / "demo"
    layout = Layout(directory)
    async with demo(directory) as process:
        printed = await output(process)
    assert process.returncode == 0, printed
    assert "The events give exactly the source" in printed
    assert "service restarts  1" in printed
    assert "written" in printed
    for shown in ("current/shop.orders", "history/shop.archived_carts", "Spark is there"):
        assert shown in printed
    assert "The tables give exactly the source" in printed
    assert f"A picture of it: {layout.picture}" in printed
    assert "</svg>" in layout.picture.read_text()
    assert running_in(tmp_path) == []

    layout.pipeline_log.unlink()
    async with demo(directory) as process:
        with anyio.fail_after(FINISH_SECONDS):
            while not (layout.pipeline_log.exists() and layout.pipeline_log.stat().st_size):
                assert process.returncode is None
                await anyio.sleep(0.05)
        assert not layout.picture.exists()
        process.send_signal(signal.SIGTERM)
        printed = await output(process)
    assert process.returncode == 1, printed
    assert "The events give exactly the source" in printed
    assert "The tables" not in printed
    with anyio.fail_after(20):  # killed, and gone as soon as the kernel has its memory back
        while running_in(tmp_path):  # noqa: ASYNC110
            await anyio.sleep(0.05)


@pytest.mark.integration
@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 1)])
async def test_an_interrupted_demo_ends_its_processes(
    tmp_path: Path, how: signal.Signals, code: int
) -> None:
    """Ctrl-C in the middle: no server and no service stays behind."""
    directory = tmp_path / "demo"
    async with demo(directory, events=1_000_000) as process:
        with anyio.fail_after(FINISH_SECONDS):
            while EventFile(Layout(directory).events).read_on() < 20:
                assert process.returncode is None
                await anyio.sleep(0.05)
        process.send_signal(how)
        printed = await output(process)
    assert process.returncode == code, printed
    assert running_in(tmp_path) == []


@pytest.mark.integration
async def test_a_directory_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    """Usage: exit code 2, and nothing is deleted."""
    (tmp_path / "thesis.txt").write_text("final")
    async with demo(tmp_path) as process:
        printed = await output(process)
    assert process.returncode == 2
    assert "not of an earlier demo" in printed
    assert names_in(tmp_path) == ["thesis.txt"]


def test_data_and_positions_go_together(tmp_path: Path) -> None:
    """A position without its data would skip events; what is not ours stays."""
    with prepared(tmp_path / "demo") as layout:
        for path in (layout.data / "checkpoints.db", layout.server_log, layout.root / "notes"):
            path.write_text("")
    with prepared(tmp_path / "demo") as layout:
        assert names_in(layout.root) == [".tailrace-demo", "data", "notes"]
        assert names_in(layout.data) == []


def test_two_demos_in_one_directory_are_refused(tmp_path: Path) -> None:
    """The second one would delete the first one's data."""
    with (
        prepared(tmp_path / "demo"),
        pytest.raises(ConfigurationError, match="another demo is running"),
        prepared(tmp_path / "demo"),
    ):
        pass


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    """A mistake in the argument, not a traceback."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="not a directory"), prepared(tmp_path / "file"):
        pass


def test_only_whole_lines_are_counted(tmp_path: Path) -> None:
    """The file is read while it is written: the last line may be half of one."""
    file = EventFile(tmp_path / "events.jsonl")
    assert file.read_on() == 0
    marker = '{"ns":{"db":"shop","coll":"markers"},"documentKey":{"_id":"end"}}'
    with file.path.open("w") as events:
        events.write('{"ns":{"coll":"orders"},"note":"markers"}\n' + marker)
        events.flush()
        assert (file.read_on(), file.markers) == (1, [])
        events.write("\n")
        events.flush()
        assert (file.read_on(), file.markers) == (2, ["end"])


@pytest.mark.parametrize("terminal", [True, False])
def test_the_display_needs_no_terminal(terminal: bool) -> None:
    """Bars in a terminal, a few lines in a log, the account in both; markup is left as text."""
    printed = StringIO()
    console = Console(file=printed, force_terminal=terminal, width=120, color_system=None)
    display = Display(console, 100)
    with display.live():
        for number in range(0, 110, 5):
            display.update(number, number - 5, 0.5)
    display.account(Account(written=105), ["[bold]x[/bold] differs"], Layout(Path("demo")))
    text = printed.getvalue()
    assert "NOT give the source: 1 differences" in text
    assert "[bold]x[/bold] differs" in text
    if not terminal:
        assert 3 <= text.count(" delivered\n") <= 5
