"""``tailrace compat`` asks real servers, tells nobody's data, and leaves no database behind."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tailrace.cli import main
from tailrace.compat.database import PREFIX
from tests.mongod import ReplicaSet, Standalone

HERE = "not supported here"
OF_6_0_5 = {
    "server.time_limit": HERE,
    "event.paths": "no",
    "event.split": HERE,
    "sharding.key": HERE,
    "sharding.lookup": HERE,
    "refusal.history": HERE,
}
"""The answers of a replica set of this version that are not yes."""
BY_FEW_RIGHTS = {
    "server.cursors": "not allowed",
    "server.time_limit": "not allowed",
    "server.compatibility": "not allowed",
    "server.storage": "not allowed",
    "server.identity": "no",
    "server.oplog": HERE,
    "event.expanded": "not allowed",
    "invalidate.database": "not allowed",
}


def other_answers(report: Mapping[str, Any]) -> dict[str, str]:
    """Those that are not yes."""
    return {
        each["question"]: each["answer"] for each in report["answers"] if each["answer"] != "yes"
    }


def require_private(text: str, *secrets: str) -> None:
    for secret in (*secrets, "127.0.0.1", "rs0", PREFIX, socket.gethostname(), "mongodb://"):
        assert secret not in text


def databases(server: ReplicaSet) -> set[str]:
    with server.client() as client:
        return {*client.list_database_names()}


def left(server: ReplicaSet) -> set[str]:
    return {name for name in databases(server) if name.startswith(PREFIX)}


def test_a_server_answers_every_question(
    mongod: ReplicaSet, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, command = tmp_path / "report.json", ["compat", "--uri", mongod.uri]
    assert main([*command, "--elections", "--json", "--output", str(file)]) == 0
    out, err = capsys.readouterr()
    report = json.loads(out)
    assert json.loads(file.read_text()) == report
    assert other_answers(report) == OF_6_0_5
    assert report["works"]
    assert report["answers"][0]["facts"] == {
        "version": "6.0.5",
        "wire_version": 17,
        "topology": "replica set",
        "members": 1,
        "edition": "community",
    }
    require_private(out + err, str(mongod.ports[0]))
    assert left(mongod) == set()


def test_a_user_with_few_rights_learns_what_they_allow(
    guarded: ReplicaSet, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the other driver, and in a database that the user names."""
    with guarded.client() as client:
        roles = [{"role": "readWrite", "db": "bramble"}, {"role": "read", "db": "other"}]
        client.admin.command("createUser", "adele", pwd="hunter42", roles=roles)
    command = ["compat", "--uri", guarded.uri_as("adele", "hunter42"), "--driver", "pymongo"]
    file = tmp_path / "report.json"
    assert main([*command, "--database", "bramble", "--output", str(file)]) == 0
    out, err = capsys.readouterr()
    answers = other_answers(json.loads(file.read_text()))
    assert answers == {**OF_6_0_5, **BY_FEW_RIGHTS, "stream.cluster": "not allowed"}
    require_private(out + err + file.read_text(), "adele", "hunter42", "bramble")
    assert "bramble" not in databases(guarded)

    assert main([*command, "--database", "other"]) == 2
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert "lacks createCollection, createIndex, dropCollection, insert, remove, update" in err
    assert main(command) == 2
    assert main(["compat", "--uri", guarded.uri]) == 2
    assert main(["compat", "--uri", guarded.uri_as("adele", "wrong")]) == 2
    assert "credentials" in capsys.readouterr().err
    assert databases(guarded) == {"admin", "config", "local"}


def test_a_database_with_collections_is_refused(
    mongod: ReplicaSet, database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with mongod.client() as client:
        client[database].orders.insert_one({"_id": 1})
        assert main(["compat", "--uri", mongod.uri, "--database", database]) == 2
        assert "has collections" in capsys.readouterr().err
        assert client[database].orders.count_documents({}) == 1


@pytest.mark.parametrize(
    ("driver", "number"), [("motor", signal.SIGTERM), ("pymongo", signal.SIGINT)]
)
def test_an_interrupted_run_drops_its_database(
    mongod: ReplicaSet, driver: str, number: signal.Signals
) -> None:
    options = ["--uri", mongod.uri, "--driver", driver]
    command = [sys.executable, "-m", "tailrace", "compat", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        assert any("stream.collection" in line for line in run.stdout)
        run.send_signal(number)
        assert run.stdout.read().endswith("interrupted; the database is dropped\n")
        assert run.wait() == 128 + number
    assert left(mongod) == set()


def test_a_standalone_server_is_refused(
    standalone: Standalone, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compat", "--uri", standalone.uri]) == 2
    assert "is a standalone server" in capsys.readouterr().err
    with standalone.direct(0) as client:
        assert {*client.list_database_names()} <= {"admin", "config", "local"}
