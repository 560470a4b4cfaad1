"""Which member is primary, and how each member describes itself in hello."""

import asyncio
import datetime
from collections.abc import Mapping
from typing import Any, Literal

import bson
from bson import ObjectId
from bson.timestamp import Timestamp

from .behaviour import MEGABYTE, Behaviour
from .journal import Command

Kind = Literal["replica_set", "mongos"]


class Topology:
    """The shared state of the set. Each change increments every member's topologyVersion."""

    def __init__(self, kind: Kind, set_name: str, hosts: list[str]) -> None:
        self.kind = kind
        self.set_name = set_name
        self.hosts = hosts
        self.replica_set_id = ObjectId()
        self.primary: int | None = 0
        self.term = 1
        self.changed = asyncio.Event()
        self._processes = [ObjectId() for _ in hosts]
        self._counter = 1

    def elect(self, member: int | None) -> None:
        """Makes a member primary in a new term, or leaves the set without a primary."""
        self.primary = member
        self.term += 1
        self.announce()

    def announce(self) -> None:
        """Makes every waiting hello answer now."""
        self._counter += 1
        self.changed.set()
        self.changed = asyncio.Event()

    def is_writable(self, member: int) -> bool:
        """Whether the member accepts writes, and reads without a read preference."""
        return self.kind != "replica_set" or member == self.primary

    def version(self, member: int) -> dict[str, Any]:
        """The member's topologyVersion."""
        return {"processId": self._processes[member], "counter": bson.Int64(self._counter)}

    def hello(self, command: Command, behaviour: Behaviour, now: Timestamp) -> dict[str, Any]:
        """The reply to hello, isMaster and ismaster."""
        member = command.member
        writable = self.is_writable(member)
        flag = "isWritablePrimary" if command.name == "hello" else "ismaster"
        reply: dict[str, Any] = {flag: writable}
        if command.document.get("helloOk"):
            reply["helloOk"] = True
        if behaviour.streaming_hello:
            reply["topologyVersion"] = self.version(member)
        if self.kind == "replica_set":
            reply.update(self._as_member(member, now))
        else:
            reply["msg"] = "isdbgrid"
        return reply | {
            "maxBsonObjectSize": 16 * MEGABYTE,
            "maxMessageSizeBytes": 48_000_000,
            "maxWriteBatchSize": 100_000,
            "localTime": datetime.datetime.now(datetime.UTC),
            "logicalSessionTimeoutMinutes": 30,
            "connectionId": command.connection,
            "minWireVersion": 0,
            "maxWireVersion": behaviour.max_wire_version,
            "readOnly": False,
        }

    async def wait_for_change(self, hello: Mapping[str, Any], member: int) -> None:
        """Waits as an awaitable hello does: for a change, but at most maxAwaitTimeMS."""
        if hello.get("topologyVersion") != self.version(member):
            return
        try:
            async with asyncio.timeout(hello.get("maxAwaitTimeMS", 0) / 1000):
                await self.changed.wait()
        except TimeoutError:
            return

    def _as_member(self, member: int, now: Timestamp) -> dict[str, Any]:
        view: dict[str, Any] = {
            "setName": self.set_name,
            "setVersion": 1,
            "hosts": self.hosts,
            "secondary": member != self.primary,
            "me": self.hosts[member],
            "lastWrite": {
                "opTime": {"ts": now, "t": bson.Int64(self.term)},
                "lastWriteDate": now.as_datetime(),
                "majorityOpTime": {"ts": now, "t": bson.Int64(self.term)},
                "majorityWriteDate": now.as_datetime(),
            },
        }
        if self.primary is not None:
            view["primary"] = self.hosts[self.primary]
        if member == self.primary:
            # As in mongod, the last bytes hold the term, so that later terms sort higher.
            view["electionId"] = ObjectId(f"7fffffff{self.term:016x}")
        return view
