"""Where the events of a document are: in which segments of the lakes, and in which tables."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

import anyio
from anyio import to_thread
from bson.timestamp import Timestamp

from tailrace.config.catalog import TablesAt
from tailrace.config.settings import Settings
from tailrace.destination.tables import CurrentTables, OpenTables
from tailrace.errors import TailraceError, describe
from tailrace.event import ChangeEvent
from tailrace.event.key import Key
from tailrace.why.answer import Landed, TableState

if TYPE_CHECKING:
    from tailrace.lake.document_search import LandedEvent

T = TypeVar("T")

_GRACE_SECONDS = 2.0
"""After so many seconds more a search is given up: its storage does not answer."""


class FindDocument(Protocol):
    """Finds a document in tables; the port to the pipeline, which the daemon does not import."""

    def __call__(
        self,
        tables_at: TablesAt,
        scope: str,
        collection: tuple[str, str],
        element: bytes,
        seconds: float,
    ) -> tuple[str, Sequence[TableState]]:
        """The identity of the lake that the tables are made of, and their state.

        ``element``: the document's ``_id`` as in :class:`tailrace.event.key.Key`. Searches for
        about ``seconds``. Blocks. Raises :class:`tailrace.errors.TailraceError`.
        """


class OpenTablesAt(Protocol):
    """Opens the tables at a location."""

    def __call__(self, tables_at: TablesAt | None, lake: str, /) -> CurrentTables | None:
        """Those of the lake with this identity; ``None`` if there are none, or no location. Blocks.
        Raises :class:`tailrace.errors.TailraceError`."""


@dataclass(frozen=True, slots=True)
class PipelineTables:
    """What a process does with the tables of its pipeline."""

    find: FindDocument
    open: OpenTablesAt

    def opener(self, settings: Callable[[], Settings]) -> OpenTables:
        """Opens those of the settings of now, which a reload may change."""
        return lambda lake: self.open(settings().pipeline.tables_at(), lake)


@dataclass(frozen=True, slots=True)
class InLakes:
    """``events``: those of ``rows``. ``lakes``: the identities of the lakes that were read."""

    rows: Sequence[Landed]
    events: Sequence[ChangeEvent]
    lakes: frozenset[str]
    unknown: Sequence[str]


async def landed_in(
    lakes: Mapping[str, str],
    scope: str,
    key: Key,
    collection: tuple[str, str] | None,
    since: Timestamp | None,
    seconds: float,
) -> InLakes:
    """The last events of a document in each lake, by the handler that writes it.

    Events before the cluster time ``since`` are not looked for. Takes about ``seconds`` a lake.
    """
    rows: list[Landed] = []
    events: list[ChangeEvent] = []
    identities: set[str] = set()
    unknown: list[str] = []
    for handler, path in lakes.items():
        from tailrace.lake.document_search import SoughtDocument, search  # needs pyarrow

        sought = SoughtDocument(list(key.written()), key.element, collection, since)
        landed, why = await _searched(
            partial(search, path, scope, sought, seconds), seconds, "it did not answer in time"
        )
        if landed is None:
            unknown.append(f"Handler {handler!r}: its lake was not read: {why}.")
            continue
        rows += [_row(handler, each) for each in landed.events]
        events += [each.event for each in landed.events]
        identities.add(landed.lake)
        if not landed.complete:
            message = f"only the last {landed.searched} of {landed.segments} segments were searched"
            unknown.append(f"Handler {handler!r}: {message}: ask with more --seconds.")
    return InLakes(rows, events, frozenset(identities), unknown)


async def published_in(
    tables: FindDocument | None,
    tables_at: TablesAt | None,
    scope: str,
    key: Key,
    collection: tuple[str, str] | None,
    lakes: Collection[str],
    seconds: float,
) -> tuple[Sequence[TableState], Sequence[str]]:
    """The tables of a collection, and what is not known of them. Takes about ``seconds``.

    ``lakes``: the identities of those that the scope writes, if that is known.
    """
    if tables is None or tables_at is None:
        return (), ()
    if collection is None:
        return (), ["What the tables have: name the collection with --collection."]
    search = partial(tables, tables_at, scope, collection, key.element, seconds)
    published, why = await _searched(search, seconds, "they did not answer in time")
    if published is None:
        return (), [f"The tables were not read: {why}."]
    lake, states = published
    if lakes and lake not in lakes:
        return (), [
            f"The tables are made of the lake {lake}, which no handler of the scope writes."
        ]
    return states, [f"{each.table}: {each.unknown}." for each in states if each.unknown]


async def _searched(search: Callable[[], T], seconds: float, late: str) -> tuple[T | None, str]:
    """What a search in a thread has found; or ``None``, and why: ``late`` if it took too long."""
    try:
        with anyio.move_on_after(seconds + _GRACE_SECONDS):
            return await to_thread.run_sync(search, abandon_on_cancel=True), ""
    except (OSError, ValueError, TailraceError) as error:
        return None, describe(error)
    return None, late


def _row(handler: str, row: "LandedEvent") -> Landed:
    event = row.event
    return Landed(
        handler,
        row.segment,
        row.number,
        row.ordinal,
        event.operation_type,
        event.cluster_time,
        event.token.digest,
    )
