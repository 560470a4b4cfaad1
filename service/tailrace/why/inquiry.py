"""Asks the server, the store and the lakes about one document, and puts the answer together."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import anyio
from bson.timestamp import Timestamp

from tailrace.config.catalog import TablesAt
from tailrace.engine.ports import CheckpointStore, DeadLetterStore
from tailrace.errors import DriverError
from tailrace.event import ChangeEvent
from tailrace.event.key import Key
from tailrace.event.snapshot_events import is_row
from tailrace.model import Route, Scope, StartPoint
from tailrace.stream import ChangeStreamOptions
from tailrace.why.answer import ChangeOutcome, DocumentOutcome, Repair, State, iso_time
from tailrace.why.changes import FoundChanges, Server, find_changes
from tailrace.why.lakes_and_tables import FindDocument, landed_in, published_in
from tailrace.why.outcomes import Evidence, Followed

MOST_CHANGES = 10
"""So many of the last changes are told."""
_NOT_DELIVERED = {State.BEFORE_START, State.IN_GAP}
_OF_ROUTES = "Routes and the pipeline are judged as they are configured now, not as they were then."
DEAD_LETTERS = "dead letters"
"""The source of a change that was found as a dead letter."""
_OF_LETTERS = "A dead letter that was replayed or discarded counts as handled."


@dataclass(frozen=True, slots=True)
class Inquiry:
    """What is asked about the documents of one scope.

    ``routes`` are the scope's; ``lakes``: by handler of the scope, the lake that it writes;
    ``tables`` finds the document in the pipeline's tables, which are at ``tables_at``.
    """

    scope: Scope
    options: ChangeStreamOptions
    start: StartPoint
    routes: Sequence[Route]
    lakes: Mapping[str, str]
    checkpoints: CheckpointStore
    letters: DeadLetterStore
    server: Server
    tables: FindDocument | None = None
    tables_at: TablesAt | None = None
    followed: Followed | None = None
    elsewhere: str = ""

    async def answer(self, key: Key, collection: str, seconds: float) -> DocumentOutcome:
        """What became of the document. Searches the oplog and the lakes for about ``seconds``.

        ``collection``: ``database.collection``, or the collection's name if the scope has one
        database; empty for all of the scope. Raises ``ValueError`` if the scope does not cover it,
        and the errors of the store.
        """
        of = self._collection(collection)
        searched = await find_changes(self.server, self.scope, self.options, key, of, seconds)
        checkpoint = await self.checkpoints.load(self.scope.name)
        if checkpoint is not None and checkpoint.is_reset:
            checkpoint = None
        letters = [
            letter
            for letter in await self.letters.letters(self.scope.name, is_key=key.is_of)
            if of in (None, _named(ChangeEvent.from_raw(letter.raw)))
        ]
        # The lake is searched for the same changes, or further back if the oplog has none.
        since = min((time for each in searched.events if (time := _time(each))), default=None)
        landed = await landed_in(self.lakes, self.scope.name, key, of, since, seconds)
        changes = _Changes()
        for source, events in (
            ("oplog", searched.events),
            (DEAD_LETTERS, [ChangeEvent.from_raw(letter.raw) for letter in letters]),
            ("lake", landed.events),
        ):
            changes.add(source, events)
        evidence = Evidence(
            self.routes,
            self.start,
            checkpoint,
            await self.checkpoints.gaps(self.scope.name),
            letters,
            landed.rows,
            None,
            self.followed,
            self.elsewhere,
        )
        outcomes = [self._outcome(evidence, searched, *each) for each in changes.last()]
        all_events = [event for event, _ in changes.last()] + [*landed.events]
        namespace = of or next(filter(None, map(_named, all_events)), None)
        exists = None
        with anyio.move_on_after(seconds):
            exists = await self._exists(key, namespace)
        tables, doubts = await published_in(
            self.tables, self.tables_at, self.scope.name, key, namespace, landed.lakes, seconds
        )
        answer = DocumentOutcome(
            scope=self.scope.name,
            key=key.text,
            collection=".".join(namespace) if namespace is not None else None,
            exists=exists,
            asked_at=searched.now,
            started_at=evidence.started,
            checkpoint_at=checkpoint.position.cluster_time if checkpoint is not None else None,
            read_to=self.followed.read_to if self.followed is not None else None,
            searched_since=searched.since,
            summary="",
            changes=outcomes,
            landed=landed.rows,
            tables=tables,
            unknown=[
                *searched.unknown,
                *_forgotten(searched, evidence.started),
                *landed.unknown,
                *doubts,
                *_doubts(outcomes),
            ],
        )
        repairs = list(self._repairs(answer, key, namespace))
        return replace(answer, summary=_summary(answer), repairs=repairs)

    def _collection(self, named: str) -> tuple[str, str] | None:
        """Database and collection of a name."""
        scope = self.scope
        if not named:
            if scope.database is not None and scope.collection is not None:
                return scope.database, scope.collection
            return None
        database, _, name = named.partition(".")
        if scope.database is not None and (database != scope.database or not name):
            database, name = scope.database, named
        if not name or not scope.covers(database, name):
            raise ValueError(f"scope {scope.name!r} follows {scope.target}, and not {named!a:.80}")
        return database, name

    def _outcome(
        self, evidence: Evidence, searched: FoundChanges, event: ChangeEvent, sources: Sequence[str]
    ) -> ChangeOutcome:
        if "oplog" in sources:
            evidence = replace(evidence, passed=searched.passed)
        return ChangeOutcome(
            event.operation_type,
            str(event.ns or ""),
            event.cluster_time or event.token.cluster_time,
            event.token.digest,
            tuple(sources),
            evidence.outcomes(event),
        )

    async def _exists(self, key: Key, namespace: tuple[str, str] | None) -> bool | None:
        """Whether the document is there now; ``None`` if the server does not tell."""
        if namespace is None:
            return None
        command: dict[str, Any] = {
            "find": namespace[1],
            "filter": {"_id": {"$eq": key.value}},
            "projection": {"_id": 1},
            "limit": 1,
            "singleBatch": True,
        }
        try:
            reply = await self.server.run(namespace[0], command)
            return bool(reply["cursor"]["firstBatch"])
        except (DriverError, LookupError):
            return None

    def _repairs(
        self, answer: DocumentOutcome, key: Key, namespace: tuple[str, str] | None
    ) -> Iterator[Repair]:
        scope = shlex.quote(self.scope.name)
        outcomes = [one for change in answer.changes for one in change.handlers.values()]
        if letters := sorted({each.letter for each in outcomes if each.letter}):
            ids = " ".join(map(shlex.quote, letters))
            reason = "It has dead letters: fix their cause, and deliver them again."
            yield Repair(reason, f"tailrace dead-letters replay {ids} --scope {scope}")
        if answer.exists is False and not answer.changes:
            return
        lost = any(each.state in _NOT_DELIVERED for each in outcomes)
        if lost or not answer.changes:
            name = "" if namespace is None else f" --collection {shlex.quote('.'.join(namespace))}"
            command = f"tailrace snapshot start {scope}{name} --filter {shlex.quote(key.filter)}"
            reason = "Deliver the document as it is now, with a snapshot of it."
            yield Repair(reason, command, key.filter)


class _Changes:
    """The changes of a document, each once, with the sources in which it was found."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[ChangeEvent, list[str]]] = {}

    def add(self, source: str, events: Sequence[ChangeEvent]) -> None:
        for event in events:
            # A row of a snapshot is no change, but one that failed is what the handler lacks.
            if not is_row(event) or source == DEAD_LETTERS:
                _, sources = self._found.setdefault(event.token.digest, (event, []))
                sources.append(source)

    def last(self) -> list[tuple[ChangeEvent, list[str]]]:
        """The last ones, the latest first."""

        def order(one: tuple[ChangeEvent, list[str]]) -> tuple[int, int, str]:
            time = _time(one[0])
            data = str(one[0].id.get("_data", ""))
            return (time.time, time.inc, data) if time is not None else (0, 0, data)

        return sorted(self._found.values(), key=order, reverse=True)[:MOST_CHANGES]


def _time(event: ChangeEvent) -> Timestamp | None:
    return event.cluster_time or event.token.cluster_time


def _named(event: ChangeEvent) -> tuple[str, str] | None:
    ns = event.ns
    return (ns.db, ns.coll) if ns is not None and ns.coll is not None else None


def _forgotten(found: FoundChanges, started: Timestamp | None) -> Iterator[str]:
    """What the oplog has lost since the scope's start."""
    if found.whole and found.since is not None and started is not None and found.since > started:
        begins = f"The oplog goes back to {iso_time(found.since)}, and the scope to "
        begins += (
            f"{iso_time(started)}: changes between are known only as dead letters or in a lake."
        )
        yield begins


def _doubts(changes: Sequence[ChangeOutcome]) -> Iterator[str]:
    states = {one.state for change in changes for one in change.handlers.values()}
    if states & {State.HANDLED, State.FILTERED}:
        yield _OF_ROUTES
    if State.HANDLED in states:
        yield _OF_LETTERS


def _summary(answer: DocumentOutcome) -> str:
    """The answer in one sentence."""
    if answer.changes:
        last = answer.changes[0]
        states = sorted({one.state.value.replace("_", " ") for one in last.handlers.values()})
        return f"Its last change, {last.operation}, is: {', '.join(states) or 'routed nowhere'}."
    if answer.landed:
        return "No change of it was found, but a snapshot delivered it to the lake."
    if answer.exists:
        since, started = answer.searched_since, answer.started_at
        before = "the time that was searched"
        if since is not None and started is not None and since <= started:
            before = "the start of the scope"
        return (
            f"The document exists, and no change of it was found: it is from before {before}, and "
            "is delivered when it changes, or by a snapshot."
        )
    if answer.exists is None:
        return "No change of it was found. Whether the document exists is not known."
    return "No such document exists, and no change of it was found: check the key and its type."
