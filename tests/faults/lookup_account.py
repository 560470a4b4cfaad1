"""Random changes of documents, and checks of the events that describe them."""

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from bson import json_util
from pymongo.errors import ConnectionFailure, OperationFailure

from tests.mongod import Client

Event = Mapping[str, Any]
Documents = dict[str, dict[Any, Any]]
"""By collection and ``_id``."""

END = "end"
"""The collection of the last change."""
_KEYS = 6
_COLLECTIONS = ("orders", "users")


class Changes:
    """Each change writes its own number ``n``. Some changes may happen without a confirmation."""

    def __init__(self, client: Client, database: str, seed: int) -> None:
        self.keys: dict[int, int] = {}
        """The ``_id`` that each number was written to."""
        self._client = client
        self._database = client[database]
        self._random = random.Random(seed)
        self._renamed: list[str] = []

    def write(self, numbers: Sequence[int]) -> None:
        """Writes one change for each number, in order."""
        for number in numbers:
            # It may or may not have happened; the events tell. It cannot happen twice.
            with suppress(ConnectionFailure, OperationFailure):
                self._change(number)

    def _change(self, number: int) -> None:
        choice, key = self._random.random(), self._key(number)
        collection = self._any_collection()
        text = "x" * self._random.randrange(300)
        if choice < 0.45:
            collection.update_one({"_id": key}, {"$set": {"n": number, "text": text}})
        elif choice < 0.65:
            collection.insert_one({"_id": key, "n": number, "text": text})
        elif choice < 0.75:
            collection.replace_one({"_id": key}, {"n": number})
        elif choice < 0.85:
            collection.delete_one({"_id": key})
        elif choice < 0.95:
            with self._client.start_session() as session, session.start_transaction():
                for some in (collection, self._any_collection()):
                    change = {"$set": {"n": number}}
                    some.update_one({"_id": key}, change, session=session)
        elif choice < 0.98:
            self._renamed.append(f"{collection.name.partition('_')[0]}_{number}")
            collection.rename(self._renamed[-1])
        else:
            collection.drop()

    def _key(self, number: int) -> int:
        key = self.keys[number] = self._random.randrange(_KEYS)
        return key

    def _any_collection(self) -> Any:
        return self._database[self._random.choice([*_COLLECTIONS, *self._renamed[-1:]])]


def read(path: Path) -> list[dict[str, Any]]:
    """The events of a file in the stream's order; of repeated events, the last copy."""
    whole = path.read_text().rpartition("\n")[0]
    events = map(json_util.loads, whole.split("\n") if whole else [])
    found = {event["_id"]["_data"]: event for event in events}
    return [found[token] for token in sorted(found)]


def assert_true(events: Sequence[Event], keys: Mapping[int, int]) -> None:
    """Each looked-up document is of its change or later. If there is none, it was deleted."""
    looked_up = 0
    for number, event in enumerate(events):
        if event["operationType"] != "update":
            continue
        key, document = event["documentKey"]["_id"], event["fullDocument"]
        if document is None:
            assert _is_gone(events[number:], event["ns"]["coll"], key), event
            continue
        looked_up += 1
        assert document["_id"] == key == keys[document["n"]], event
        assert document["n"] >= event["updateDescription"]["updatedFields"]["n"], event
    assert looked_up


def fold(events: Sequence[Event]) -> Documents:
    """The final content of the source, according to the events."""
    found: Documents = defaultdict(dict)
    for event in events:
        name = event["ns"]["coll"]
        match event["operationType"]:
            case "insert" | "replace" | "update":
                found[name][event["documentKey"]["_id"]] = event["fullDocument"]
            case "delete":
                del found[name][event["documentKey"]["_id"]]
            case "drop":
                found.pop(name, None)
            case "rename":
                found[event["to"]["coll"]] = found.pop(name, {})
            case kind:
                raise AssertionError(kind)
    return {name: documents for name, documents in found.items() if documents}


def source(client: Client, database: str) -> Documents:
    """The final content of the source."""
    shop = client[database]
    found = {
        name: {document["_id"]: document for document in shop[name].find()}
        for name in shop.list_collection_names()
    }
    return {name: documents for name, documents in found.items() if documents}


def outline(events: Sequence[Event]) -> list[Any]:
    """What two streams must have in common: everything but the documents of updates."""
    return [
        (event["_id"]["_data"][:18], event["operationType"], event["ns"], event.get("documentKey"))
        for event in events
    ]


def _is_gone(later: Sequence[Event], name: str, key: Any) -> bool:
    for event in later:
        if event["ns"]["coll"] != name:
            continue
        match event["operationType"]:
            case "rename":
                name = event["to"]["coll"]
            case "drop":
                return True
            case "delete" if event["documentKey"]["_id"] == key:
                return True
    return False
