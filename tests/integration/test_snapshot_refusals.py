"""Wrong uses of ``tailrace snapshot``: each gives one line of error, and changes nothing."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest
import yaml

from tailrace.cli import main
from tests.daemon import Daemon, Make, until
from tests.machine import free_port
from tests.mongod import ReplicaSet

Ask = Callable[..., tuple[int, str]]


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Ask:
    """Runs ``tailrace snapshot`` with a daemon's configuration; the exit code and the line."""

    def ask(run: Daemon, *arguments: str, **http: Any) -> tuple[int, str]:
        path = run.directory / "asked.yaml"
        chosen = {**run.configuration["http"], **http}
        path.write_text(yaml.safe_dump({**run.configuration, "http": chosen}))
        code = main(["snapshot", *arguments, "--config", str(path)])
        said = capsys.readouterr()
        lines = said.err.splitlines() or said.out.splitlines()
        assert len(lines) == 1 or not said.err, said.err
        assert not said.err or said.err.startswith("tailrace: ")
        return code, lines[0].removeprefix("tailrace: ")

    return ask


def scope(name: str, database: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "database": database, "max_await_time_ms": 200, **fields}


def test_each_refusal_of_tailrace_snapshot_is_one_line(
    mongod: ReplicaSet, database: str, daemon: Make, ask: Ask
) -> None:
    with mongod.client() as client:
        client[database].c.insert_many([{"_id": n} for n in range(2000)])
        client[database].create_collection("v", viewOn="c", pipeline=[])
    slow = {"documents_per_second": 20, "chunk_documents": 2}
    run = daemon(
        mongod.uri,
        scopes=[
            scope("all", database, snapshot=slow),
            scope("one", database, collection="c"),
            scope("broken", database, collection="c", pipeline=[{"$nope": {}}]),
        ],
        routes=[{"scope": name, "handlers": ["file"]} for name in ("all", "one", "broken")],
        http={"port": free_port(), "token": "right-0123456789"},
    )
    code, message = ask(run, "status", "all")
    assert (code, "Connection refused. Does the daemon of" in message) == (1, True)
    run.start(ready=False).until_answers()
    until(lambda: run.status("broken").get("state") == "halted", "the halt")
    until(lambda: run.status("all").get("state") == "caught_up", "the others")

    code, message = ask(run, "start", "all", token="wrong-0123456789")
    assert code == 2
    assert "the daemon refuses this: its token is not the http.token of" in message
    code, message = ask(run, "status", "nope")
    assert (code, "which has: all, one, broken" in message) == (2, True)
    refused = {
        ("start", "one", "--collection", "d"): (2, "scope 'one' follows no collection but 'c'"),
        ("start", "all", "--collection", "d"): (1, "scope 'all' has no collection d"),
        ("start", "all", "--filter", "{odd"): (2, "--filter: the filter is not Extended JSON"),
        ("start", "all", "--filter", "[1]"): (2, "--filter: a filter is a document"),
        ("start", "all", "--filter", '{"$odd": 1}'): (1, "$odd"),
        ("start", "all", "--filter", '{"n": 9223372036854775808}'): (2, "up to 8-byte ints"),
        ("start", "all", "--collection", "\udcff"): (2, "--collection: '\\udcff' is not UTF-8"),
        ("start", "broken"): (1, "scope 'broken' is halted, and its snapshot with it"),
        ("pause", "all"): (1, "scope 'all' has no snapshot under way"),
        ("cancel", "all"): (1, "scope 'all' has no snapshot under way"),
    }
    for arguments, (code, text) in refused.items():
        assert ask(run, *arguments)[0] == code, arguments
        assert text in ask(run, *arguments)[1], arguments

    token = {"Authorization": "Bearer right-0123456789"}
    bare = {"action": "start", "filter": '{"t": "\\ud800"}'}
    url = f"http://127.0.0.1:{run.port}/scopes/all/snapshot"
    answer = httpx.post(url, params=bare, headers=token)
    assert (answer.status_code, "that BSON cannot store" in answer.text) == (400, True)

    assert ask(run, "start", "all")[0] == 0
    later = {
        ("start", "all"): (1, "is not over: cancel it first"),
        ("resume", "all"): (1, "is not paused"),
        ("pause", "all"): (0, "pause of its snapshot is accepted"),
    }
    for arguments, (code, text) in later.items():
        found = ask(run, *arguments)
        assert (found[0], text in found[1]) == (code, True), found
    found = ask(run, "pause", "all")
    assert (found[0], "is paused already" in found[1]) == (1, True), found
    assert ask(run, "cancel", "all")[0] == 0
    assert ask(run, "start", "all", "--collection", "c", "--collection", f"{database}.v")[0] == 0
    assert ask(run, "cancel", "all")[0] == 0
    assert ask(run, "status", "all", "--watch")[0] == 1
    assert "is cancelled" in ask(run, "status", "all")[1]
    assert run.stop() == 0


def test_a_filter_that_the_server_refuses_halts_the_scope_until_it_is_corrected(
    mongod: ReplicaSet, database: str, daemon: Make
) -> None:
    """The stream itself is accepted: its position and its pipeline are not at fault."""
    with mongod.client() as client:
        client[database].c.insert_many([{"_id": n} for n in range(20)])
    broken = {"mode": "initial", "filter": {"n": {"$nope": 1}}}
    run = daemon(mongod.uri, scopes=[scope("orders", database, snapshot=broken)])
    run.start(ready=False)
    assert "correct the scope's snapshot" in run.halts()
    run.configuration["scopes"][0]["snapshot"]["filter"] = {"_id": {"$lt": 5}}
    run.configured()
    run.start()
    run.until_copied()
    assert run.stop() == 0
    assert [each["operationType"] for each in run.events()].count("read") == 5
