"""Targets of python handlers, as users write them: good ones and bad ones."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Optional

import anyio
from pydantic import BaseModel

from tailrace import Batch, ChangeEvent, ScopeContext

if TYPE_CHECKING:
    from elsewhere import Change  # type: ignore[import-not-found]

CALLS: list[Any] = []


async def one(event: ChangeEvent) -> None:
    CALLS.append(event)


async def unannotated(change):  # type: ignore[no-untyped-def]
    CALLS.append(change)


async def unannotated_events(events):  # type: ignore[no-untyped-def]
    CALLS.append(events)


async def a_sequence(batch: Sequence[ChangeEvent]) -> None:
    CALLS.append(batch)


async def a_union(batch: list[ChangeEvent] | tuple[ChangeEvent, ...]) -> None:
    CALLS.append(batch)


async def an_optional_list(batch: Optional[list[ChangeEvent]]) -> None:  # noqa: UP045 - as users do
    CALLS.append(batch)


async def an_optional_event(events: ChangeEvent | None) -> None:
    CALLS.append(events)


async def for_checkers_only(events: Change) -> None:
    CALLS.append(events)


async def a_sequence_for_checkers_only(batch: Sequence[Change]) -> None:
    CALLS.append(batch)


async def bytes_of_several(batch: Sequence[bytes]) -> None:
    CALLS.append(batch)


async def perhaps_bytes_of_several(batch: Optional[list[bytes]]) -> None:  # noqa: UP045 - as users do
    CALLS.append(batch)


async def bytes_beside_what_nobody_can_read(batch: Sequence[bytes], how: Change = None) -> None:
    CALLS.append(batch)


async def with_defaults(event: ChangeEvent, where: str = "here", **more: Any) -> None:
    CALLS.append((event, where, more))


async def two(event: ChangeEvent, context: Any) -> None:
    pass


async def two_by_name(event: ChangeEvent, *, context: Any) -> None:
    pass


async def by_name(*, event: ChangeEvent) -> None:
    pass


async def with_scope(event: ChangeEvent, scope: str) -> None:
    CALLS.append((event, scope))


async def with_scope_and_epoch(event: ChangeEvent, scope: str, epoch: int) -> None:
    CALLS.append((event, scope, epoch))


async def with_epoch(event: ChangeEvent, epoch: int) -> None:
    CALLS.append((event, epoch))


async def scope_by_name(event: ChangeEvent, *, scope: str) -> None:
    pass


async def scope_and_more(event: ChangeEvent, scope: str, more: Any) -> None:
    pass


async def none() -> None:
    pass


def synchronous(event: ChangeEvent) -> None:
    pass


async def generator(event: ChangeEvent) -> Any:
    yield event


class Writer:
    """An object that can be called, and that has another method to name as a target."""

    async def __call__(self, events: Sequence[ChangeEvent]) -> None:
        CALLS.append(events)

    async def one(self, event: ChangeEvent) -> None:
        CALLS.append(event)


class Storing:
    """A class that stores batches, with options."""

    def __init__(self, dsn: str, table: str = "orders", size: int = 1) -> None:
        self.given = (dsn, table, size)

    async def write(self, batch: Batch) -> None:
        CALLS.append((self.given, list(batch), batch.scope.name, batch.position, batch.former))


class OddOptions(Storing):
    """Its options have the names of parameters on their way to it."""

    def __init__(self, path: str, kind: str, name: str, opening: str, settings: str) -> None:
        self.given = path, kind, name, opening, settings


class Options(BaseModel):
    dsn: str
    size: int = 1


class WithModel:
    def __init__(self, options: Options) -> None:
        self.given = (options.dsn, options.size)

    async def __call__(self, event: ChangeEvent) -> None:
        CALLS.append((self.given, event))


@dataclass
class Plain:
    """A dataclass without options of its own that opens and closes."""

    async def __aenter__(self) -> Plain:
        CALLS.append("opened")
        return self

    async def __aexit__(self, *error: object) -> None:
        CALLS.append("closed")

    async def write(self, batch: Batch) -> None:
        CALLS.append([event.operation_type for event in batch])

    async def on_ddl(self, event: ChangeEvent) -> None:
        CALLS.append(event.operation_type)


class Ready:
    """A class that stores its position, as a database would."""

    stored: str | None = None

    async def begin(self, scope: ScopeContext) -> str | None:
        CALLS.append(("begin", scope.name, scope.epoch, scope.attempt))
        return self.stored

    async def write(self, batch: Batch) -> None:
        assert batch.former == self.stored
        type(self).stored = batch.position


class Accepting:
    """A class that accepts batches and stores them late."""

    def __init__(self) -> None:
        self.rows: list[int] = []

    async def write(self, batch: Batch) -> None:
        CALLS.append(("write", batch.position, batch.former))
        self.rows += [len(self.rows)] * len(batch)

    async def commit(self, scope: ScopeContext) -> None:
        CALLS.append(("commit", scope.name, len(self.rows)))
        self.rows.clear()

    async def rollback(self, scope: ScopeContext) -> None:
        CALLS.append(("rollback", scope.name, len(self.rows)))
        self.rows.clear()


class AcceptingWithPosition(Accepting):
    stored: str | None = None

    async def begin(self, scope: ScopeContext) -> str | None:
        return self.stored


class RollsBackOnly(Plain):
    async def rollback(self, scope: ScopeContext) -> None: ...


class CommitsOnly(Plain):
    async def commit(self, scope: ScopeContext) -> None: ...


class TakesScope(Plain):
    async def on_ddl(self, event: ChangeEvent, scope: ScopeContext) -> None:  # type: ignore[override]
        CALLS.append((event.operation_type, scope.name, scope.cluster))


class CommitsAtOnce(Plain):
    def commit(self, scope: ScopeContext) -> None: ...


class FailsToBegin(Plain):
    def __init__(self) -> None:
        raise RuntimeError("no licence")


class FailsToOpen(Plain):
    async def __aenter__(self) -> Plain:
        raise RuntimeError("no licence")


class FailsToClose(Plain):
    async def __aexit__(self, *error: object) -> None:
        raise RuntimeError("gone already")


class HoldsTasks(Plain):
    """Its tasks run from its entry to its exit."""

    async def __aenter__(self) -> HoldsTasks:
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(anyio.sleep_forever)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(None, None, None)
        CALLS.append("closed")


class HangsClosing(Plain):
    async def __aexit__(self, *error: object) -> None:
        await anyio.sleep_forever()


class NeitherWay:
    pass


class BothWays(Writer):
    async def write(self, batch: Batch) -> None:
        pass


class Synchronous:
    def write(self, batch: Batch) -> None:
        pass


class WithoutBatch:
    async def write(self) -> None:
        pass


class HalfOpen(Storing):
    async def __aenter__(self) -> HalfOpen:
        return self


class ComparisonIsCoroutine(Storing):
    async def comparison(self, scope: object) -> None: ...


both_ways = BothWays()
writer = Writer()
bound = functools.partial(with_defaults, where="there")
nothing = None
