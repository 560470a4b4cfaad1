"""The parquet handler as the engine uses it: opened by its settings, or refused with a reason."""

import importlib.util
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from tailrace.destinations.parquet import ParquetHandlerSettings
from tailrace.destinations.parquet.lake_handler import LakeWriter
from tailrace.engine import Handler, PerBatch, RunIdentity
from tailrace.errors import ConfigurationError, ScopeHalted, StartRefused
from tailrace.event import ChangeEvent
from tailrace.handlers import check_handlers
from tailrace.handlers.open_handler import open_handler
from tailrace.lake.directory import DirectoryDraft
from tailrace.model import Scope, SinkPosition
from tests.guards import HANGS_SECONDS
from tests.handlers import begin, commit, deliver, opening
from tests.lake import rows
from tests.unit.destinations.landings import OWNER
from tests.unit.engine.changes import change, time, token


def settings(path: Path | str, **more: Any) -> ParquetHandlerSettings:
    return ParquetHandlerSettings(type="parquet", path=str(path), **more)


@asynccontextmanager
async def opened(path: Path | str, **more: Any) -> AsyncIterator[Handler]:
    async with open_handler(opening("lake"), settings(path, **more)) as handler:
        yield handler


def events(*numbers: int) -> Sequence[ChangeEvent]:
    return [ChangeEvent.from_document(change(n)) for n in numbers]


async def land(handler: Handler, some: Sequence[ChangeEvent], scope: str = "orders") -> None:
    identity = replace(OWNER, scope=scope)
    await deliver(handler, *some, identity=identity)
    await commit(handler, identity)


async def test_segment_rows_segment_bytes_and_segment_seconds_complete_a_segment(
    tmp_path: Path,
) -> None:
    bounds = {"segment_rows": 7, "segment_bytes": 4096, "segment_seconds": 2.5}
    async with opened(tmp_path, **bounds) as handler:
        commit, calls = handler.commit, handler.calls
        assert commit is not None
        assert (commit.events, commit.bytes, commit.seconds) == (7, 4096, 2.5)
        assert isinstance(calls, PerBatch)
        assert (calls.events, calls.bytes) == (7, 4096)


async def test_a_lake_refuses_events_whose_shard_key_is_masked(tmp_path: Path) -> None:
    """Their ids hold it, and its position is such an id."""
    key = {"documentKey": {"region": "eu", "_id": 2}}
    one, sharded = (
        ChangeEvent.from_document({**change(n), **(key if n == 2 else {})}) for n in (1, 2)
    )
    async with opened(tmp_path, fields={"mask": {"region": "***"}}) as handler:
        assert handler.protection is not None
        await begin(handler, OWNER)
        await deliver(handler, *handler.protection.of([one]))
        with pytest.raises(ScopeHalted, match="masks a field of the collection's shard key"):
            await deliver(handler, *handler.protection.of([sharded]))
    assert not rows(tmp_path, "orders")


async def test_scopes_land_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow object store must not serialise the scopes; the barrier would break."""
    both = threading.Barrier(2)
    real = DirectoryDraft.finish

    def finish(draft: DirectoryDraft) -> None:
        both.wait(HANGS_SECONDS)
        real(draft)

    lake = LakeWriter("lake", settings(tmp_path))
    async with lake:
        handlers = {
            name: lake.handler(Scope(name, "shop", name), None) for name in ("orders", "carts")
        }
        for scope, handler in handlers.items():
            await begin(handler, RunIdentity(scope, "rs0/1", "f", 1))
        monkeypatch.setattr(DirectoryDraft, "finish", finish)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(land, handlers["orders"], events(1))
            tasks.start_soon(land, handlers["carts"], events(2), "carts")
    assert len(rows(tmp_path, "orders")) == len(rows(tmp_path, "carts")) == 1


async def test_a_cancelled_write_is_whole_and_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The canceller waits for the segment, and the next run knows it."""
    begun, go_on = anyio.Event(), threading.Event()
    real = DirectoryDraft.finish

    def finish(draft: DirectoryDraft) -> None:
        anyio.from_thread.run_sync(begun.set)
        assert go_on.wait(HANGS_SECONDS)
        real(draft)

    async with opened(tmp_path) as handler:
        await begin(handler, OWNER)
        monkeypatch.setattr(DirectoryDraft, "finish", finish)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(land, handler, events(1, 2))
            await begun.wait()
            tasks.cancel_scope.cancel()
            go_on.set()
        assert len(rows(tmp_path, "orders")) == 2
        assert await begin(handler, OWNER) == SinkPosition(token(2), time(2), "fingerprint")
        await land(handler, events(3))
    assert len(rows(tmp_path, "orders")) == 3


# --- refusals ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (
            "{}/file/lake",
            "no lake can be opened at {}/file/lake: Not a directory. Choose a directory that this "
            "process may write, or a bucket that AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, "
            "AWS_REGION and AWS_ENDPOINT_URL lead to",
        ),
        ("{}/other", "{}/other/lake.json is not the identity of a lake"),
        ("hdfs://host/lake", "no lake can lie in hdfs://: use a directory, or s3://"),
    ],
)
async def test_a_path_that_is_no_lake_is_refused_in_one_line(
    tmp_path: Path, path: str, said: str
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "other").mkdir()
    (tmp_path / "other/lake.json").write_text("{}")
    with pytest.raises(ConfigurationError) as refused:
        async with opened(path.format(tmp_path)):
            pass
    (problem,) = refused.value.problems
    assert problem.path == "handlers.lake.path"
    assert said.format(tmp_path) in problem.message
    assert "\n" not in problem.message


async def test_an_object_store_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """This may pass, and is no mistake of the configuration: exit code 1."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(StartRefused, match=r"no lake can be opened at s3://b/lake: "):
        async with opened("s3://b/lake"):
            pass


@pytest.mark.parametrize(
    ("path", "missing", "said"),
    [
        ("x", {"pyarrow"}, "parquet needs pyarrow, not installed here"),
        ("x", {"numpy", "obstore"}, None),
        ("s3://b/x", {"obstore"}, "parquet needs obstore, not installed here"),
        ("s3://b/x", {"pyarrow", "obstore"}, "parquet needs pyarrow, obstore, not installed here"),
    ],
)
def test_a_missing_extra_is_one_error_with_the_command(
    monkeypatch: pytest.MonkeyPatch, path: str, missing: set[str], said: str | None
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        "tailrace.destination.handler_type.find_spec",
        lambda name: None if name in missing else real(name),
    )
    problems = [str(problem) for problem in check_handlers({"lake": settings(path)})]
    how = "pip install '.[lake]' in a checkout, or the image's target lake"
    expected = [f"handlers.lake.type: {said}: {how}"] if said else []
    assert problems == expected


def test_only_a_daemon_with_a_parquet_handler_loads_pyarrow(tmp_path: Path) -> None:
    """pyarrow takes 60 MB, and more if it uses an allocator other than the system's."""
    script = """
import sys, anyio, tailrace.app
from tailrace.destinations.jsonl import JsonlHandlerSettings
from tailrace.handlers.open_handler import open_handler
from tailrace.destinations.parquet import ParquetHandlerSettings
from tests.handlers import opening
async def opened(handler):
    async with open_handler(opening("it"), handler):
        return "pyarrow" in sys.modules
directory = sys.argv[1]
jsonl = JsonlHandlerSettings(type="jsonl", path=directory + "/events.jsonl")
print(anyio.run(opened, jsonl))
print(anyio.run(opened, ParquetHandlerSettings(type="parquet", path=directory + "/lake")))
import pyarrow
print(pyarrow.default_memory_pool().backend_name)
"""
    command = [sys.executable, "-c", script, str(tmp_path)]
    assert subprocess.check_output(command, text=True).split() == ["False", "True", "system"]
