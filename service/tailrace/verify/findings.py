"""What a verification has found so far, as a record that is replaced with each step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import bson
from bson.timestamp import Timestamp

from tailrace.engine.ports import DeadLetterStore
from tailrace.event.document_key import identity, key_text
from tailrace.model.snapshot import DocumentId
from tailrace.model.verification import (
    ComparedCollection,
    Difference,
    Kind,
    Phase,
    Verification,
)
from tailrace.verify.compare import Suspect, value_text

MOST_LISTED = 10_000
"""So many differences are listed; more are counted only."""
MOST_LISTED_BYTES = 4 * 1024 * 1024
"""Nor are more listed than have so much text: a record of MongoDB has at most 16 MB."""
_BEFORE, _AFTER = len('{"_id":'), -len("}")


@dataclass(slots=True)
class Findings:
    """The record of a verification, and what changes it."""

    record: Verification
    letters: DeadLetterStore

    def update(self, of: ComparedCollection) -> None:
        """Replaces the state of one collection."""
        self.record = self.record.with_collection(of)

    def forget(self, name: str) -> None:
        """Removes the differences of a collection that is gone or begins once more."""
        keys = tuple(each for each in self.record.keys if each.collection != name)
        self.record = replace(self.record, keys=keys)

    def count(self, of: ComparedCollection, **more: int) -> ComparedCollection:
        """Adds so many to the counts of a collection."""
        of = replace(of, counts=of.counts.plus(**more))
        self.update(of)
        if self.record.request.is_whole:
            compared = self.record.proof.compared + sum(more.values())
            self.record = replace(self.record, proof=replace(self.record.proof, compared=compared))
        return of

    async def set_aside(
        self, of: ComparedCollection, keys: Collection[DocumentId]
    ) -> set[DocumentId]:
        """Those of some keys that have unresolved dead letters, whose ids are noted."""
        record, aside = self.record, set[DocumentId]()
        held = self.letters.held(record.scope, record.handler)
        if not held:
            return aside
        namespace, ids = bson.encode({"db": of.database, "coll": of.collection}), list[str]()
        for key in keys:
            of_document = namespace + identity(key.raw, 0)
            if of_document in held:
                queue = record.scope, record.handler, of_document
                if heads := await self.letters.queue(queue):
                    aside.add(key)
                    ids += [head.id for head in heads]
        letters = dict.fromkeys([*self.record.letters, *ids])
        self.record = replace(self.record, letters=tuple(letters)[:MOST_LISTED])
        return aside

    def differs(
        self, of: ComparedCollection, suspects: Sequence[Suspect], since: Timestamp
    ) -> ComparedCollection:
        """Counts differences, and lists them."""
        values = self.record.request.values
        of = self.count(of, **Counter(suspect.kind.value for suspect in suspects))
        self._list([_difference(of, each, since, values=values) for each in suspects])
        return of

    def _list(self, differences: Sequence[Difference]) -> None:
        listed = list(self.record.keys)
        room = MOST_LISTED_BYTES - sum(map(_size, listed))
        for each in differences:
            room -= _size(each)
            if len(listed) == MOST_LISTED or room < 0:
                break
            listed.append(each)
        self.record = replace(self.record, keys=tuple(listed))

    def has_no_document(
        self, of: ComparedCollection, texts: Sequence[str], since: Timestamp
    ) -> ComparedCollection:
        """Counts rows with keys that no document can have."""
        self._list([Difference(of.name, text, Kind.TOO_MANY, (), since) for text in texts])
        return self.count(of, too_many=len(texts)) if texts else of

    def gone(self, of: ComparedCollection, note: str) -> None:
        """A collection is not there any more: nothing of it counts."""
        self.forget(of.name)
        empty = ComparedCollection(of.uuid, of.database, of.collection, phase=Phase.DROPPED)
        self.update(replace(empty, note=note))


def text_of(key: DocumentId) -> str:
    """The ``_id`` as canonical Extended JSON."""
    return key_text(key.raw)[_BEFORE:_AFTER].strip()


def _size(difference: Difference) -> int:
    """About how much text it has."""
    texts = (difference.key, *difference.fields, *difference.expected, *difference.stored)
    return sum(map(len, texts)) + (len(difference.id.raw) if difference.id is not None else 0)


def _difference(
    of: ComparedCollection, suspect: Suspect, since: Timestamp, *, values: bool
) -> Difference:
    expected = tuple(value_text(suspect.expected, name) for name in suspect.fields)
    stored = tuple(value_text(suspect.stored, name) for name in suspect.fields)
    key = text_of(suspect.id)
    found = Difference(of.name, key, suspect.kind, suspect.fields, since, suspect.id)
    return replace(found, expected=expected, stored=stored) if values else found
