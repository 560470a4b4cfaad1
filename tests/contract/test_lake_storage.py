"""Every storage of a lake behaves the same, and so do lakes in each of them."""

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path

import bson
import pytest

from tailrace.destinations.parquet.landing import Landing
from tailrace.engine import RunIdentity
from tailrace.errors import CheckpointFenced, SegmentUnreadable, Unavailable
from tailrace.lake.segment import Documents
from tailrace.lake.storage import Draft, Storage
from tailrace.lake.writable_lake import WritableLake, open_storage
from tailrace.model import SinkPosition
from tests.lake import land
from tests.s3 import S3
from tests.scratch import MakeDirectory
from tests.unit.engine.changes import change, time, token

OWNER = RunIdentity("orders", "rs0/1", "f", 1)


@pytest.fixture(scope="module")
def s3(session_directory: MakeDirectory) -> Iterator[S3]:
    server = S3(session_directory("s3"))
    yield server
    server.kill()


@pytest.fixture
def environment(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(params=["directory", "s3"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A path where nothing exists yet."""
    if request.param == "directory":
        return str(tmp_path / "deep" / "lake")
    request.getfixturevalue("environment")
    return f"s3://lake/{uuid.uuid4().hex}/deep"


@pytest.fixture
def storage(path: str) -> Storage:
    return open_storage(path)


def test_what_is_put_is_listed_and_read(storage: Storage) -> None:
    assert list(storage.list("orders")) == []
    storage.put("orders/b", b"123456789")
    storage.put("orders/a", b"")
    storage.put("lake.json", b"{}")
    storage.put("carts/c", b"1")
    assert sorted(storage.list("orders")) == ["a", "b"]
    assert storage.read("orders/b") == b"123456789"
    assert storage.read("orders/a") == storage.read("orders/a", 10) == b""


def test_nothing_is_ever_overwritten(storage: Storage) -> None:
    storage.put("orders/a", b"first")
    with pytest.raises(FileExistsError):
        storage.put("orders/a", b"second")
    assert storage.read("orders/a") == b"first"
    assert list(storage.list("orders")) == ["a"]


def test_one_of_the_writers_that_race_for_a_name_wins(path: str) -> None:
    """Each writer has a connection of its own, as a process has."""
    storages = [open_storage(path) for _ in range(4)]

    def won(number: int, name: str) -> bool:
        try:
            storages[number].put(name, b"%d" % number)
        except FileExistsError:
            return False
        return True

    with ThreadPoolExecutor(len(storages)) as pool:
        for name in ("orders/a", "orders/b", "orders/c"):
            outcome = list(pool.map(won, range(len(storages)), repeat(name)))
            assert outcome.count(True) == 1
            assert storages[0].read(name) == b"%d" % outcome.index(True)


def test_reading_what_is_not_there_is_an_error(storage: Storage) -> None:
    for last in (None, 10):
        with pytest.raises(FileNotFoundError) as missing:
            storage.read("orders/a", last)
        assert "\n" not in str(missing.value)


def test_a_draft_is_nothing_until_it_is_finished(storage: Storage) -> None:
    draft = storage.create("orders/a")
    for data in (b"one ", b"two ", b"", b"three"):
        draft.write(data)
    assert list(storage.list("orders")) == []
    with pytest.raises(FileNotFoundError):
        storage.read("orders/a")
    draft.finish()
    draft.discard()
    assert list(storage.list("orders")) == ["a"]
    assert storage.read("orders/a") == b"one two three"


def test_the_first_finished_of_two_drafts_with_one_name_counts(storage: Storage) -> None:
    late, early = storage.create("orders/a"), storage.create("orders/a")
    late.write(b"late")
    early.write(b"early")
    early.finish()
    storage.tidy("orders")  # deletes the other writer's draft
    late.write(b" and more")
    with pytest.raises(FileExistsError):
        late.finish()
    assert storage.read("orders/a") == b"early"


# --- lakes ---------------------------------------------------------------------------------


def test_the_older_of_two_writers_is_fenced(path: str) -> None:
    old, new = (Landing(WritableLake.open(path), "orders", Documents.BSON) for _ in range(2))
    old.begin(OWNER)
    new.begin(OWNER)
    with pytest.raises(CheckpointFenced, match="was written by another process"):
        land(old, [bson.encode(change(n)) for n in (1, 2)])
    land(new, [bson.encode(change(1))])
    assert WritableLake.open(path).footer("orders", 2).rows == 1


def test_a_write_whose_answer_was_lost_is_recognised(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = WritableLake.open(path)
    one = Landing(lake, "orders", Documents.BSON)
    one.begin(OWNER)
    kind = type(lake.storage.create("orders/x"))
    real = kind.finish

    def finish(draft: Draft) -> None:
        real(draft)  # type: ignore[arg-type]
        raise OSError("the connection broke")

    with monkeypatch.context() as patch:
        patch.setattr(kind, "finish", finish)
        with pytest.raises(Unavailable, match="the connection broke: it is tried again"):
            land(one, [bson.encode(change(1))])
    assert one.begin(OWNER) == SinkPosition(token(1), time(1), "f")
    land(one, [bson.encode(change(2))])
    assert lake.segments("orders") == [0, 1, 2]


@pytest.mark.parametrize("text", [b"", b"[]", b'{"format": 2, "id": "x"}', b'{"format": 1}'])
def test_a_lake_of_something_else_is_refused(path: str, text: bytes) -> None:
    open_storage(path).put("lake.json", text)
    with pytest.raises(SegmentUnreadable, match=r"lake.json is not the identity of a lake: "):
        WritableLake.open(path)


def test_a_storage_that_overwrites_is_refused(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some S3 servers ignore the condition of a write, so nothing would fence a second writer.

    The lake keeps its identity, because it may have been copied from a storage that works.
    """
    kind = type(open_storage(path))
    before = WritableLake.open(path).storage.read("lake.json")
    put: list[tuple[str, bytes]] = []
    monkeypatch.setattr(kind, "put", lambda _, name, data: put.append((name, data)))
    with pytest.raises(ValueError, match="ignores 'If-None-Match"):
        WritableLake.open(path)
    assert put == [("lake.json", before)]


@pytest.mark.usefixtures("environment")
def test_a_bucket_that_is_not_there_is_refused() -> None:
    for call in (lambda lake: lake.list("a"), lambda lake: lake.put("a", b"")):
        with pytest.raises(FileNotFoundError, match="NoSuchBucket") as missing:
            call(open_storage("s3://elsewhere/x"))
        assert "s3://elsewhere/x" in str(missing.value)
        assert "\n" not in str(missing.value)
