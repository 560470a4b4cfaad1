"""A damaged store: a documented exit code, one clear message, and no changes."""

import io
import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import bson
import hypothesis.strategies as st
import pytest
import yaml
from hypothesis import given, settings

from tailrace.cli import main
from tailrace.stores.sqlite import open_store
from tests.contract.stores import checkpoint, gap, letter
from tests.unit.engine.changes import ddl

STORE = "tailrace.db"
READS = (
    ("checkpoints", "list"),
    ("checkpoints", "show", "orders"),
    ("checkpoints", "show", "orders", "--json"),
    ("checkpoints", "reset", "orders", "--dry-run"),
    ("dead-letters", "list"),
    ("dead-letters", "show", letter(2).id),
    ("dead-letters", "export"),
)
WRITES = (("checkpoints", "reset", "orders"),)
CONFIGURATION = {
    "mongodb": {"uri": "mongodb://localhost:1/?replicaSet=rs0", "connect_timeout_seconds": 0.1},
    "http": {"port": 0},
    "scopes": [{"name": "orders", "database": "shop", "collection": "orders"}],
    "handlers": {"audit": {"type": "log"}},
    "routes": [{"scope": "orders", "handlers": ["audit"]}],
}


@contextmanager
def files() -> Iterator[Path]:
    """A directory with a configuration, and a store of thirty scopes and some letters."""
    with TemporaryDirectory() as name:
        directory = Path(name)
        (directory / STORE).write_bytes(WHOLE)
        store = {"store": {"path": str(directory / STORE)}}
        (directory / "config.yaml").write_text(yaml.safe_dump({**CONFIGURATION, **store}))
        yield directory


async def _whole() -> bytes:
    with TemporaryDirectory() as name:
        path = anyio.Path(name, STORE)
        async with open_store(Path(path)) as store:
            for number in range(30):
                scope = "orders" if number == 7 else f"scope-{number:02}"
                await store.checkpoints.save(checkpoint(scope, fingerprint="f" * 200))
            await store.checkpoints.record_gap(gap("orders"))
            for number in (1, 2, 3, 4):
                await store.dead_letters.add(letter(number, key=number % 2), 1)
            await store.dead_letters.add(letter(raw=bson.encode(ddl(5))), 1)
            await store.dead_letters.resolve(letter(1, key=1), "replayed")
        return await path.read_bytes()


WHOLE = anyio.run(_whole)


def call(directory: Path, command: Sequence[str]) -> tuple[int, str, str]:
    """Exit code, output and errors, as a terminal or a pipe would get them."""
    out, err = io.BytesIO(), io.BytesIO()
    with redirect_stdout(io.TextIOWrapper(out, "utf-8", write_through=True)) as printed:  # noqa: SIM117
        with redirect_stderr(io.TextIOWrapper(err, "utf-8", write_through=True)) as message:
            code = main([*command, "--config", str(directory / "config.yaml")])
            texts = out.getvalue().decode(), err.getvalue().decode()
    printed.detach()
    message.detach()
    return code, *texts


def assert_settled(directory: Path, command: Sequence[str]) -> None:
    """The command ends as documented, and does not change a file that it cannot read."""
    before = (directory / STORE).read_bytes()
    code, out, err = call(directory, command)
    assert code in (0, 1, 2)
    assert "Traceback" not in out + err
    if code:
        (line,) = err.splitlines()
        assert line.startswith("tailrace: ")
    if command in READS or (code and not out):
        assert (directory / STORE).read_bytes() == before


@st.composite
def damages(draw: st.DrawFn) -> bytes:
    """The store with a few bytes changed, removed, inserted, zeroed or cut off."""
    damaged = bytearray(WHOLE)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(damaged) - 1, 0)))
        # Changes in the first pages have more effect.
        at = min(at, draw(st.sampled_from((100, 300, 4096, len(damaged)))))
        # Changed, removed, inserted, zeroed or cut off.
        length, content = draw(
            st.one_of(
                st.tuples(st.just(1), st.binary(min_size=1, max_size=8)),
                st.tuples(st.integers(1, 200), st.just(b"")),
                st.tuples(st.just(0), st.sampled_from([b'"', b"\n", b"null", b"\xff"])),
                st.just((4096, bytes(4096))),
                st.just((len(damaged), b"")),
            )
        )
        damaged[at : at + length] = content
    return bytes(damaged)


@settings(deadline=None, max_examples=70)
@given(damages(), st.sampled_from(READS + WRITES))
def test_damaged_bytes(damaged: bytes, command: Sequence[str]) -> None:
    with files() as directory:
        (directory / STORE).write_bytes(damaged)
        assert_settled(directory, command)


COLUMNS = ("scope", "handler", "letter", "key", "event", "error", "attempts", "at")
VALUES = (True, -1, 1e300, "", "x", b"", b"\xff", bson.encode({"_id": 5}), "\0\x1b[2J\n")


@settings(deadline=None, max_examples=70)
@given(st.sampled_from(COLUMNS), st.sampled_from(VALUES), st.sampled_from(READS + WRITES))
def test_any_column_of_a_letter(column: str, value: Any, command: Sequence[str]) -> None:
    """``tests/unit/model/test_stored_record.py`` damages the fields of other records."""
    with files() as directory:
        change = f"UPDATE dead_letters SET {column} = ? WHERE number = 2"
        execute(directory / STORE, change, value)
        assert_settled(directory, command)


SCHEMAS = {
    "a view": (
        "ALTER TABLE checkpoints RENAME TO old",
        "CREATE VIEW checkpoints AS SELECT * FROM old",
    ),
    "a trigger": (
        "CREATE TRIGGER no BEFORE INSERT ON checkpoints BEGIN SELECT RAISE(ABORT, 'a\nb'); END",
    ),
    "no keys": (
        "DROP TABLE checkpoints",
        "CREATE TABLE checkpoints (scope, epoch, sequence, document)",
    ),
    "another column of letters": ("ALTER TABLE dead_letters RENAME COLUMN error TO body",),
    "an index of nonsense": ("CREATE INDEX i ON checkpoints (json_extract(document, '$.x'))",),
    "an older version": ("PRAGMA user_version = 2",),
    "an order of text": ("UPDATE checkpoints SET epoch = 'many' WHERE scope = 'orders'",),
    "the greatest order": (f"UPDATE checkpoints SET epoch = {2**63 - 1}",),
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_another_schema(name: str) -> None:
    for command in READS + WRITES:
        with files() as directory:
            for statement in SCHEMAS[name]:
                execute(directory / STORE, statement)
            assert_settled(directory, command)


def test_a_schema_that_is_no_text() -> None:
    """SQLite quotes it in its message, and Python cannot decode that message."""
    at = WHOLE.index(b"CREATE TABLE checkpoints")
    with files() as directory:
        (directory / STORE).write_bytes(WHOLE[: at + 13] + b"\xa1\xa1" + WHOLE[at + 15 :])
        for command in READS + WRITES:
            assert call(directory, command)[0] == 2
            assert_settled(directory, command)


@pytest.mark.parametrize("command", [("run",), READS[0]], ids=str)
def test_a_process_names_the_file(command: Sequence[str]) -> None:
    with files() as directory:
        damaged = b"\n\xff" + WHOLE[:5000]
        (directory / STORE).write_bytes(damaged)
        ended = subprocess.run(
            [sys.executable, "-m", "tailrace", *command, "--config", directory / "config.yaml"],
            capture_output=True,
            text=True,
        )
        assert "Traceback" not in ended.stdout + ended.stderr
        assert (directory / STORE).read_bytes() == damaged
        assert ended.returncode in (1, 2)
        *_, line = ended.stderr.splitlines()
        result = json.loads(line)["reason"] if command == ("run",) else line
        assert str(directory / STORE) in result


def execute(path: Path, sql: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(sql, values)
