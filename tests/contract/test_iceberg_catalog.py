"""A catalog of Iceberg tables that answers late, loses its answers, refuses, or is not there."""

import socket
from collections.abc import Callable
from pathlib import Path
from threading import Event, Lock
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitStateUnknownException, UnauthorizedError
from pyiceberg.expressions.visitors import _ManifestEvalVisitor
from pyiceberg.table.update import snapshot
from pyiceberg.typedef import KeyDefaultDict

from tailrace.config.catalog import TablesAt
from tailrace.errors import PipelineRefused, TablesFenced
from tailrace.pipeline.location import Location
from tailrace.pipeline.tables import Table, open_store
from tailrace.pipeline.tables.iceberg import IcebergStore, rest
from tests.contract.tables import SCHEMA, iceberg, keys, written


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(iceberg(tmp_path), "changes", SCHEMA, "lake-1", ("scope", "done"), bounded=True)


def failing(
    monkeypatch: pytest.MonkeyPatch, error: Exception, *, after: bool, name: str = "commit_table"
) -> None:
    """The next request to the catalog fails, before or after the catalog has done it."""
    request: Callable[..., Any] = getattr(SqlCatalog, name)

    def fails(self: SqlCatalog, *arguments: Any, **keywords: Any) -> Any:
        monkeypatch.undo()
        if after:
            request(self, *arguments, **keywords)
        raise error

    monkeypatch.setattr(SqlCatalog, name, fails)


LOST = [CommitStateUnknownException("504"), ConnectionResetError("reset"), TimeoutError("late")]


@pytest.mark.parametrize("error", LOST, ids=repr)
@pytest.mark.parametrize("first", [True, False], ids=["first commit", "later commit"])
def test_a_commit_whose_answer_is_lost_is_not_repeated(
    table: Table, monkeypatch: pytest.MonkeyPatch, error: Exception, first: bool
) -> None:
    if not first:
        table.load().commit(written(table, "zero"), segments={"a": 0})
    version = table.load()
    failing(monkeypatch, error, after=True)
    version = version.commit(written(table, "one"), segments={"a": 1})
    assert version.segment("a") == 1
    version = version.commit(written(table, "two"), segments={"a": 2})
    assert keys(version) == (["one", "two"] if first else ["one", "two", "zero"])


@pytest.mark.parametrize("error", [*LOST, UnauthorizedError("expired")], ids=repr)
def test_a_commit_that_fails_may_be_repeated(
    table: Table, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    version = table.load().commit(written(table, "zero"), segments={"a": 0})
    adds = written(table, "one")
    failing(monkeypatch, error, after=False)
    with pytest.raises(
        PipelineRefused, match=r"has not confirmed the commit.*The next run"
    ) as found:
        version.commit(adds, segments={"a": 1})
    assert "\n" not in str(found.value)
    assert table.load().segment("a") == 0
    assert keys(table.load().commit(adds, segments={"a": 1})) == ["one", "zero"]


def test_a_commit_that_arrives_late_keeps_out_its_own_repetition(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client has given up, and another run has read the table, when the catalog commits."""
    version = table.load().commit(written(table, "zero"), segments={"a": 0})
    commit = SqlCatalog.commit_table
    held: list[Callable[[], Any]] = []

    def late(self: SqlCatalog, *arguments: Any) -> Any:
        monkeypatch.undo()
        held.append(lambda: commit(self, *arguments))
        raise TimeoutError

    monkeypatch.setattr(SqlCatalog, "commit_table", late)
    with pytest.raises(PipelineRefused):
        version.commit(written(table, "one"), segments={"a": 1})
    repeated = table.load()
    held[0]()
    with pytest.raises(TablesFenced):
        repeated.commit(written(table, "one"), segments={"a": 1})
    assert keys(table.load()) == ["one", "zero"]


def test_two_writers_with_the_same_segment_are_never_both_accepted(table: Table) -> None:
    table.load().commit(written(table, "zero"), segments={"a": 0})
    one, other = table.load(), table.load()
    one.commit(written(table, "one"), segments={"a": 1})
    with pytest.raises(TablesFenced):
        other.commit(written(table, "one"), segments={"a": 1})
    assert keys(table.load()) == ["one", "zero"]


def test_a_file_is_found_while_other_threads_look_into_other_manifests(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pyiceberg judges each manifest by its partitions, in threads: here one thread has just begun
    with the manifest of the file when another one begins with the next."""
    version = table.load()
    removed = written(table, "one", scope="a")
    version = version.commit(removed, segments={"a": 1})
    version = version.commit(written(table, "two", scope="b"), segments={"a": 2})
    begun, overtaken = Event(), Event()

    class Partitions:
        """Where an evaluator keeps the partitions of the manifest that it is at."""

        def __set__(self, evaluator: Any, partitions: list[Any]) -> None:
            if partitions[0].lower_bound == b"a":
                evaluator.__dict__["partitions"] = partitions
                begun.set()
                assert overtaken.wait(30)
            else:
                assert begun.wait(30)
                evaluator.__dict__["partitions"] = partitions
                overtaken.set()

        def __get__(self, evaluator: Any, _: type) -> Any:
            return evaluator.__dict__["partitions"]

    class OneEach(KeyDefaultDict[Any, Any]):
        """Threads never make two evaluators for one key, as when the first one has ended early."""

        making = Lock()

        def __missing__(self, key: Any) -> Any:
            with self.making:
                return self.get(key) or super().__missing__(key)

    monkeypatch.setattr(_ManifestEvalVisitor, "partition_fields", Partitions(), raising=False)
    monkeypatch.setattr(snapshot, "KeyDefaultDict", OneEach)
    version = version.commit(removes=removed, segments={"a": 3})
    monkeypatch.undo()
    assert keys(version) == ["two"]


def test_properties_of_two_writers_are_both_set(table: Table) -> None:
    table.load().commit(segments={"a": 0})
    one, other = table.load(), table.load()
    one.set_properties({"x": {"n": 1}})
    found = other.set_properties({"y": {"n": 2}})
    assert (found.property("x"), found.property("y")) == ({"n": 1}, {"n": 2})


def test_credentials_that_expire_are_named_in_one_line(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.load().commit(segments={"a": 0})
    expired = UnauthorizedError("Token\nexpired")
    expired.__cause__ = OSError("401 Client Error")  # what pyiceberg has it from
    failing(monkeypatch, expired, after=False, name="load_table")
    with pytest.raises(PipelineRefused, match="cannot be read: UnauthorizedError: Token expired"):
        table.load()


@pytest.mark.parametrize("step", ["create_tables", "create_namespace"])
def test_what_another_process_creates_first_is_used(
    table: Table, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Both have seen that it is not there."""
    failing(monkeypatch, OSError("UNIQUE constraint failed"), after=True, name=step)
    table.store.require_writable()
    assert keys(table.load().commit(written(table, "one"), segments={"a": 1})) == ["one"]


def test_a_rest_catalog_that_never_answers_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rest, "SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        settings = {"type": "rest", "uri": uri}
        for more in ({}, {"credential": "name:secret", "oauth2-server-uri": f"{uri}/token"}):
            store = open_store(TablesAt(str(tmp_path), {**settings, **more}))
            with pytest.raises(PipelineRefused, match=r"cannot be opened: ReadTimeout.* timed out"):
                store.names("current")


def test_a_catalog_that_cannot_be_opened_is_named_in_one_line(tmp_path: Path) -> None:
    for settings, message in (
        ({"type": "sql", "uri": f"sqlite:///{tmp_path}/no/catalog.db"}, "unable to open database"),
        ({"type": "sql", "uri": "nothing://x"}, "nothing"),
        ({"type": "rest", "uri": "http://127.0.0.1:9"}, "Connection refused"),
    ):
        store = open_store(TablesAt(str(tmp_path / "tables"), settings))
        with pytest.raises(PipelineRefused, match=message) as found:
            store.require_writable()
        assert "\n" not in str(found.value)


def test_a_warehouse_without_rights_is_named_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    settings = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"}
    store = open_store(TablesAt(str(tmp_path / "file" / "tables"), settings))
    with pytest.raises(PipelineRefused, match="file/tables: cannot be written: "):
        store.require_writable()


def test_tables_in_another_warehouse_are_refused(table: Table, tmp_path: Path) -> None:
    table.load().commit(segments={"a": 0})
    assert isinstance(table.store, IcebergStore)
    moved = IcebergStore(Location.of(str(tmp_path / "other")), table.store.settings, "tailrace")
    with pytest.raises(PipelineRefused, match=r"'changes' in tailrace.*Give the warehouse"):
        Table(moved, "changes", SCHEMA, "lake-1").load()


def test_a_table_of_somebody_else_is_refused(table: Table, tmp_path: Path) -> None:
    store = table.store
    assert isinstance(store, IcebergStore)
    store.catalog.create_namespace("tailrace")
    store.catalog.create_table(("tailrace", "changes"), schema=table_schema())
    with pytest.raises(PipelineRefused, match="is not a table of this pipeline"):
        table.load()


def table_schema() -> Any:
    from pyiceberg.schema import Schema

    return Schema()
