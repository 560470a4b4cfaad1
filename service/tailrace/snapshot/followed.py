"""What a scope needs of the collections that it follows, asked before their changes come.

``check --connect`` refuses what would halt the scope, and ``run`` logs it: the collection that
lacks something may never change.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

import structlog

from tailrace.errors import CommandFailed, DriverError
from tailrace.model import Scope
from tailrace.snapshot.error_codes import (
    NOT_THERE,
    READ_LATER,
    is_refusal,
    raise_refusal,
)
from tailrace.snapshot.listed_collections import listed
from tailrace.snapshot.server import Find, SnapshotServer
from tailrace.stream.resumable import UNAUTHORIZED
from tailrace.stream.server_clock import server_time

_MOST_NAMED = 10


@dataclass(frozen=True, slots=True)
class FollowedCollections:
    """What was found: the names of collections ``without_images``; a sentence if the scope's own
    collection is ``missing``."""

    without_images: Sequence[str] = ()
    missing: str = ""

    @property
    def refusal(self) -> str:
        """What will halt the scope; empty if nothing will."""
        if not self.without_images:
            return ""
        names = ", ".join(self.without_images[:_MOST_NAMED])
        more = len(self.without_images) - _MOST_NAMED
        names += f" and {more} others" if more > 0 else ""
        return (
            f"'required' asks for images of each change, and the server stores none for {names}: "
            "their first change would halt the scope. "
            "Enable them (db.runCommand({collMod: NAME, changeStreamPreAndPostImages: "
            "{enabled: true}})), or ask for 'whenAvailable'"
        )


async def examine(server: SnapshotServer, scope: Scope, *, images: bool) -> FollowedCollections:
    """Looks at the collections of a scope; ``images``: it requires images of their changes.

    A user who may not list collections is told nothing about images. Raises :class:`DriverError`.
    """
    collections = None
    try:
        collections = [each async for each in listed(server, scope)]
    except CommandFailed as error:
        if error.code != UNAUTHORIZED:
            raise
    missing = ""
    if scope.collection is not None and not collections:
        missing = await _missing(server, scope)
    without = [f"{each.database}.{each.name}" for each in collections or () if not each.images]
    return FollowedCollections(without if images else (), missing)


async def warn_of_followed(server: SnapshotServer, scope: Scope, *, images: bool) -> None:
    """Logs what :func:`examine` finds."""
    log = structlog.get_logger().bind(scope=scope.name)
    try:
        examined = await examine(server, scope, images=images)
    except DriverError:
        return  # the stream meets the same server, and says what is wrong
    if examined.missing:
        log.warning("collection.missing", consequence=examined.missing)
    if examined.refusal:
        log.warning("images.missing", consequence=examined.refusal)


async def probe_read(server: SnapshotServer, scope: Scope, read_preference: str | None) -> None:
    """Reads a document as a snapshot of the scope would, as of a time.

    Raises :class:`ScopeHalted` and :class:`DriverError` if the server cannot.
    """
    async for collection in listed(server, scope):
        if collection.refusal:
            continue
        time = await server_time(server)
        if time is None:
            return
        command = {"filter": {}, "limit": 1, "projection": {"_id": 1}}
        uuid = bytes.fromhex(collection.uuid)
        find = Find(collection.database, collection.name, uuid, time, command, read_preference)
        try:
            await server.find(find)
        except CommandFailed as error:
            if is_refusal(error):
                raise_refusal(scope.name, error)
            if error.code not in (NOT_THERE | READ_LATER):
                raise
        return


async def _missing(server: SnapshotServer, scope: Scope) -> str:
    """A sentence if the scope's collection does not exist. It may be created later."""
    database, collection = scope.database or "", scope.collection or ""
    command = {"listCollections": 1, "nameOnly": True, "authorizedCollections": True, "cursor": {}}
    try:
        reply = await server.run(database, command)
    except CommandFailed:
        return ""
    names = [str(each["name"]) for each in reply["cursor"]["firstBatch"]]
    if collection in names or reply["cursor"]["id"]:
        return ""
    text = f"there is no collection {database}.{collection}: it is followed once it is created"
    near = get_close_matches(collection, names, 1) or [
        name for name in names if name.lower() == collection.lower()
    ]
    if not names:
        databases = {"listDatabases": 1, "nameOnly": True, "authorizedDatabases": True}
        try:
            known = (await server.run("admin", databases))["databases"]
        except CommandFailed:
            known = []
        others = get_close_matches(database, [str(each["name"]) for each in known], 1)
        near = [f"the database {other}" for other in others]
    return f"{text}; did you mean {near[0]}?" if near else text
