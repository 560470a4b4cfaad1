"""A file of complete lines, whatever happens to it."""

import json
import os
import subprocess
import sys
import textwrap
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import bson
import pytest
from bson import json_util
from bson.int64 import Int64
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from tailrace.config.delivery import DeliverySettings
from tailrace.destinations.jsonl import JsonlHandlerSettings
from tailrace.engine import Handler
from tailrace.errors import ConfigurationError
from tailrace.event import ChangeEvent
from tailrace.handlers.open_handler import open_handler
from tailrace.handlers.pool import HandlerPlan, handler_pool
from tests.handlers import ORDERS, deliver, opening
from tests.unit.engine.changes import change

ROOT = Path(__file__).parents[3]


def opened(path: Path, **fields: Any) -> AbstractAsyncContextManager[Handler]:
    settings = JsonlHandlerSettings.model_validate(
        {"type": "jsonl", "path": str(path), "fsync": False} | fields
    )
    return open_handler(opening("audit"), settings)


async def write(handler: Handler, *documents: dict[str, Any]) -> None:
    await deliver(handler, *map(ChangeEvent.from_document, documents))


def numbers(path: Path) -> list[int]:
    """The events of a file, in which every line must be complete."""
    text = path.read_text()
    assert text.endswith("\n") or not text
    return [json.loads(line)["documentKey"]["_id"] for line in text.splitlines()]


@pytest.mark.parametrize("style", ["relaxed", "canonical"])
async def test_a_line_is_the_event_exactly_as_it_came(tmp_path: Path, style: str) -> None:
    document = change(1, Int64(7), fullDocument={"text": "a\nb\u2028 é", "n": 1.0, "big": 2**40})
    path = tmp_path / "events.jsonl"
    async with opened(path, json=style) as handler:
        await write(handler, document, change(2))
        first, second, rest = path.read_bytes().split(b"\n")
    assert rest == b""
    options = {
        "relaxed": json_util.RELAXED_JSON_OPTIONS,
        "canonical": json_util.CANONICAL_JSON_OPTIONS,
    }[style]
    expected = json.loads(json_util.dumps(document, json_options=options))
    assert json.loads(first) == expected
    assert list(json.loads(first)) == list(expected)
    assert json_util.loads(second.decode())["_id"] == change(2)["_id"]
    if style == "canonical":
        read = json_util.loads(first.decode(), json_options=options)
        assert bson.encode(read) == bson.encode(document)
        assert isinstance(read["documentKey"]["_id"], Int64)


@pytest.mark.parametrize("torn", [1, 300_000])
@pytest.mark.parametrize("whole", [0, 2])
async def test_a_partial_line_is_truncated_when_the_file_is_opened(
    tmp_path: Path, whole: int, torn: int
) -> None:
    """After a crash during a write: the event was not handled, and comes again."""
    path = tmp_path / "events.jsonl"
    async with opened(path) as handler:
        await write(handler, *[change(n) for n in range(whole)])
    before = path.read_bytes()
    path.write_bytes(before + b"{" * torn)
    with capture_logs() as logs:
        async with opened(path) as handler:
            assert path.read_bytes() == before
            await write(handler, change(9))
    assert numbers(path) == [*range(whole), 9]
    (log,) = logs
    assert (log["event"], log["bytes"]) == ("jsonl.partial_line_truncated", torn)


async def refusal(path: Path) -> str:
    with pytest.raises(ConfigurationError) as refused:
        async with opened(path):
            pass
    (problem,) = refused.value.problems
    assert problem.path == "handlers.audit.path"
    assert str(path) in problem.message
    return problem.message


async def test_a_second_writer_of_a_jsonl_file_is_refused(tmp_path: Path) -> None:
    """It does not touch the first writer's partial line: it locks before it truncates."""
    path = tmp_path / "events.jsonl"
    async with opened(path) as handler:
        await write(handler, change(1))
        before = path.read_bytes() + b'{"half'
        path.write_bytes(before)
        assert "another process writes it" in await refusal(path)
        assert path.read_bytes() == before
    async with opened(path):
        assert numbers(path) == [1]


async def test_a_path_below_a_regular_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "Not a directory" in await refusal(tmp_path / "file/deep/events.jsonl")


async def test_a_file_of_something_else_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"\x89PNG no newline anywhere")
    assert "something else than lines of JSON" in await refusal(path)
    assert path.read_bytes() == b"\x89PNG no newline anywhere"


async def test_a_refusal_closes_the_handlers_that_were_opened_before(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    settings = JsonlHandlerSettings.model_validate({"type": "jsonl", "path": str(path)})
    plans = [HandlerPlan.of(name, settings, (ORDERS,)) for name in ("first", "second")]
    async with handler_pool(CollectorRegistry()) as pool:
        with pytest.raises(ConfigurationError):
            await pool.add(plans, DeliverySettings())
    async with opened(path):
        pass


async def test_a_rotation_by_renaming_is_followed(tmp_path: Path) -> None:
    path, old = tmp_path / "events.jsonl", tmp_path / "events.jsonl.1"
    async with opened(path) as handler:
        await write(handler, change(1))
        path.rename(old)
        await write(handler, change(2))
        assert (numbers(old), numbers(path)) == ([1], [2])
        assert "another process" in await refusal(path)
        path.unlink()
        await write(handler, change(3))
    assert numbers(path) == [3]


@pytest.mark.parametrize("fsync", [True, False])
async def test_fsync_decides_whether_a_line_is_on_the_disk_before_its_event_is_handled(
    fsync: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[bytes] = []
    path = tmp_path / "events.jsonl"
    monkeypatch.setattr(os, "fdatasync", lambda _: synced.append(path.read_bytes()))
    async with opened(path, fsync=fsync) as handler:
        await write(handler, change(1))
        assert synced == ([path.read_bytes()] if fsync else [])


def test_a_disk_that_is_full_leaves_whole_lines_and_is_told(tmp_path: Path) -> None:
    """A file size limit simulates it: the system writes a part, then refuses."""
    path = tmp_path / "events.jsonl"
    program = """
        import resource, sys
        from pathlib import Path
        from tailrace.destinations.jsonl import LineFile

        file = LineFile(Path(sys.argv[1]), fsync=True)
        file.append([b"a" * 99 + b"\\n"])
        resource.setrlimit(resource.RLIMIT_FSIZE, (150, resource.RLIM_INFINITY))
        try:
            file.append([b"b" * 29 + b"\\n"] * 3)
        except OSError as error:
            print(error.strerror)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        file.append([b"c" * 9 + b"\\n"])
        file.close()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "File too large\n"
    assert path.read_text() == "a" * 99 + "\n" + "c" * 9 + "\n"
