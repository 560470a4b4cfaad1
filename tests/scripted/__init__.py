"""A scripted MongoDB replica set: real OP_MSG on loopback sockets, for real drivers.

    from tests.scripted import RESUMABLE, ScriptedSet

    with ScriptedSet(members=3) as server:
        client = pymongo.MongoClient(server.uri, heartbeatFrequencyMS=500)
        stream = client.shop.orders.watch()
        server.insert("shop.orders", {"_id": 1})
        assert next(stream)["documentKey"] == {"_id": 1}

        server.fail("getMore", code=11602, labels=[RESUMABLE])       # the next one only
        server.step_down(successor=1)                                # an election
        await server.until(lambda c: "resumeAfter" in (c.change_stream or {}))

The script writes an oplog (`append`, `insert`, …, `noop`, `truncate_oplog`), sets faults
(`fail`, `on_command`), moves the primary (`elect`, `step_down`), stops members
and looks at every command that arrived (`commands`, `until`). Closing the client
before the server spares the driver its complaints.

It is no database: no reads, writes, transactions, authentication, TLS or compression, and the
stages behind `$changeStream` do nothing.
"""

from tailrace.testing.tokens import high_water_token, token_time

from .errors import RESUMABLE
from .journal import Command
from .replica_set import ScriptedSet
from .script import encoded_inserts

__all__ = [
    "RESUMABLE",
    "Command",
    "ScriptedSet",
    "encoded_inserts",
    "high_water_token",
    "token_time",
]
