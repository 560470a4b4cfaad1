"""The shared stores as one process reaches them, with trouble on the way."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import anyio

from tailrace.errors import CheckpointError, LeaseError
from tailrace.model import Checkpoint
from tailrace.model.lease import Lease, LeaseTable, Member
from tailrace.stores.memory import MemoryCheckpoints
from tailrace.stores.memory_leases import MemoryLeases
from tests.unit.engine.stores import ScriptedStore
from tests.unit.replicas.simulated_time import PROCESS

T = TypeVar("T")


class Saved(NamedTuple):
    """A save or a claim that the store took."""

    process: str
    scope: str
    epoch: int


@dataclass(eq=False)
class Trouble:
    """What happens to the next commands of a process on their way to the store, one after another.

    Each is delayed by ``before`` and its answer by ``after``; ``lost``: there is no answer, and
    with ``before`` infinite the command does not arrive either. With a name, it happens to the next
    command ``of`` that name. ``shielded``: it is waited for, as for a thread, if it is cancelled.
    """

    before: float = 0.0
    after: float = 0.0
    lost: bool = False
    of: str = ""
    shielded: bool = False


class Wire:
    """A process's way to the store. A command that was sent arrives, whoever waits for it."""

    def __init__(self) -> None:
        self.troubles: list[Trouble] = []

    async def send(self, name: str, call: Callable[[], Awaitable[T]], error: type[Exception]) -> T:
        trouble = next((each for each in self.troubles if each.of in ("", name)), None)
        if trouble is None:
            trouble = Trouble()
        else:
            self.troubles.remove(trouble)
        if trouble.before == float("inf"):
            raise error("connection refused")
        token = PROCESS.set("")  # the store is no part of the process, and is not frozen with it
        try:
            arrived = asyncio.ensure_future(self._arrive(call, trouble))
        finally:
            PROCESS.reset(token)
        with anyio.CancelScope(shield=trouble.shielded):
            answer = await asyncio.shield(arrived)
        if trouble.lost:
            raise error("connection closed")
        return answer

    async def _arrive(self, call: Callable[[], Awaitable[T]], trouble: Trouble) -> T:
        await asyncio.sleep(trouble.before)
        try:
            return await call()
        finally:
            await asyncio.sleep(trouble.after)


class RemoteLeases:
    """The shared leases as one process reaches them."""

    def __init__(self, shared: MemoryLeases, wire: Wire) -> None:
        self._shared, self._wire = shared, wire

    async def _send(self, name: str, call: Callable[[], Awaitable[T]]) -> T:
        return await self._wire.send(name, call, LeaseError)

    async def prepare(self, scopes: Any) -> None:
        await self._send("prepare", lambda: self._shared.prepare(scopes))

    async def read(self) -> LeaseTable:
        return await self._send("read", self._shared.read)

    async def acquire(self, seen: Lease, owner: str, epoch: int, seconds: float) -> bool:
        return await self._send(
            "acquire", lambda: self._shared.acquire(seen, owner, epoch, seconds)
        )

    async def renew(
        self, owner: str, scopes: Any, seconds: float, heartbeat: Member | None = None
    ) -> int:
        sent = tuple(scopes)
        return await self._send(
            "renew", lambda: self._shared.renew(owner, sent, seconds, heartbeat)
        )

    async def release(self, scope: str, owner: str, epoch: int) -> None:
        await self._send("release", lambda: self._shared.release(scope, owner, epoch))

    async def request(self, seen: Lease, member: str) -> None:
        await self._send("request", lambda: self._shared.request(seen, member))

    async def leave(self, member: str) -> None:
        await self._send("leave", lambda: self._shared.leave(member))


class RemoteCheckpoints(ScriptedStore):
    """The shared checkpoints as one process reaches them; ``saved`` has what was taken."""

    def __init__(
        self, shared: MemoryCheckpoints, wire: Wire, name: str, taken: list[Saved]
    ) -> None:
        super().__init__()
        self._shared, self._wire, self._name, self._taken = shared, wire, name, taken

    async def _send(self, name: str, call: Callable[[], Awaitable[T]]) -> T:
        return await self._wire.send(name, call, CheckpointError)

    async def load(self, scope: str) -> Checkpoint | None:
        return await self._send("load", lambda: self._shared.load(scope))

    async def save(self, checkpoint: Checkpoint) -> None:
        async def save() -> None:
            await self._shared.save(checkpoint)
            self._taken.append(Saved(self._name, checkpoint.scope, checkpoint.epoch))

        await self._send("save", save)

    async def claim(self, scope: str, epoch: int) -> Checkpoint:
        async def claim() -> Checkpoint:
            claimed = await self._shared.claim(scope, epoch)
            self._taken.append(Saved(self._name, scope, epoch))
            return claimed

        return await self._send("claim", claim)

    async def list(self) -> Sequence[Checkpoint]:
        return await self._send("list", self._shared.list)
