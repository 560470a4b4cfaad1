"""Checks of what a handler guarantees: a history with every fault, and a comparison after each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tailrace.testing.advice import advice
from tailrace.testing.changes import Changes
from tailrace.testing.comparison import Mismatch, of_log, of_state
from tailrace.testing.harness import Harness, NotHandled
from tailrace.testing.history import ChangeHistory, Document, numbered
from tailrace.testing.scenarios import (
    Backup,
    FaultKind,
    Scenario,
    answer,
    emptied,
    scenarios,
    series,
)

Holds: TypeAlias = Callable[[], Any | Awaitable[Any]]
"""Reads what the destination holds: a mapping of each ``_id`` to its row, or a sequence with the
``id`` of each change that was applied, or of its message, in their order."""

_MOST_LISTED = 5


class GuaranteeBroken(AssertionError):
    """What a check has found: the ``fault`` that had happened, and what is wrong since then."""

    def __init__(self, kind: FaultKind, fault: str, differences: Sequence[Mismatch]) -> None:
        self.fault = fault
        self.differences = differences
        lines = [f"  {each}" for each in differences[:_MOST_LISTED]]
        if len(differences) > _MOST_LISTED:
            lines.append(f"  and {len(differences) - _MOST_LISTED} more")
        super().__init__("\n".join([f"{fault}:", *lines, advice(kind, differences)]))


async def each_change_once(
    target: Any,
    options: Mapping[str, Any] | None = None,
    *,
    holds: Holds,
    document: Document = numbered,
    row: Callable[[dict[str, Any]], Any] = lambda document: document,
    drops: bool | None = None,
    backup: Backup | None = None,
    empty: Callable[[], Any] | None = None,
    seeds: Iterable[int] = (),
    **more: Any,
) -> Sequence[str]:
    """Asserts that the destination gets each change once, whatever happens.

    Writes a history of inserts, updates, replacements, deletes, transactions, a drop and snapshots,
    with errors, outages, restarts, and, at every ``await`` of a call, kills and hand-overs to
    another process. After each fault it compares what the destination ``holds`` with the source.
    Raises :class:`GuaranteeBroken`; returns the faults that were tried.

    ``document`` makes the documents, for a destination that takes only some; ``row`` says what the
    destination holds of a document, if not the whole. ``drops``: the destination applies the drop
    of a collection (by default, if its class has ``on_ddl``). ``backup`` copies what the
    destination holds, with its positions, and returns a function that puts the copy back: then
    restored backups are tried. ``empty`` deletes all of it; then a snapshot brings it back, if
    ``holds`` returns rows. Each of the ``seeds`` then is a series of these faults that meet one
    another (but no restored backup), always the same for the same number. ``target``, ``options``
    and ``more`` are as for :class:`tailrace.testing.Harness`.
    """
    check = _Check(
        target, holds, document, row, drops, once=True, backup=backup, empty=empty, seeds=seeds
    )
    return await check.run(options, **more)


async def at_least_once(
    target: Any,
    options: Mapping[str, Any] | None = None,
    *,
    holds: Holds,
    document: Document = numbered,
    row: Callable[[dict[str, Any]], Any] = lambda document: document,
    drops: bool | None = None,
    seeds: Iterable[int] = (),
    **more: Any,
) -> Sequence[str]:
    """Asserts that the destination gets each change at least once, in order per document.

    As :func:`each_change_once`, but changes may be repeated, and there are no hand-overs from a
    process that still writes: without a position of its own, no destination withstands those.
    """
    check = _Check(target, holds, document, row, drops, once=False, seeds=seeds)
    return await check.run(options, **more)


@dataclass(slots=True)
class _Check:
    target: Any
    holds: Holds
    document: Document
    row: Callable[[dict[str, Any]], Any]
    drops: bool | None
    once: bool
    backup: Backup | None = None
    empty: Callable[[], Any] | None = None
    seeds: Iterable[int] = ()
    _first: int = 0
    _tried: list[str] = field(default_factory=list)

    async def run(
        self,
        options: Mapping[str, Any] | None,
        *,
        scope: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> Sequence[str]:
        """Tries every fault; returns their names."""
        drops = hasattr(self.target, "on_ddl") if self.drops is None else self.drops
        changes = Changes()
        history = ChangeHistory(changes, self.document)
        history.burst()  # the documents that were there before
        self._first = changes.oplog.end
        scope = {"snapshot": "initial", **(scope or {})}
        async with Harness(self.target, options, changes=changes, scope=scope, **more) as harness:
            for scenario in scenarios(once=self.once, drops=drops, backup=self.backup):
                step = 1
                while await self._try(harness, history, scenario, step) and scenario.by_step:
                    step += 1 + step // 3  # a call may await hundreds of times
            for seed in self.seeds:
                several = series(seed, once=self.once, drops=drops)
                await self._try(harness, history, several, 1)
            if self.empty is not None and isinstance(await answer(self.holds()), Mapping):
                await self._try(harness, history, emptied(self.empty), 1)
        return self._tried

    async def _try(
        self, harness: Harness, history: ChangeHistory, scenario: Scenario, step: int
    ) -> bool:
        """Tries one fault; returns whether it happened."""
        name = f"{scenario.name} {step}" if scenario.by_step else scenario.name
        try:
            await harness.saved()
            fault = scenario.plan(harness, step)
            await scenario.happens(harness, history)
            await harness.handled()
        except NotHandled as error:
            raise AssertionError(f"{name}: {error}") from error
        harness.forget()
        happened = fault is None or fault.hit
        if happened:
            self._tried.append(name)
        if differences := await self._differences(harness):
            raise GuaranteeBroken(scenario.kind, name, differences)
        return happened

    async def _differences(self, harness: Harness) -> list[Mismatch]:
        held = await answer(self.holds())
        if isinstance(held, Mapping):
            return of_state(harness.changes, held, self.row)
        return of_log(harness.changes, held, harness.delivered, first=self._first, once=self.once)
