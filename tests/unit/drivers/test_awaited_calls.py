"""The calls that one driver awaits and the other does not: without an await nothing is done."""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

from motor.motor_asyncio import (
    AsyncIOMotorClient,
    AsyncIOMotorClientSession,
    AsyncIOMotorCollection,
    AsyncIOMotorCursor,
    AsyncIOMotorDatabase,
)
from pymongo import AsyncMongoClient
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.cursor import AsyncCursor
from pymongo.asynchronous.database import AsyncDatabase

from tailrace import drivers

PAIRS: list[tuple[type, type]] = [
    (AsyncIOMotorClient, AsyncMongoClient),
    (AsyncIOMotorDatabase, AsyncDatabase),
    (AsyncIOMotorCollection, AsyncCollection),
    (AsyncIOMotorCursor, AsyncCursor),
    (AsyncIOMotorClientSession, AsyncClientSession),
]
BY_BOTH = {"session.start_transaction"}
"""Calls whose result is looked at before it is awaited."""
OURS = {
    "self.opened.start_session",
    "opened.start_session",
    "self.opened.close",
    "self.reads.watch",
}
"""Calls of our own objects, which are the same for both drivers."""
ADAPTERS = {"motor.py", "pymongo_async.py"}
"""Files that use one driver alone."""


def is_awaited(owner: type, name: str) -> bool:
    called = getattr(owner, name)
    return inspect.iscoroutinefunction(called) or getattr(called, "is_async_method", False)


def differing() -> set[str]:
    """The methods that only one of the drivers awaits."""
    return {
        name
        for of_motor, of_pymongo in PAIRS
        for name in set(dir(of_motor)) & set(dir(of_pymongo))
        if not name.startswith("_") and is_awaited(of_motor, name) != is_awaited(of_pymongo, name)
    }


def calls(names: set[str]) -> Iterator[str]:
    """The calls of methods with these names, in the files that both drivers share."""
    directory = Path(drivers.__file__).parent
    for path in [each for each in directory.glob("*.py") if each.name not in ADAPTERS]:
        for node in ast.walk(ast.parse(path.read_text())):
            method = node.func if isinstance(node, ast.Call) else None
            if isinstance(method, ast.Attribute) and method.attr in names:
                yield ast.unparse(method)


def test_what_only_one_driver_awaits_is_called_by_its_own_adapter() -> None:
    known = differing()
    assert {"start_session", "start_transaction", "aggregate", "watch", "close"} <= known
    assert {"command", "commit_transaction", "end_session"}.isdisjoint(known)
    assert set(calls(known)) == BY_BOTH | OURS
