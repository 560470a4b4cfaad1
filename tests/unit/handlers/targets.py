"""Targets of python handlers, as users write them: good ones and bad ones."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Optional

from tailrace.event import ChangeEvent

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
    """An object that can be called, and one with a method."""

    async def __call__(self, events: Sequence[ChangeEvent]) -> None:
        CALLS.append(events)

    async def write(self, event: ChangeEvent) -> None:
        CALLS.append(event)


class Table:
    """A destination that owns its position, and reports the one that a test gives it."""

    def __init__(self) -> None:
        self.stands: Any = None

    async def __call__(self, events: Sequence[ChangeEvent], scope: str) -> None:
        CALLS.append((events, scope))

    async def position(self, scope: str) -> Any:
        return self.stands


class Row:
    async def __call__(self, event: ChangeEvent) -> None:
        CALLS.append(event)

    async def position(self, scope: str) -> Any:
        return None


class Forgetful:
    async def __call__(self, event: ChangeEvent) -> None:
        pass

    def position(self, scope: str) -> Any:
        return None


class Distracted(Forgetful):
    async def position(self) -> Any:  # type: ignore[override]
        return None


table, row, forgetful, distracted = Table(), Row(), Forgetful(), Distracted()
writer = Writer()
bound = functools.partial(with_defaults, where="there")
nothing = None
