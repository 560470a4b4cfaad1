"""The file of dead letters when its lines, its disk, its path or its neighbours are not right."""

# ruff: noqa: ASYNC240 - the files are small, and the loop has nothing else to do

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import bson
import pytest
from bson import json_util
from structlog.testing import capture_logs

from tailrace.dead_letters import shared_file
from tailrace.dead_letters.jsonl import JsonlDeadLetters
from tailrace.errors import ConfigurationError, DeadLetterError
from tests.contract.dead_letter_stores import AT, key, letter
from tests.unit.engine.changes import change, until

ROOT = Path(__file__).parents[2]

PROGRAM = """
import asyncio, os, resource, signal, sys
import anyio
from pathlib import Path
from tailrace.dead_letters.jsonl import JsonlDeadLetters
from tailrace.errors import TailraceError
from tests.contract.dead_letter_stores import letter

async def main(path):
    become_nobody()
{}

def become_nobody():
    # The environment may be root's alone: what is imported late is imported before.
    anyio.CapacityLimiter(1)
    if os.getuid() == 0 and sys.argv[2:] == ["nobody"]:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)

try:
    asyncio.run(main(Path(sys.argv[1])))
except TailraceError as error:
    print(f"{{type(error).__name__}}: {{error}}")
"""


async def run(path: Path, body: str, *arguments: str, code: int = 0) -> str:
    """Runs the lines of ``body`` in another process; returns what it printed."""
    lines = "\n".join(f"    {line}" for line in body.strip("\n").split("\n"))
    command = [sys.executable, "-c", PROGRAM.format(lines), str(path), *arguments]
    done = await anyio.run_process(command, cwd=ROOT, check=False)
    assert done.returncode == code, done.stderr.decode()
    return done.stdout.decode()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "letters.jsonl"


@pytest.fixture
async def written(path: Path) -> Path:
    """A file of three letters, the second of which is resolved."""
    async with JsonlDeadLetters.open(path) as store:
        for n in range(3):
            await store.add(letter(n))
        await store.resolve(letter(1), "discarded")
    return path


@pytest.fixture
async def store(written: Path) -> AsyncIterator[JsonlDeadLetters]:
    async with JsonlDeadLetters.open(written) as store:
        yield store


def numbers(path: Path) -> list[int]:
    """The events of the letters in a file, each line of which must be whole."""
    text = path.read_text()
    assert text.endswith("\n")
    lines = [json_util.loads(line) for line in text.splitlines()]
    return [line["event"]["documentKey"]["_id"] for line in lines if "event" in line]


class TestLines:
    async def test_are_what_the_documentation_says(self, written: Path) -> None:
        first, _, _, last = written.read_bytes().splitlines()
        kept = letter(0)
        assert json.loads(first) == {
            "letter": kept.id,
            "scope": "orders",
            "handler": "audit",
            "error": "ValueError: no such order",
            "attempts": 5,
            "at": AT.isoformat(),
            "token": json.loads(kept.event.token.to_json()),
            "event": json.loads(
                json_util.dumps(change(0), json_options=json_util.CANONICAL_JSON_OPTIONS)
            ),
        }
        resolved = json.loads(last)
        assert resolved.pop("at").endswith("+00:00")
        assert resolved == {
            "resolved": letter(1).id,
            "scope": "orders",
            "handler": "audit",
            "how": "discarded",
        }

    async def test_have_the_bytes_only_where_they_are_needed(self, path: Path) -> None:
        odd = bson.encode(change(1, fullDocument={"a": {"$oid": "0" * 24}}))  # no ObjectId
        async with JsonlDeadLetters.open(path) as store:
            await store.add(letter(raw=odd))
            await store.add(letter(2))
        one, two = map(json.loads, path.read_text().splitlines())
        assert "raw" in one
        assert "raw" not in two

    async def test_are_not_repeated(self, written: Path, store: JsonlDeadLetters) -> None:
        before = written.read_bytes()
        await store.add(letter(0))
        await store.resolve(letter(1), "replayed")
        assert written.read_bytes() == before


class TestOpening:
    async def test_creates_nothing(self, tmp_path: Path) -> None:
        path = tmp_path / "a" / "b" / "letters.jsonl"
        async with JsonlDeadLetters.open(path) as store:
            assert await store.letters() == []
            assert not await store.resolve(letter(), "replayed")
            assert not await store.holds("orders", "audit", key(1))
            assert list(tmp_path.iterdir()) == []
            await store.add(letter())
        assert numbers(path) == [1]

    async def refusal(self, path: Path) -> str:
        with pytest.raises(ConfigurationError) as caught:
            async with JsonlDeadLetters.open(path):
                raise AssertionError("it was opened")
        (problem,) = caught.value.problems
        assert problem.path == "delivery.dead_letters.path"
        assert str(path) in problem.message
        return problem.message

    async def test_of_a_directory(self, tmp_path: Path) -> None:
        assert "is a directory" in await self.refusal(tmp_path)

    async def test_of_a_device(self) -> None:
        assert "not a regular file" in await self.refusal(Path("/dev/null"))

    async def test_below_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        assert "Not a directory" in await self.refusal(tmp_path / "file" / "letters")
        assert "Not a directory" in await self.refusal(tmp_path / "file" / "deep" / "letters")

    @pytest.mark.parametrize("what", ["file", "directory", "link"])
    async def test_of_what_this_user_may_not_write(self, what: str) -> None:
        """By another user where we are root, to whom every permission is given."""
        with TemporaryDirectory() as name:  # pytest's own directories are closed to others
            path = Path(name) / "letters.jsonl"
            if what == "file":
                path.touch(0o444)
            elif what == "link":
                path.symlink_to(Path(name) / "closed" / "letters.jsonl")
                (Path(name) / "closed").mkdir(0o555)
            path.parent.chmod(0o555 if what == "directory" else 0o777)
            body = "async with JsonlDeadLetters.open(path): print('opened')"
            printed = await run(path, body, "nobody")
            assert not path.exists() or what == "file"
            path.parent.chmod(0o777)
        assert printed.startswith("ConfigurationError: delivery.dead_letters.path: ")
        assert "opened" not in printed


GARBAGE = {
    "not JSON": b"orders: 5",
    "cut": b'{"letter": "5f3a',
    "empty": b"",
    "not a record": b"[]",
    "not UTF-8": b'{"letter": "\xff"}',
    "nested": b"[" * 100_000,
    "nothing in it": b"{}",
    "no event": b'{"letter": "1", "scope": "orders"}',
    "no Extended JSON": b'{"letter": "1", "event": {"a": {"$oid": 5}}}',
    "no base64": b'{"letter": "1", "event": {}, "raw": "?"}',
    "no BSON": b'{"letter":"1","event":{},"raw":"AAAA","scope":"","handler":"","error":"",'
    b'"attempts":1,"at":"2026-01-01T00:00:00Z"}',
    "another way": b'{"resolved": "1", "scope": "o", "handler": "h", "how": "lost", "at": ""}',
    "no time": b'{"resolved": "1", "scope": "o", "handler": "h", "how": "replayed", "at": "5"}',
}


class TestLinesThatCannotBeRead:
    @pytest.mark.parametrize("name", GARBAGE)
    async def test_are_named(self, written: Path, name: str) -> None:
        lines = written.read_bytes().splitlines()
        lines.insert(2, GARBAGE[name])
        before = b"\n".join(lines) + b"\n"
        written.write_bytes(before)
        with pytest.raises(DeadLetterError) as caught:
            async with JsonlDeadLetters.open(written):
                raise AssertionError("it was opened")
        message = str(caught.value)
        assert message.startswith(f"{written}, line 3: the dead letter cannot be read: ")
        assert "Mend it" in message
        assert "\n" not in message
        assert written.read_bytes() == before

    @pytest.mark.parametrize(
        ("field", "value"),
        [("letter", "0" * 12), ("attempts", True), ("at", "today"), ("error", None), ("scope", 5)],
    )
    async def test_are_those_with_a_wrong_field(
        self, written: Path, field: str, value: object
    ) -> None:
        lines = written.read_text().splitlines()
        lines[0] = json.dumps(json.loads(lines[0]) | {field: value})
        written.write_text("\n".join(lines) + "\n")
        with pytest.raises(DeadLetterError, match="line 1: "):
            async with JsonlDeadLetters.open(written):
                raise AssertionError("it was opened")

    async def test_stop_a_running_store_until_they_are_mended(
        self, written: Path, store: JsonlDeadLetters
    ) -> None:
        """Nothing that is held meanwhile is let go."""
        good = written.read_bytes()
        written.write_bytes(b"broken\n" + good)
        for _ in range(2):
            for call in (
                store.add(letter(5)),
                store.letters(),
                store.holds("orders", "audit", key(0)),
                store.resolve(letter(0), "replayed"),
            ):
                with pytest.raises(DeadLetterError, match="line 1: "):
                    await call
            assert set(store.held("orders", "audit")) == {key(0), key(2)}
        written.write_bytes(good)
        await store.add(letter(5))
        assert await store.letters() == [letter(0), letter(2), letter(5)]

    async def test_of_another_file_are_not_cut_off(self, path: Path) -> None:
        path.write_bytes(b"\x89PNG without any end")
        with pytest.raises(DeadLetterError, match=r"line 1: .*cannot be read"):
            async with JsonlDeadLetters.open(path):
                raise AssertionError("it was opened")
        assert path.read_bytes() == b"\x89PNG without any end"


class TestTornLines:
    @pytest.mark.parametrize("torn", [b'{"letter": "5f', b"{", b"\0" * 4096, b'{"a' * 99_999])
    async def test_are_cut_by_the_next_letter_and_by_no_reader(
        self, written: Path, torn: bytes
    ) -> None:
        before = written.read_bytes()
        written.write_bytes(before + torn)
        with capture_logs() as logs:
            async with JsonlDeadLetters.open(written) as store:
                assert await store.letters() == [letter(0), letter(2)]
                assert not await store.resolve(letter(1), "discarded")
                assert written.read_bytes() == before + torn
                await store.add(letter(5))
        assert numbers(written) == [0, 1, 2, 5]
        (log,) = logs
        assert (log["event"], log["bytes"]) == ("dead_letters.torn_line_cut", len(torn))

    async def test_of_another_process_are_cut_by_this_one(
        self, written: Path, store: JsonlDeadLetters
    ) -> None:
        with written.open("ab") as file:
            file.write(b'{"letter": "5f')
        await store.add(letter(5))
        assert numbers(written) == [0, 1, 2, 5]

    async def test_that_lack_only_their_end_are_kept(
        self, written: Path, store: JsonlDeadLetters
    ) -> None:
        """An editor may have written it; and a letter too many is better than one too few."""
        whole = written.read_bytes()
        written.write_bytes(whole[:-1])
        assert [each.id for each in await store.letters()] == [letter(0).id, letter(2).id]
        assert written.read_bytes() == whole

    async def test_of_a_full_disk_are_cut_at_once(self, written: Path) -> None:
        """A file size limit stands for it: the system writes a part, then refuses."""
        body = """
async with JsonlDeadLetters.open(path) as store:
    size = path.stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, resource.RLIM_INFINITY))
    for call in (store.add(letter(5)), store.resolve(letter(0), "replayed")):
        try:
            await call
        except TailraceError as error:
            print(error)
        print(path.stat().st_size - size, len(store.held("orders", "audit")))
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    await store.add(letter(6))
"""
        message = f"{written}: File too large. Nothing was written"
        printed = (await run(written, body)).splitlines()
        assert [line.startswith(message) for line in printed[::2]] == [True, True]
        assert printed[1::2] == ["0 2", "0 2"]
        assert numbers(written) == [0, 1, 2, 6]


class TestProcesses:
    async def test_that_are_killed_lose_nothing_that_was_added(self, path: Path) -> None:
        body = """
async with JsonlDeadLetters.open(path) as store:
    for n in range(3):
        await store.add(letter(n))
    await store.resolve(letter(1), "replayed")
    os.kill(os.getpid(), signal.SIGKILL)
"""
        await run(path, body, code=-signal.SIGKILL)
        async with JsonlDeadLetters.open(path) as store:
            assert await store.letters() == [letter(0), letter(2)]

    async def test_may_add_at_once(self, path: Path) -> None:
        body = """
async with JsonlDeadLetters.open(path) as store:
    for n in range({0}, {0} + 30):
        await store.add(letter(n))
"""
        async with anyio.create_task_group() as group:
            for first in (0, 100):
                group.start_soon(run, path, body.format(first))
        found = numbers(path)
        assert sorted(found) == [*range(30), *range(100, 130)]
        assert [n for n in found if n < 100] == list(range(30))

    async def test_resolve_what_another_adds(self, written: Path, store: JsonlDeadLetters) -> None:
        await run(
            written,
            """
async with JsonlDeadLetters.open(path) as store:
    await store.add(letter(7))
    await store.resolve(letter(0), "replayed")
""",
        )
        assert set(store.held("orders", "audit")) == {key(0), key(2)}
        assert not await store.holds("orders", "audit", key(0))
        assert set(store.held("orders", "audit")) == {key(2), key(7)}

    async def test_that_hold_the_file_are_waited_for(
        self, written: Path, store: JsonlDeadLetters
    ) -> None:
        with written.open("rb") as other:
            fcntl.flock(other, fcntl.LOCK_EX)
            adding = asyncio.create_task(store.add(letter(5)))
            await until(store._lock.locked)  # only the loop can let go, so it must run
            fcntl.flock(other, fcntl.LOCK_UN)
            await adding
        assert numbers(written) == [0, 1, 2, 5]

    async def test_that_do_not_let_go_are_an_error(
        self, written: Path, store: JsonlDeadLetters, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(shared_file, "LOCK_SECONDS", 0)
        with written.open("rb") as other:
            fcntl.flock(other, fcntl.LOCK_EX)
            with pytest.raises(DeadLetterError, match="locked by another process"):
                await store.add(letter(5))
        await store.add(letter(5))

    async def test_share_no_thread_with_others(self, written: Path) -> None:
        shared = anyio.to_thread.current_default_thread_limiter()
        async with JsonlDeadLetters.open(written) as store:
            release, began = threading.Event(), asyncio.Event()
            loop = asyncio.get_running_loop()

            def wait() -> None:
                loop.call_soon_threadsafe(began.set)
                release.wait(5)

            waiting = asyncio.create_task(store._run(wait))
            await began.wait()
            assert shared.borrowed_tokens == 0
            release.set()
            await waiting


class TestAnotherFile:
    async def test_in_its_place_is_read(self, written: Path, store: JsonlDeadLetters) -> None:
        """As by an editor that writes a new file and renames it."""
        lines = written.read_bytes().splitlines(keepends=True)
        new = written.with_name("new")
        new.write_bytes(b"".join(lines[2:]))
        new.rename(written)
        assert not await store.holds("orders", "audit", key(0))
        assert await store.letters() == [letter(2)]
        await store.add(letter(5))
        assert numbers(written) == [2, 5]

    async def test_in_the_same_inode_is_read(self, written: Path, store: JsonlDeadLetters) -> None:
        """As by an editor that writes in place; longer than what was read."""
        other = written.with_name("other.jsonl")
        async with JsonlDeadLetters.open(other) as others:
            for n in range(10, 20):
                await others.add(letter(n))
        written.write_bytes(other.read_bytes())
        assert set(await store.letters()) == {letter(n) for n in range(10, 20)}
        os.truncate(written, 0)
        assert await store.letters() == []
        assert list(store.held("orders", "audit")) == []

    async def test_nowhere_is_an_error(self, written: Path, store: JsonlDeadLetters) -> None:
        """What it holds would be forgotten: put back, everything is as it was."""
        aside = written.with_name("aside")
        written.rename(aside)
        for call in (store.add(letter(5)), store.letters(), store.holds("orders", "audit", 1)):
            with pytest.raises(DeadLetterError, match="was moved or removed"):
                await call
        assert set(store.held("orders", "audit")) == {key(0), key(2)}
        assert not written.exists()
        aside.rename(written)
        await store.add(letter(5))
        assert numbers(written) == [0, 1, 2, 5]

    async def test_does_not_leak_descriptors(self, written: Path, tmp_path: Path) -> None:
        before = len(os.listdir("/proc/self/fd"))
        async with JsonlDeadLetters.open(written) as store:
            for n in range(5):
                new = tmp_path / f"new-{n}"
                new.write_bytes(written.read_bytes())
                new.rename(written)
                await store.add(letter(10 + n))
        assert len(os.listdir("/proc/self/fd")) <= before
        assert numbers(written) == [0, 1, 2, *range(10, 15)]
