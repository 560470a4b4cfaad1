"""A service that listens beyond loopback, as in a container, and has no configured token."""

import json
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.daemon import Make, until
from tests.machine import free_port
from tests.mongod import ReplicaSet

REFUSE = """\
async def refuse(event):
    raise ValueError(f"cannot take {event.document_key['_id']}")
"""


def test_its_own_commands_need_no_token_and_others_do(
    mongod: ReplicaSet, database: str, daemon: Make
) -> None:
    run = daemon(
        mongod.uri,
        scopes=[{"name": "orders", "database": database, "max_await_time_ms": 200}],
        http={"host": "0.0.0.0", "port": free_port()},
        handlers={"mine": {"type": "python", "target": "mine:refuse", "on_failure": "dead_letter"}},
        routes=[{"scope": "orders", "handlers": ["mine"]}],
        delivery={"retry": {"attempts": 1}},
    )
    (run.directory / "mine.py").write_text(REFUSE)
    run.start()
    with mongod.client() as client:
        client[database].c.insert_one({"_id": "anna"})
    (letter,) = until(lambda: run.logged("event.dead_lettered"), "the dead letter")
    for path in ("/status", "/readyz", "/history", "/metrics", "/"):
        assert "anna" not in run.get(path)[1]
    assert run.get("/dead-letters")[0] == 401
    with (
        pytest.raises(HTTPError) as refused,
        urlopen(
            Request(f"http://127.0.0.1:{run.port}/reload", b"{}", {"Tailrace-Change": "1"}),
            timeout=30,
        ),
    ):
        pass
    with refused.value as error:
        assert (error.code, b"the file that the service's log names" in error.read()) == (401, True)

    assert "paused" in run.command("scopes", "pause", "orders")
    with run.begun("status") as status:
        out, _ = status.communicate(60)
    assert (status.returncode, "next: tailrace scopes resume orders" in out) == (1, True)
    assert "resumed" in run.command("scopes", "resume", "orders")
    assert run.refused("scopes", "restart", "orders")[0] == 1
    assert "anna" in run.command("why", "--scope", "orders", "--key", '"anna"')
    assert "cannot take anna" in run.command("dead-letters", "list")
    assert "nothing has changed" in run.command("reload")
    assert "snapshot" in run.command("snapshot", "start", "orders")
    until(lambda: "dead letter" in run.command("health", "--ready"), "the reason")
    run.command("dead-letters", "discard", str(letter["event_id"]))

    file, (start,) = run.directory / "tailrace.token", run.logged("service.starting")
    assert start["changes_need"] == f"the token in {file}"
    assert run.log.startswith('{"page": "http')
    assert start["page"] == f"http://127.0.0.1:{run.port}/"
    assert file.stat().st_mode & 0o777 == 0o600
    bearer = {"Authorization": f"Bearer {file.read_text().strip()}"}
    asked = Request(f"http://127.0.0.1:{run.port}/status", headers=bearer)
    with urlopen(asked, timeout=30) as answer:
        assert "handler 'mine'" in json.loads(answer.read())["scopes"]["orders"]["last_error"]
    file.write_text("another-token-0123456789")
    assert "paused" in run.command("scopes", "pause", "orders")
    run.kill()
    run.start()
    assert "resumed" in run.command("scopes", "resume", "orders")
    assert run.stop() == 0
