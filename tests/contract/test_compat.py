"""``tailrace compat`` asks servers that cannot be run here: scripted ones, of other answers."""

import json
import socket
from collections.abc import Mapping
from typing import Any

import pytest

from tailrace.cli import main
from tests.contract.streams import DRIVER_NAMES
from tests.scripted import Command, ScriptedSet
from tests.scripted.errors import ServerError

_SILENCE_SECONDS = 6.0
"""Long enough for the other questions on a busy machine."""

of_both_drivers = pytest.mark.parametrize("name", DRIVER_NAMES)


class Writes:
    """Answers the writes of questions, as changes in the oplog. It stores no documents."""

    def __init__(self, server: ScriptedSet, *, modern: bool = False) -> None:
        """``modern``: updates are those of MongoDB 7, also of large documents and shard keys."""
        self._server = server
        self._modern = modern
        server.on_command(self)

    def __call__(self, command: Command) -> Mapping[str, Any] | None:
        document, name = command.document, command.name
        namespace = f"{command.database}.{document.get(name)}"
        match name:
            case "insert":
                for each in document["documents"]:
                    key = {name: each[name] for name in ("_id", "region") if name in each}
                    self._of_document("insert", namespace, key, fullDocument=each)
            case "update" if document[name] == "split" and self._modern:
                self._split(namespace, document["updates"][0])
            case "update":
                description = {"updatedFields": {"n": 2}, "disambiguatedPaths": {}}
                fields = {"updateDescription": description} if self._modern else {}
                self._of_document("update", namespace, document["updates"][0]["q"], **fields)
            case "delete":
                self._of_document("delete", namespace, document["deletes"][0]["q"])
            case "drop":
                self._server.drop(namespace)
            case "renameCollection":
                self._server.rename(document[name], document["to"])
            case "dropDatabase":
                self._server.drop_database(command.database)
            case "create" | "createIndexes" | "collMod" | "shardCollection" | "commitTransaction":
                pass
            case "find" if document[name] == "resharded":
                found = [{"_id": 1, "region": "us"}]
                return {"cursor": {"firstBatch": found, "id": 0, "ns": namespace}}
            case "buildInfo":
                return {"version": "4.4.29"}
            case "listCollections":
                return {"cursor": {"firstBatch": [], "id": 0, "ns": f"{command.database}.$cmd"}}
            case _:
                return None
        return {"n": 1}

    def _of_document(
        self, operation: str, namespace: str, key: Mapping[str, Any], **fields: Any
    ) -> None:
        database, _, collection = namespace.partition(".")
        of = {"operationType": operation, "ns": {"db": database, "coll": collection}}
        self._server.append({**of, "documentKey": key, **fields})

    def _split(self, namespace: str, update: Mapping[str, Any]) -> None:
        database, _, collection = namespace.partition(".")
        after = {**update["q"], **update["u"]}
        before = {**update["q"], "text": "a" * len(after["text"])}
        first = {
            "operationType": "replace",
            "ns": {"db": database, "coll": collection},
            "documentKey": update["q"],
            "fullDocumentBeforeChange": before,
        }
        self._server.append_fragments([first, {"fullDocument": after}], namespace=namespace)


def answers(
    server: ScriptedSet, driver: str, capsys: pytest.CaptureFixture[str], seconds: float = 20.0
) -> tuple[int, list[str], dict[str, tuple[str, str]]]:
    """The exit code, what every scope lacks, and each question's answer and reason."""
    command = ["compat", "--uri", server.uri, "--driver", driver, "--json"]
    code = main([*command, "--timeout", str(seconds)])
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    report = json.loads(out)
    found = {each["question"]: (each["answer"], each["reason"]) for each in report["answers"]}
    return code, report["lacking"], found


def test_an_old_server_has_what_every_scope_needs(
    scripted: ScriptedSet, capsys: pytest.CaptureFixture[str]
) -> None:
    """MongoDB 4.4: it refuses stages and options that came later."""
    scripted.behave(max_wire_version=9)
    Writes(scripted)

    def refuse(command: Command) -> None:
        stages = command.document.get("pipeline") or ()
        if "showExpandedEvents" in (command.change_stream or {}):
            raise ServerError(40415, "BSON field '$changeStream.showExpandedEvents' is unknown")
        if any("$changeStreamSplitLargeEvent" in stage for stage in stages):
            raise ServerError(40324, "Unrecognized pipeline stage name")

    scripted.on_command(refuse)
    code, lacking, found = answers(scripted, "motor", capsys)
    not_here = {question for question, each in found.items() if each[0] == "not supported here"}
    assert {"event.expanded", "event.paths", "event.split", "sharding.key"} <= not_here
    assert found["event.wall_time"][0] == "no"
    assert (code, lacking) == (0, [])


def test_a_new_sharded_cluster_is_asked_for_what_only_it_has(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with ScriptedSet(kind="mongos") as mongos:
        mongos.behave(max_wire_version=25)
        Writes(mongos, modern=True)
        mongos.insert("shop.orders")
        mongos.truncate_oplog()
        code, lacking, found = answers(mongos, "pymongo", capsys)
    assert (code, lacking) == (0, [])
    only = ("event.paths", "event.split", "sharding.key", "sharding.lookup", "refusal.history")
    assert {question: found[question] for question in only} == dict.fromkeys(only, ("yes", ""))


def test_another_database_may_lack_much(
    scripted: ScriptedSet, capsys: pytest.CaptureFixture[str]
) -> None:
    """As Amazon DocumentDB: no tokens of empty replies, and options are refused."""
    scripted.behave(post_batch_tokens=False)
    Writes(scripted)

    def refuse(command: Command) -> None:
        if {"showExpandedEvents", "startAfter"} & (command.change_stream or {}).keys():
            raise ServerError(303, "Feature not supported: startAfter")

    scripted.on_command(refuse)
    code, _, found = answers(scripted, "motor", capsys)
    assert code == 1
    assert found["stream.collection"][0] == found["resume.after"][0] == "yes"
    assert found["event.expanded"] == (
        "not supported here",
        "the server answered with code 303 Location303",
    )
    assert found["resume.start_after"][0] == "not supported here"
    assert found["invalidate.drop"][0] == "not supported here"
    assert found["token.empty"][0] == found["token.advances"][0] == "no"


@of_both_drivers
def test_a_question_without_an_answer_does_not_keep_the_others(
    name: str, scripted: ScriptedSet, capsys: pytest.CaptureFixture[str]
) -> None:
    Writes(scripted)
    scripted.fail("aggregate", silent=True, where=lambda each: "startAfter" in str(each.document))
    code, _, found = answers(scripted, name, capsys, _SILENCE_SECONDS)
    assert code == 1
    assert found["resume.start_after"] == ("failed", f"no answer in {_SILENCE_SECONDS:g} s")
    assert found["resume.time"][0] == "yes"


def test_a_server_that_cannot_be_reached_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = "{}:{}".format(*free.getsockname())
    assert main(["compat", "--uri", f"mongodb://{address}/", "--timeout", "0.3"]) == 2
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert f"{address} cannot be reached" in err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--uri", "mongodb:/x"], "--uri: is not a usable MongoDB connection string"),
        (["--uri", "mongodb://h/?loadBalanced=true"], "loadBalanced"),
        (["--uri", "mongodb://h/", "--database", "admin"], "opens no change stream on admin"),
        (["--uri", "mongodb://h/", "--database", "a.b"], "a database's name cannot hold"),
        (["--uri", "mongodb://h/", "--timeout", "0"], "--timeout: must be 0.1 to 3600 seconds"),
        (["--uri", "mongodb://h/", "--timeout", "inf"], "--timeout: must be 0.1 to 3600"),
        (["--uri", "mongodb://h/", "--timeout", "nan"], "--timeout: must be 0.1 to 3600"),
        (["--uri", "mongodb://h/", "--output", "/nowhere/report"], "cannot be written"),
    ],
)
def test_wrong_usage_is_refused(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compat", *arguments]) == 2
    err = capsys.readouterr().err
    assert says in err
    assert len(err.splitlines()) == 1
