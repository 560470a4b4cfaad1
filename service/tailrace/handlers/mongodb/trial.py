"""Tries what a handler writes, in a transaction that is aborted."""

from collections.abc import Sequence

from pymongo import ReadPreference
from pymongo.errors import OperationFailure, PyMongoError

from tailrace.errors import StartRefused, Unavailable
from tailrace.event import Namespace
from tailrace.handlers.mongodb.cluster import CODEC, Cluster
from tailrace.handlers.mongodb.outcomes import NOT_IN_TRANSACTION, message, outages

_NOBODY = "tailrace:check"


async def try_cluster(cluster: Cluster, places: Sequence[Namespace]) -> str:
    """Tries to write a document in each collection. Returns what is possible.

    Raises :class:`StartRefused`.
    """
    told = f"{cluster.identity}: "
    known = [place for place in places if place.coll is not None]
    async with cluster.client.start_session(causal_consistency=False) as session:
        for place in known:
            try:
                with outages():
                    await session.start_transaction(read_preference=ReadPreference.PRIMARY)
                    update = {"q": {"_id": _NOBODY}, "u": {"_id": _NOBODY}, "upsert": True}
                    delete = {"q": {"_id": _NOBODY}, "limit": 1}
                    database = cluster.database(place.db)
                    for command in (
                        {"update": place.coll, "updates": [update]},
                        {"delete": place.coll, "deletes": [delete]},
                    ):
                        reply = await database.command(
                            command, session=session, codec_options=CODEC
                        )
                        if reply.get("writeErrors"):
                            break  # a rule of the collection: the user may write
            except OperationFailure as error:
                if error.code != NOT_IN_TRANSACTION:
                    raise StartRefused(f"{told}{place}: {message(error)}") from error
                # This server makes no collection in a transaction, and it is not there yet.
            except (Unavailable, PyMongoError) as error:
                raise StartRefused(f"{told}{place}: {message(error)}") from error
            finally:
                if session.in_transaction:
                    await session.abort_transaction()
    return f"{told}{', '.join(map(str, known))} can be written"
