"""The control interface: start the server, write its oplog, script faults, move the primary.

Every method may be called from any thread and from inside a running event loop. Each one runs
briefly in the server's own thread.
"""

import asyncio
import dataclasses
import itertools
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, Self, TypeVar

from bson import ObjectId

from .behaviour import Behaviour
from .faults import Fault
from .journal import Command
from .listener import HOST
from .loop_thread import LoopThread
from .members import Member
from .oplog import Oplog
from .script import Script
from .server import Hook, Server
from .topology import Kind, Topology
from .wire import Answer, Message

T = TypeVar("T")
SET_NAME = "scripted"


class ScriptedSet(Script):
    """A scripted replica set or mongos on loopback; a context manager.

    Its cluster time starts at the wall clock's time and advances only when the script says so.
    """

    def __init__(self, members: int = 1, *, kind: Kind = "replica_set") -> None:
        self.kind = kind
        self._count = members

    def __enter__(self) -> Self:
        ids = itertools.count(1)
        self._members = [Member(index, self._answers, ids) for index in range(self._count)]
        self.hosts = [f"{HOST}:{member.port}" for member in self._members]
        self._thread = LoopThread("scripted")
        self._server = self._thread.call(self._make_server)
        for member in self._members:
            self._call(member.start)
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        for index in range(len(self._members)):
            self.stop_member(index)
        self._thread.close()
        if self._server.bugs and error is None:
            raise ExceptionGroup("the scripted server or a hook failed", self._server.bugs)

    @property
    def uri(self) -> str:
        """A connection string of all members."""
        option = f"?replicaSet={SET_NAME}" if self.kind == "replica_set" else ""
        return f"mongodb://{','.join(self.hosts)}/{option}"

    @property
    def replica_set_id(self) -> ObjectId:
        """`settings.replicaSetId`, as replSetGetConfig returns it."""
        return self._server.topology.replica_set_id

    # Behaviour and faults

    def behave(self, **changes: Any) -> None:
        """Changes fields of `Behaviour` at run time; drivers are told at once."""

        def change() -> None:
            self._server.behaviour = dataclasses.replace(self._server.behaviour, **changes)
            self._server.topology.announce()

        self._call(change)

    def fail(self, command: str, **how: Any) -> Fault:
        """Arms a fault with the fields of :class:`Fault`. The first one armed strikes first."""
        fault = Fault(command, **how)
        self._call(lambda: self._server.faults.append(fault))
        return fault

    def on_command(self, hook: Hook) -> None:
        """Passes every command to `hook` first, in the server's thread.

        If the hook returns a document, that is the reply; None lets the command proceed; a raised
        `ServerError` is an error reply. The newest hook is asked first.
        """
        self._call(lambda: self._server.hooks.append(hook))

    @property
    def open_cursors(self) -> int:
        """The number of open cursors on all members."""
        return self._call(lambda: len(self._server.cursors))

    # Elections and members

    @property
    def primary(self) -> int | None:
        """The index of the primary."""
        return self._server.topology.primary

    def elect(self, member: int) -> None:
        """Makes a member the primary. The old primary keeps its cursors, as in mongod."""
        self._call(lambda: self._server.topology.elect(member))

    def step_down(self, *, successor: int | None = None) -> None:
        """Steps the primary down; `successor` is elected, or else there is no primary."""
        self._call(lambda: self._server.topology.elect(successor))

    def stop_member(self, member: int) -> None:
        """Stops a member: connections are cut and refused, cursors are lost. Elects no successor.

        PyMongo's next getMore waits `serverSelectionTimeoutMS` for that member before the stream
        resumes elsewhere; a getMore in progress fails at once.
        """

        async def stop() -> None:
            await self._members[member].stop()
            self._server.cursors.kill_all(member)

        self._wait(stop())

    def cut_connections(self, member: int) -> None:
        """Closes a member's connections once; the member keeps listening."""
        self._wait(self._members[member].cut_connections())

    def partition(self, member: int) -> None:
        """Makes a member accept connections and commands but answer nothing, not even hello.

        Give clients a small `connectTimeoutMS`, or heal before they close: PyMongo's close waits
        for its monitors, which wait for a hello for 20 s by default.
        """
        self._call(self._members[member].partition)

    def heal(self, member: int) -> None:
        """Ends a partition; requests that arrived meanwhile are answered now."""
        self._call(self._members[member].heal)

    # Recorded commands

    def commands(self, name: str | None = None) -> list[Command]:
        """All commands received, or those of one name, oldest first."""
        return [each for each in list(self._server.journal) if name in (None, each.name)]

    def clear(self) -> None:
        """Forgets the recorded commands."""
        self._call(self._server.journal.clear)

    async def until(
        self, predicate: str | Callable[[Command], bool], timeout: float = 60.0, *, count: int = 1
    ) -> list[Command]:
        """Waits until `count` commands match a name or a predicate, and returns the first `count`.

        Raises TimeoutError if they do not arrive. Commands recorded before the call count too.
        """
        matches = predicate if callable(predicate) else lambda each: each.name == predicate
        async with asyncio.timeout(timeout):
            while len(found := [each for each in self.commands() if matches(each)]) < count:  # noqa: ASYNC110
                await asyncio.sleep(0.002)
        return found[:count]

    def _make_server(self) -> Server:
        topology = Topology(self.kind, SET_NAME, self.hosts)
        return Server(topology, Oplog(int(time.time())), Behaviour())

    def _answers(
        self, member: int, connection: int, message: Message
    ) -> AsyncGenerator[Answer, None]:
        return self._server.answers(member, connection, message)

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._thread.submit(coroutine).result()
