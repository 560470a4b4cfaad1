"""Processes a request: records it, applies hooks and faults, and answers it."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, TypeGuard

import bson
from bson import Binary

from .behaviour import Behaviour
from .change_streams import (
    CursorReply,
    current_operations,
    get_more,
    open_stream,
)
from .cursors import Cursors
from .errors import STATE_CHANGES, ConnectionCutError, ServerError
from .faults import Fault
from .journal import Command
from .oplog import Oplog
from .topology import Topology
from .wire import Answer, Message

Hook = Callable[[Command], Mapping[str, Any] | None]
_SIGNATURE = {"hash": Binary(b"\x00" * 20), "keyId": bson.Int64(0)}


class Server:
    """The state that all members share. Everything runs in one event loop."""

    def __init__(self, topology: Topology, oplog: Oplog, behaviour: Behaviour) -> None:
        self.topology = topology
        self.oplog = oplog
        self.behaviour = behaviour
        self.cursors = Cursors()
        self.faults: list[Fault] = []
        self.journal: list[Command] = []
        self.hooks: list[Hook] = []
        self.bugs: list[Exception] = []

    async def answers(
        self, member: int, connection: int, message: Message
    ) -> AsyncGenerator[Answer, None]:
        """The replies to one request: one reply, or for an exhaust hello one reply per change."""
        name = _name(message.document)
        command = Command(
            time.monotonic(), member, connection, name, message.database, message.document
        )
        self.journal.append(command)
        try:
            result = await self._execute(command)
        except ServerError as error:
            yield Answer(self._encode(self._failure(command, error)))
            return
        except ConnectionCutError:
            raise
        except Exception as bug:  # of a hook or of this package: raised when the server closes
            self.bugs.append(bug)
            raise ConnectionCutError from bug
        while _streams(result, message):
            yield Answer(self._encode(result), more_to_come=True)
            # No further request comes: the client knows only the last answer.
            known = {**message.document, "topologyVersion": result["topologyVersion"]}
            await self.topology.wait_for_change(known, member)
            result = self.topology.hello(command, self.behaviour, self.oplog.now)
        yield Answer(self._encode(result))

    async def _execute(self, command: Command) -> Mapping[str, Any] | CursorReply:
        for hook in reversed(self.hooks):
            reply = hook(command)
            if reply is not None:
                return reply
        fault = next((each for each in self.faults if each.takes(command)), None)
        if fault is not None:
            await fault.strike()
        limit = command.document.get("maxTimeMS", self.behaviour.default_max_time_ms)
        if not limit or command.name == "getMore":
            return await self._dispatch(command)
        try:
            async with asyncio.timeout(limit / 1000):
                return await self._dispatch(command)
        except TimeoutError:
            raise ServerError(50, "operation exceeded time limit") from None

    async def _dispatch(self, command: Command) -> Mapping[str, Any] | CursorReply:
        match command.name.lower():
            case "hello" | "ismaster":
                if "topologyVersion" in command.document:
                    await self.topology.wait_for_change(command.document, command.member)
                return self.topology.hello(command, self.behaviour, self.oplog.now)
            case "ping" | "endsessions":
                return {}
            case "replsetgetconfig" if self.topology.kind == "replica_set":
                return self._config()
            case "currentop":
                return current_operations(command, self.cursors)
            case "aggregate":
                self._require_readable(command)
                return await open_stream(command, self.oplog, self.cursors, self.behaviour)
            case "getmore":
                return await get_more(command, self.oplog, self.cursors, self.behaviour)
            case "killcursors":
                killed = self.cursors.kill(command.document["cursors"], command.member)
                self.oplog.wake()
                return killed
        raise ServerError(59, f"no such command: '{command.name}'")

    def _require_readable(self, command: Command) -> None:
        preference = command.document.get("$readPreference", {}).get("mode", "primary")
        if preference == "primary" and not self.topology.is_writable(command.member):
            raise ServerError(13435, "not primary and secondaryOk=false")

    def _failure(self, command: Command, error: ServerError) -> Mapping[str, Any]:
        document = error.document()
        if error.code in STATE_CHANGES and self.behaviour.streaming_hello:
            # The driver now ignores the member until a hello with this version or a later one.
            # Announcing it makes the waiting hello answer at once, as mongod's would.
            self.topology.announce()
            document["topologyVersion"] = self.topology.version(command.member)
        return document

    def _config(self) -> Mapping[str, Any]:
        settings = {"replicaSetId": self.topology.replica_set_id}
        return {"config": {"_id": self.topology.set_name, "version": 1, "settings": settings}}

    def _encode(self, result: Mapping[str, Any] | CursorReply) -> bytes:
        now = self.oplog.now
        clock = {"clusterTime": now, "signature": _SIGNATURE}
        stamps = {"$clusterTime": clock, "operationTime": now}
        if isinstance(result, CursorReply):
            return result.encode(stamps)
        behind = {"ok": 1.0} | stamps
        own = dict(result)
        return bson.encode(own | {name: behind[name] for name in behind if name not in own})


def _streams(
    result: Mapping[str, Any] | CursorReply, message: Message
) -> TypeGuard[Mapping[str, Any]]:
    """Whether this hello is answered repeatedly: both sides must support it."""
    return (
        message.exhaust_allowed
        and "topologyVersion" in message.document
        and isinstance(result, Mapping)
        and "topologyVersion" in result
    )


def _name(document: Mapping[str, Any]) -> str:
    """The command's name; an aggregate that starts with `$currentOp` is called `currentOp`."""
    stage = (document.get("pipeline") or [{}])[0]
    return "currentOp" if "$currentOp" in stage else next(iter(document), "")
