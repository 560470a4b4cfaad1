"""A client of the cluster to which a handler writes, and the identity of that cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import anyio
from bson.codec_options import CodecOptions, DatetimeConversion
from pymongo import AsyncMongoClient, ReadPreference, WriteConcern
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import OperationFailure, PyMongoError

from tailrace.destinations.mongodb.outcomes import is_passing, message, outages
from tailrace.errors import StartRefused
from tailrace.model.cluster import SHARDED, ClusterIdentity

CODEC: CodecOptions[dict[str, Any]] = CodecOptions(
    datetime_conversion=DatetimeConversion.DATETIME_AUTO, unicode_decode_error_handler="replace"
)
"""Replies quote ``_id``s of every kind: none may fail."""

MAJORITY_MS = 30_000
"""How long a write waits for a majority."""
MAJORITY = WriteConcern("majority", wtimeout=MAJORITY_MS)
CLOSING_SECONDS = 2.0

_OLDEST = 9
"""The wire version of MongoDB 4.4, which makes collections in transactions."""

_DEFAULTS: Mapping[str, Any] = {
    "serverSelectionTimeoutMS": 5_000,
    "connectTimeoutMS": 5_000,
    "appname": "tailrace",
}


@dataclass(frozen=True, slots=True, eq=False)
class Cluster:
    """A connected client. ``concern`` is that of transactions: majority, or what the URI says."""

    uri: str
    client: AsyncMongoClient[dict[str, Any]]
    identity: ClusterIdentity
    concern: WriteConcern

    def database(self, name: str) -> AsyncDatabase[dict[str, Any]]:
        """A database, whatever the URI says about reads: of the primary, written by a majority."""
        return self.client.get_database(name, CODEC, ReadPreference.PRIMARY, MAJORITY)

    async def close(self) -> None:
        """Closes the client, within a time limit and whatever is cancelled."""
        await _close(self.client)


async def connect(uri: str) -> Cluster:
    """A client of the cluster at ``uri``.

    Raises :class:`tailrace.Unavailable` if it does not answer, and :class:`StartRefused` if it has
    no transactions or the URI cannot be used.
    """
    lower = uri.lower()
    options = {name: value for name, value in _DEFAULTS.items() if f"{name.lower()}=" not in lower}
    try:
        client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(uri, **options)
    except (PyMongoError, ValueError) as error:
        raise StartRefused(f"the connection string cannot be used: {message(error)}") from error
    try:
        with outages():
            identity = await _identity(client)
    except BaseException:
        await _close(client)
        raise
    concern = client.write_concern
    if "w" not in concern.document:
        concern = MAJORITY
    return Cluster(uri, client, identity, concern)


async def _close(client: AsyncMongoClient[dict[str, Any]]) -> None:
    """Closes a client. In an outage it cannot end its sessions: the second call has none left."""
    for _ in range(2):
        with anyio.move_on_after(CLOSING_SECONDS, shield=True):
            await client.close()
            return


async def _identity(client: AsyncMongoClient[dict[str, Any]]) -> ClusterIdentity:
    hello = await client.admin.command("hello")
    host, port = await client.address or ("the server", 0)
    if hello["maxWireVersion"] < _OLDEST:
        raise StartRefused(f"{host}:{port} is older than MongoDB 4.4: upgrade it")
    if hello.get("msg") == "isdbgrid":
        reply = await _asked(client, "config", {"find": "version", "limit": 1, "singleBatch": True})
        batch = reply.get("cursor", {}).get("firstBatch") or [{}]
        return ClusterIdentity(SHARDED, str(batch[0].get("clusterId", "")))
    if not hello.get("setName"):
        raise StartRefused(
            f"{host}:{port} is a standalone server, and transactions need a replica set or a "
            "sharded cluster: start it with --replSet and run rs.initiate(), even as the only "
            "member"
        )
    reply = await _asked(client, "admin", {"replSetGetConfig": 1})
    unique = reply.get("config", {}).get("settings", {}).get("replicaSetId", "")
    return ClusterIdentity(str(hello["setName"]), str(unique))


async def _asked(
    client: AsyncMongoClient[dict[str, Any]], database: str, command: dict[str, Any]
) -> dict[str, Any]:
    """The reply; empty if this user may not ask (clusterMonitor).

    An error that may pass is raised. Without its id, the cluster could be taken for another one.
    """
    try:
        return await client[database].command(command, codec_options=CODEC)
    except OperationFailure as error:
        if is_passing(error):
            raise
        return {}
