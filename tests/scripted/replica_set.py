"""The control face: start the server, write its oplog, script its faults, move its primary.

Every method may be called from any thread and from inside a running event loop: each is a short
hop into the server's own thread.
"""

import asyncio
import dataclasses
import itertools
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, Self, TypeVar

from bson import ObjectId

from .behaviour import Behaviour
from .errors import RESUMABLE, ServerError
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

    Its cluster time begins at the wall clock's and moves by hand only.
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
        """A connection string for all members."""
        option = f"?replicaSet={SET_NAME}" if self.kind == "replica_set" else ""
        return f"mongodb://{','.join(self.hosts)}/{option}"

    @property
    def replica_set_id(self) -> ObjectId:
        """What replSetGetConfig tells: `settings.replicaSetId`."""
        return self._server.topology.replica_set_id

    # Behaviour and faults

    def behave(self, **changes: Any) -> None:
        """Change fields of `Behaviour` while running; drivers are told at once."""

        def change() -> None:
            self._server.behaviour = dataclasses.replace(self._server.behaviour, **changes)
            self._server.topology.announce()

        self._call(change)

    def fail(self, command: str, **how: Any) -> Fault:
        """Arms a fault with the fields of :class:`Fault`; the first one armed strikes first."""
        fault = Fault(command, **how)
        self._call(lambda: self._server.faults.append(fault))
        return fault

    def on_command(self, hook: Hook) -> None:
        """Asks `hook` about every command first; it runs in the server's thread.

        A document is the reply, None lets the command go on, a raised `ServerError` is an error
        reply. The newest hook comes first.
        """
        self._call(lambda: self._server.hooks.append(hook))

    def kill_cursors(self) -> int:
        """Lose all cursors: getMore answers 43, also one that waits. Says how many there were."""

        def kill() -> int:
            count = self._server.cursors.kill_all()
            self._server.oplog.wake()
            return count

        return self._call(kill)

    @property
    def open_cursors(self) -> int:
        """How many cursors are open on all members."""
        return self._call(lambda: len(self._server.cursors))

    # Elections and members

    @property
    def primary(self) -> int | None:
        """The index of the primary."""
        return self._server.topology.primary

    def elect(self, member: int) -> None:
        """Make a member the primary. The old one keeps its cursors, as mongod does."""
        self._call(lambda: self._server.topology.elect(member))

    def step_down(self, *, successor: int | None = None, interrupt: int | None = None) -> None:
        """Takes the primary down; `successor` is elected, or else nobody is.

        `interrupt` ends the old primary's cursors with that code (10107, 11602, …) and the label
        of a resumable error: a getMore that waits fails now, others when they next come.
        """
        old = self._server.topology.primary

        def move() -> None:
            self._server.topology.elect(successor)
            if old is not None and interrupt is not None:
                error = ServerError(interrupt, labels=(RESUMABLE,))
                self._server.cursors.interrupt_all(old, error)
                self._server.oplog.wake()

        self._call(move)

    def stop_member(self, member: int) -> None:
        """Stops a member: connections are cut and refused, cursors lost. Elects nobody.

        PyMongo's next getMore waits `serverSelectionTimeoutMS` for that very member before the
        stream resumes elsewhere; one that is under way fails at once.
        """

        async def stop() -> None:
            await self._members[member].stop()
            self._server.cursors.kill_all(member)

        self._wait(stop())

    def cut_connections(self, member: int) -> None:
        """Closes a member's connections once; it goes on listening."""
        self._wait(self._members[member].cut_connections())

    def partition(self, member: int) -> None:
        """Let a member take connections and commands but answer nothing, hello included.

        Give clients a small `connectTimeoutMS`, or heal before they close: PyMongo's close
        waits for its monitors, which wait for a hello for 20 s by default.
        """
        self._call(self._members[member].partition)

    def heal(self, member: int) -> None:
        """End a partition; what came in meanwhile is answered now."""
        self._call(self._members[member].heal)

    # The record

    def commands(self, name: str | None = None) -> list[Command]:
        """Every command that arrived, or those of one name, oldest first."""
        return [each for each in list(self._server.journal) if name in (None, each.name)]

    def clear(self) -> None:
        """Forgets the recorded commands."""
        self._call(self._server.journal.clear)

    async def until(
        self, predicate: str | Callable[[Command], bool], timeout: float = 60.0, *, count: int = 1
    ) -> list[Command]:
        """Waits until `count` commands match (a name, or a predicate); the first ones are returned.

        TimeoutError when they do not come. Commands recorded before the call count.
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
