"""Writes a history of changes for a check: the same one each time."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from tailrace.testing.changes import Changes

Document: TypeAlias = Callable[[int, int], Mapping[str, Any]]
"""Makes the document ``number`` (from 1) in its ``version`` (from 1), with its ``_id``."""

_MOST_DOCUMENTS = 12


def numbered(number: int, version: int) -> Mapping[str, Any]:
    """The document that a check writes if a test makes none of its own."""
    return {"_id": number, "version": version, "text": f"document {number}, version {version}"}


class ChangeHistory:
    """Changes of a few documents, in bursts that reach a handler together."""

    def __init__(self, changes: Changes, document: Document) -> None:
        self.changes = changes
        self._document = document
        self._random = random.Random(1)
        self._versions: dict[int, int] = {}
        """By number, the version of each document that exists."""
        self._version = 0
        self._numbers = 0

    def burst(self) -> None:
        """Changes of every kind: several of one document, a transaction, a document that comes
        back, and one that is gone."""
        for _ in range(4):
            self._insert()
        first, second, third, last = self._some(4)
        self._update(first)
        self._update(first)
        self._replace(second)
        self._delete(third)
        self._delete(last)
        with self.changes.transaction():
            self._update(second)
            self._update(first)
            self._insert(third)
        self._delete(first)
        self._insert(first)
        self._update(first)
        while len(self._versions) > _MOST_DOCUMENTS:
            self._delete(self._some(1)[0])

    def clear(self) -> None:
        """Deletes every document."""
        for number in list(self._versions):
            self._delete(number)

    def drop(self) -> None:
        """Drops the collection."""
        self.changes.drop()
        self._versions.clear()

    def _some(self, count: int) -> list[int]:
        return self._random.sample(sorted(self._versions), count)

    def _next(self, number: int) -> Mapping[str, Any]:
        self._version += 1
        self._versions[number] = self._version
        return self._document(number, self._version)

    def _insert(self, number: int | None = None) -> None:
        if number is None:
            self._numbers = number = self._numbers + 1
        self.changes.insert(self._next(number))

    def _update(self, number: int) -> None:
        before = self._document(number, self._versions[number])
        after = self._next(number)
        fields = {n: value for n, value in after.items() if n not in before or before[n] != value}
        self.changes.update(after["_id"], fields, unset=[n for n in before if n not in after])

    def _replace(self, number: int) -> None:
        self.changes.replace(self._next(number))

    def _delete(self, number: int) -> None:
        self.changes.delete(self._document(number, self._versions.pop(number))["_id"])
