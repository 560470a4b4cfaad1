"""``tailrace check --connect`` tries what ``run`` needs: a line for each part, and no trace."""

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tailrace.lake.writable_lake import WritableLake, open_storage
from tests.daemon import Daemon, Make
from tests.mongod import ReplicaSet
from tests.orders import Orders
from tests.s3 import S3

SINK = """
from pathlib import Path

class Sink:
    async def __aenter__(self):
        if Path("refuse").exists():
            raise ConnectionError("no broker")
        return self

    async def __aexit__(self, *error):
        pass

    async def __call__(self, event):
        pass
"""
HANDLERS = {
    "file": {"type": "jsonl", "path": "out/events.jsonl"},
    "lake": {"type": "parquet", "path": "lake/of/mine"},
    "log": {"type": "log"},
    "sink": {"type": "python", "target": "mine:Sink"},
}
ALL = [{"scope": "orders", "handlers": list(HANDLERS)}]


def checked(run: Daemon) -> tuple[int, list[str], list[str]]:
    """The exit code of the check, and the lines of its output and of its errors."""
    run.configured()
    with run.begun("check", "--connect") as process:
        out, err = process.communicate(timeout=60)
    assert "Traceback" not in err
    return process.returncode, out.splitlines(), err.splitlines()


def traces(directory: Path) -> dict[str, str]:
    """Every file and directory below one, with a digest of its content."""
    return {
        str(path): sha256(path.read_bytes()).hexdigest() if path.is_file() else "directory"
        for path in directory.rglob("*")
        if "__pycache__" not in path.parts and path.name != "config.yaml"
    }


def everything(orders: Orders, **sections: Any) -> Daemon:
    """A daemon with a handler of each type."""
    sections = {"handlers": HANDLERS, "routes": ALL, "store": {"path": "data/t.db"}, **sections}
    return orders.daemon(source=SINK, **sections)


def test_a_first_start_is_tried_and_nothing_is_created(orders: Orders) -> None:
    run = everything(orders)
    before = traces(run.directory)
    code, out, err = checked(run)
    assert (code, err) == (0, [])
    assert out[1:6] == [
        "store: data/t.db can be created",
        "handler file: out/events.jsonl can be created",
        "handler lake: a lake can be created at lake/of/mine",
        "handler log: writes to the log",
        "handler sink: mine:Sink starts",
    ]
    assert traces(run.directory) == before


def test_what_a_run_has_left_is_tried_and_stays_as_it_is(orders: Orders) -> None:
    run = everything(orders).start()
    orders.insert(1)
    run.until_events(1, "out/events.jsonl")
    assert run.stop() == 0
    with (run.directory / "out/events.jsonl").open("ab") as file:
        file.write(b'{"_id": ')  # a crash in mid line, which the next start repairs
    before = traces(run.directory)
    code, out, err = checked(run)
    assert (code, err) == (0, [])
    assert out[1:4] == [
        "store: data/t.db can be written",
        "handler file: out/events.jsonl can be appended to",
        "handler lake: the lake lake/of/mine can be written; "
        "scope orders continues after segment 1",
    ]
    assert traces(run.directory) == before


def test_a_running_daemon_is_no_obstacle(orders: Orders) -> None:
    run = everything(orders).start()
    code, out, err = checked(run)
    assert (code, err) == (0, [])
    assert out[2] == (
        "handler file: out/events.jsonl is there; another process writes it now, perhaps the daemon"
    )
    orders.insert(1)
    run.until_events(1, "out/events.jsonl")
    assert run.stop() == 0


def in_the_way(name: str) -> Callable[[Daemon], None]:
    def put(run: Daemon) -> None:
        (run.directory / name).write_text("in the way")

    return put


def damaged_segment(run: Daemon) -> None:
    run.start()
    run.until_ready()
    assert run.stop() == 0
    for path in (run.directory / "lake/of/mine/orders").iterdir():
        path.write_bytes(b"PAR1")


FAULTS: dict[str, tuple[Callable[[Daemon], None], str]] = {
    "store": (in_the_way("data"), "store.path: "),
    "file": (in_the_way("out"), "handlers.file.path: cannot append to out/events.jsonl: "),
    "lake": (in_the_way("lake"), "handlers.lake.path: no lake can be opened at lake/of/mine: "),
    "segment": (
        damaged_segment,
        "handler lake: lake/of/mine/orders/seg-000000000000.parquet: is damaged",
    ),
    "sink": (
        in_the_way("refuse"),
        "handlers.sink: Sink cannot be opened: ConnectionError: no broker. 'tailrace run' starts, ",
    ),
}


@pytest.mark.parametrize("part", FAULTS)
def test_what_would_end_a_start_is_one_line(orders: Orders, part: str) -> None:
    """The other parts are tried as well."""
    damage, message = FAULTS[part]
    run = everything(orders)
    damage(run)
    before = traces(run.directory)
    code, out, err = checked(run)
    assert code == 1
    (line,) = err
    assert line.startswith(f"tailrace: {message}"), line
    assert len([each for each in out if each.startswith(("store: ", "handler "))]) == 4
    assert any(each.startswith("scope orders: ") for each in out)
    assert traces(run.directory) == before


def test_a_lake_of_another_cluster_is_told(mortal: ReplicaSet, orders: Orders) -> None:
    run = everything(orders).start()
    assert run.stop() == 0
    run.configuration["mongodb"]["uri"] = mortal.uri
    code, _, (line,) = checked(run)
    assert code == 1
    assert line.startswith("tailrace: handler lake: scope 'orders': ")
    assert "was landed from the cluster" in line


def test_a_lake_in_a_bucket_is_tried_without_an_object(
    orders: Orders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3, path = S3(tmp_path), f"s3://lake/{tmp_path.name}"
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    try:
        run = orders.daemon(
            handlers={"lake": {"type": "parquet", "path": path}},
            routes=[{"scope": "orders", "handlers": ["lake"]}],
        )
        code, out, err = checked(run)
        assert (code, err) == (0, [])
        assert out[2].startswith(f"handler lake: {path} can be read, and has no lake yet")
        assert open_storage(path).list("") == []
        lake = WritableLake.open(path)
        message = "can be written; scope orders begins with segment 0"
        assert checked(run)[1][2] == f"handler lake: the lake {path} {message}"
        assert (lake.storage.list(""), lake.segments("orders")) == (["lake.json"], [])
    finally:
        s3.kill()


@pytest.mark.parametrize("role", ["readWrite", "read", "none"])
def test_the_rights_on_the_store_are_tried_without_a_write(
    guarded: ReplicaSet, daemon: Make, role: str
) -> None:
    name = f"store_{role}"
    roles = [{"role": "read", "db": "shop"}]
    if role != "none":
        roles.append({"role": role, "db": name})
    with guarded.client() as client:
        client.admin.command("createUser", name, pwd="right", roles=roles)
        run = daemon(guarded.uri_as(name, "right"), store={"type": "mongodb", "database": name})
        code, out, err = checked(run)
        assert name not in client.list_database_names()
    if role == "readWrite":
        assert (code, err) == (0, [])
        assert f"store: the database {name} can be written" in out
    else:
        assert code == 1
        (line,) = err
        message = f"the user may not write {name}.checkpoints: grant the role readWrite on {name}"
        assert line.startswith(f"tailrace: store: {message} (line ")
        assert any(each.startswith("scope orders: ") for each in out)


def test_unused_images_are_reported(orders: Orders) -> None:
    """It also reports the number of streams. Stored images that a scope uses are not reported."""
    run = orders.daemon(scope={"full_document": "updateLookup"})
    with orders.server.client() as client:
        for name in ("orders", "users"):
            images = {"enabled": True}
            client[orders.database].create_collection(name, changeStreamPreAndPostImages=images)
    users = orders.scope(
        name="users", collection="users", full_document_before_change="whenAvailable"
    )
    run.configuration["scopes"].append(users)
    run.configuration["routes"].append({"scope": "users", "handlers": ["file"]})
    code, lines, _ = checked(run)
    assert code == 0
    found = [line.removeprefix("cost: ") for line in lines if line.startswith("cost: ")]
    assert found[0].startswith("2 change streams (2 on a collection): ")
    (images,) = found[1:]
    assert images.startswith(f"{orders.database}.orders stores images of each change")
    assert any(line.startswith("scope orders: full_document: lookup gives") for line in lines)


def test_collections_without_required_images_are_named(orders: Orders) -> None:
    run = orders.daemon(scope={"full_document": "required", "collection": None})
    with orders.server.client() as client:
        images = {"enabled": True}
        client[orders.database].create_collection("stored", changeStreamPreAndPostImages=images)
        for name in ("bare", "plain"):
            client[orders.database].create_collection(name)
    code, out, err = checked(run)
    assert code == 1
    (line,) = err
    assert f"stores none for {orders.database}.bare, {orders.database}.plain: " in line
    assert any(each.endswith("can be followed") for each in out)


@pytest.mark.parametrize(("there", "meant"), [("orders", "orders"), ("Ordres", "Ordres")])
def test_a_collection_that_does_not_exist_is_told(orders: Orders, there: str, meant: str) -> None:
    """It can be followed, and may be created later."""
    run = orders.daemon(scope={"collection": "ordres"})
    with orders.server.client() as client:
        client[orders.database].create_collection(there)
    code, out, err = checked(run)
    assert (code, err) == (0, [])
    (line,) = (each for each in out if "warning" in each)
    assert line.startswith(
        f"scope orders: warning: there is no collection {orders.database}.ordres"
    )
    assert line.endswith(f"did you mean {meant}?")


@pytest.mark.parametrize("collection", ["orders", "cancellation.policies"])
@pytest.mark.parametrize("mode", ["never", "initial"])
def test_rights_on_a_single_collection_suffice_for_changes(
    guarded: ReplicaSet, daemon: Make, mode: str, collection: str
) -> None:
    name = f"single_{mode}_{len(collection)}"
    resource = {"db": "shop", "collection": collection}
    privileges = [{"resource": resource, "actions": ["find", "changeStream"]}]
    with guarded.client() as client:
        client.admin.command("createRole", name, privileges=privileges, roles=[])
        client.admin.command("createUser", name, pwd="right", roles=[name])
        client.shop[collection].insert_one({"_id": name})
    scope = {"collection": collection, "snapshot": mode, "full_document": "lookup"}
    run = daemon(guarded.uri_as(name, "right"))
    run.configuration["scopes"][0] |= scope
    code, out, err = checked(run)
    assert f"scope orders: shop.{collection} can be followed" in out
    assert not any("warning: there is no" in each for each in out)
    if mode == "never":
        assert (code, err) == (0, [])
    else:
        assert code == 1
        (line,) = err
        assert "needs the action 'listCollections' on the database 'shop'" in line


def test_handlers_that_begin_otherwise_and_the_streams_of_those_behind_are_told(
    orders: Orders,
) -> None:
    orders.insert(1, 2)
    late = {"scope": "orders", "handlers": ["log"], "snapshot": "initial"}
    handlers = {"file": {"type": "jsonl", "path": "events.jsonl"}, "log": {"type": "log"}}
    run = orders.daemon(handlers=handlers, routes=[{"scope": "orders", "handlers": ["file"]}, late])
    code, out, err = checked(run)
    assert (code, err) == (0, [])
    told = "about 2 existing documents are"
    assert f"scope orders: handlers file: {told} not delivered, only changes are" in "\n".join(out)
    assert f"scope orders: handlers log: {told} delivered at its first start" in "\n".join(out)
    (line,) = (each for each in out if "more while handlers are behind" in each)
    assert line.startswith("cost: up to 1 more while")
    command = "tailrace: config.yaml: 'snapshot: never' delivers changes only"
    with run.begun("check") as process:
        _, said = process.communicate(timeout=60)
    assert said.startswith(command)
    assert said.endswith(": orders (handler file)\n")


def test_the_key_of_a_snapshot_that_the_server_cannot_serve_is_named(orders: Orders) -> None:
    orders.insert(1)
    run = orders.daemon()
    run.configuration["routes"][0]["snapshot"] = {"mode": "initial"}
    orders.server.fail("find", appName="tailrace", errorCode=72)
    code, _, err = checked(run)
    assert code == 1
    (line,) = err
    assert line.startswith("tailrace: routes[0].snapshot: orders: ")
    assert "set snapshot: never" in line
