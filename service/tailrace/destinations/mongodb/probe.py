"""Tries what a handler writes, in a transaction that is aborted."""

from collections.abc import Iterable

from pymongo import ReadPreference
from pymongo.errors import OperationFailure, PyMongoError

from tailrace.destinations.mongodb.cluster import CODEC, Cluster
from tailrace.destinations.mongodb.outcomes import NOT_IN_TRANSACTION, message, outages
from tailrace.errors import Unavailable
from tailrace.event import Namespace

_NOBODY = "tailrace:check"


async def refusal(cluster: Cluster, targets: Iterable[Namespace]) -> str:
    """Tries to write a document in each collection. Returns why it cannot; empty if it can."""
    for target in targets:
        if target.coll is None:
            continue
        try:
            with outages():
                await _write(cluster, target)
        except OperationFailure as error:
            if error.code != NOT_IN_TRANSACTION:
                return f"{target}: {message(error)}"
            # This server makes no collection in a transaction, and it is not there yet.
        except (Unavailable, PyMongoError) as error:
            return f"{target}: {message(error)}"
    return ""


async def _write(cluster: Cluster, target: Namespace) -> None:
    """Makes and deletes a document, in vain. A rule of the collection may reject it: then the user
    may write all the same."""
    query = {"_id": _NOBODY}
    update = {"update": target.coll, "updates": [{"q": query, "u": query, "upsert": True}]}
    delete = {"delete": target.coll, "deletes": [{"q": query, "limit": 1}]}
    database = cluster.database(target.db)
    async with cluster.client.start_session(causal_consistency=False) as session:
        await session.start_transaction(read_preference=ReadPreference.PRIMARY)
        reply = await database.command(update, session=session, codec_options=CODEC)
        if not reply.get("writeErrors"):
            await database.command(delete, session=session, codec_options=CODEC)
        await session.abort_transaction()
