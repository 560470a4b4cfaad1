"""Tells what a configuration costs the source server, and what would cost less.

The figures come from ``python -m tests.bench.lookups`` and docs/servers.md.
"""

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from tailrace.assembly import target
from tailrace.config.lookup_stages import refusal
from tailrace.config.scopes import ScopeSettings
from tailrace.config.settings import Settings
from tailrace.config.subscriptions import catch_up_streams
from tailrace.errors import CommandFailed
from tailrace.snapshot.listed_collections import listed
from tailrace.snapshot.server import SnapshotServer

_TARGET = {"name", "database", "collection"}
_STORED = ("whenAvailable", "required")


def of_streams(scopes: Sequence[ScopeSettings]) -> Iterator[str]:
    """One line with the number of streams by kind, then a line for each that could be saved."""
    kinds = Counter(target(scope).kind for scope in scopes)
    on = ", ".join(f"{count} on a {kind}" for kind, count in sorted(kinds.items()))
    yield f"{_streams(len(scopes))} ({on}): each looks at every write of the server"
    inside: dict[str, list[str]] = {}
    together: dict[str, list[ScopeSettings]] = {}
    for scope in scopes:
        around = next((each for each in scopes if _contains(each, scope)), None)
        if around is not None:
            inside.setdefault(around.name, []).append(scope.name)
        elif scope.collection is not None:
            together.setdefault(f"{scope.database} {_options(scope)}", []).append(scope)
    for name, parts in inside.items():
        yield (
            f"scope {name} also follows what {_names(parts)}, with the same options: its routes "
            f"can select that by namespaces, with {_fewer(len(parts))}"
        )
    for group in together.values():
        if len(group) > 1:
            collections = ", ".join(str(scope.collection) for scope in group)
            yield (
                f"{_names([scope.name for scope in group])} collections of {group[0].database} "
                "with the same options: one scope of the database, with the stage "
                f"{{$match: {{ns.coll: {{$in: [{collections}]}}}}}} and routes by namespaces, "
                f"needs {_fewer(len(group) - 1)}"
            )


def of_catch_up(settings: Settings) -> Iterator[str]:
    """A line about the streams of handlers that are behind, if there may be any."""
    further = {each.name: catch_up_streams(settings, each.name) for each in settings.scopes}
    if total := sum(further.values()):
        by_scope = ", ".join(f"{count} for {name}" for name, count in further.items() if count)
        yield (
            f"up to {total} more while handlers are behind the others of their scope ({by_scope}; "
            "catch_up.streams bounds them): each costs a cursor and a connection, reads its "
            "changes once more, and looks at every write of the server, too"
        )


def of_options(scope: ScopeSettings) -> Iterator[str]:
    """A line for each option of a scope for which there is a cheaper alternative."""
    pairs = sum(_pairs(stage["$match"]) for stage in scope.pipeline if "$match" in stage)
    if pairs > 1:
        yield (
            f"its pipeline compares {pairs} pairs of database and collection with every write: a "
            "$match on ns.coll alone costs less, and routes by namespaces do the rest"
        )
    if scope.full_document == "updateLookup" and not any(map(refusal, scope.pipeline)):
        yield (
            "full_document: lookup gives the same as updateLookup, for less than half of the "
            "server's CPU time"
        )


async def of_images(server: SnapshotServer, scopes: Sequence[ScopeSettings]) -> AsyncIterator[str]:
    """A line for each collection whose images the server stores although no scope uses them."""
    stored: set[str] = set()
    used: set[str] = set()
    for scope in scopes:
        asks = {scope.full_document, scope.full_document_before_change} & {*_STORED}
        with suppress(CommandFailed):  # the user may not list the collections
            async for collection in listed(server, target(scope)):
                if collection.images:
                    (used if asks else stored).add(f"{collection.database}.{collection.name}")
    for namespace in sorted(stored - used):
        yield (
            f"{namespace} stores images of each change (changeStreamPreAndPostImages), and no "
            "scope asks for them: turn that off, unless somebody else reads them"
        )


def _options(scope: ScopeSettings) -> Mapping[str, Any]:
    return scope.model_dump(exclude=_TARGET)


def _contains(one: ScopeSettings, other: ScopeSettings) -> bool:
    """Whether the first scope contains the second one, and has the same options."""
    if one.collection is not None or _options(one) != _options(other):
        return False
    if one.database is None:
        return other.database is not None
    return one.database == other.database and other.collection is not None


def _pairs(condition: Any) -> int:
    """How many pairs of database and collection a condition compares with."""
    if isinstance(condition, list | tuple):
        return sum(map(_pairs, condition))
    if not isinstance(condition, Mapping):
        return 0
    if {"ns.db", "ns.coll"} <= condition.keys() or {"db", "coll"} <= condition.keys():
        return 1
    inner = ("ns", "$in", "$eq", "$or", "$and")
    return sum(_pairs(condition[name]) for name in inner if name in condition)


def _names(scopes: Sequence[str]) -> str:
    if len(scopes) == 1:
        return f"scope {scopes[0]} follows"
    return f"scopes {', '.join(scopes[:-1])} and {scopes[-1]} follow"


def _streams(count: int) -> str:
    return "1 change stream" if count == 1 else f"{count} change streams"


def _fewer(count: int) -> str:
    return "one stream fewer" if count == 1 else f"{count} fewer streams"
