"""Targets of python handlers, as users write them: good ones and bad ones."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Optional

from service.model import ChangeEvent

if TYPE_CHECKING:
    from elsewhere import Change, Changes  # type: ignore[import-not-found]

CALLS: list[Any] = []


async def one(event: ChangeEvent) -> None:
    CALLS.append(event)


async def unannotated(change):  # type: ignore[no-untyped-def]
    CALLS.append(change)


async def unannotated_events(events):  # type: ignore[no-untyped-def]
    CALLS.append(events)


async def a_sequence(batch: Sequence[ChangeEvent]) -> None:
    CALLS.append(batch)


async def a_list(batch: list[ChangeEvent]) -> None:
    CALLS.append(batch)


async def a_tuple(batch: tuple[ChangeEvent, ...]) -> None:
    CALLS.append(batch)


async def an_iterable(batch: Iterable[ChangeEvent]) -> None:
    CALLS.append(batch)


async def a_union(batch: list[ChangeEvent] | tuple[ChangeEvent, ...]) -> None:
    CALLS.append(batch)


async def an_optional_list(batch: Optional[list[ChangeEvent]]) -> None:  # noqa: UP045 - as users do
    CALLS.append(batch)


async def an_optional_event(events: ChangeEvent | None) -> None:
    CALLS.append(events)


async def a_mapping(events: dict[str, Any]) -> None:
    CALLS.append(events)


async def for_checkers_only(events: Change) -> None:
    CALLS.append(events)


async def a_sequence_for_checkers_only(batch: Sequence[Change]) -> None:
    CALLS.append(batch)


async def something_for_checkers_only(batch: Changes) -> None:
    CALLS.append(batch)


async def with_defaults(event: ChangeEvent, where: str = "here", **more: Any) -> None:
    CALLS.append((event, where, more))


async def two(event: ChangeEvent, context: Any) -> None:
    pass


async def two_by_name(event: ChangeEvent, *, context: Any) -> None:
    pass


async def by_name(*, event: ChangeEvent) -> None:
    pass


async def none() -> None:
    pass


def synchronous(event: ChangeEvent) -> None:
    pass


async def generator(event: ChangeEvent) -> Any:
    yield event


class Writer:
    """An object that is called, and one with a method."""

    async def __call__(self, events: Sequence[ChangeEvent]) -> None:
        CALLS.append(events)

    async def write(self, event: ChangeEvent) -> None:
        CALLS.append(event)


writer = Writer()
bound = functools.partial(with_defaults, where="there")
nothing = None
