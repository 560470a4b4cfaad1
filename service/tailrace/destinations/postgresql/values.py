"""Reads the values of declared columns from the bytes of a document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tailrace.destinations.postgresql.column_types import Column, Misfit, column
from tailrace.destinations.postgresql.nul import HELD, without_nul
from tailrace.event.bson import ARRAY, DOCUMENT, INT32, NULL, UNDEFINED, walk_between


class NulRefused(Exception):
    """A value holds a NUL character, and the settings refuse it."""


@dataclass(slots=True)
class _ColumnNode:
    """A field with a column of its own (its index), or with such fields below it."""

    index: int = -1
    below: dict[bytes, _ColumnNode] = field(default_factory=dict)


class Values:
    """The columns of a table: paths, and the types that are declared for them."""

    def __init__(self, declared: Mapping[str, str], *, replace_nul: bool) -> None:
        self.paths = list(declared)
        self.columns: list[Column] = [column(given) for given in declared.values()]
        self._readers = [each.read for each in self.columns]
        self._replace_nul = replace_nul
        self._root = _ColumnNode()
        for index, path in enumerate(self.paths):
            node = self._root
            for part in path.split("."):
                node = node.below.setdefault(part.encode(), _ColumnNode())
            node.index = index

    def read(self, raw: bytes) -> tuple[list[Any], list[str]]:
        """A value for each column, ``None`` where the document has none, and what does not fit.

        Of fields with the same name it is the first, as the server reads it. Raises
        :class:`NulRefused`.
        """
        values: list[Any] = [None] * len(self.columns)
        misfits: list[str] = []
        if self.columns:
            self._read(raw, 0, self._root, values, misfits)
        return values, misfits

    def _read(
        self, raw: bytes, start: int, node: _ColumnNode, values: list[Any], misfits: list[str]
    ) -> None:
        wanted = dict(node.below)
        for name, kind, at, end in walk_between(raw, start + 4, start + INT32(raw, start)[0] - 1):
            below = wanted.pop(name, None)
            if below is None:
                continue
            index = below.index
            if index >= 0 and kind != NULL and kind != UNDEFINED:
                try:
                    value = self._readers[index](kind, raw, at, end)
                    if value.__class__ is str:
                        value = self._storable(value, index)
                    values[index] = value
                except Misfit as misfit:
                    fits = self.columns[index].type
                    misfits.append(f"{self.paths[index]}: {misfit} does not fit {fits}")
            if below.below and kind in (DOCUMENT, ARRAY):
                self._read(raw, at, below, values, misfits)
            if not wanted:
                return

    def _storable(self, value: str, index: int) -> str:
        if self.columns[index].type == "jsonb":
            text = without_nul(value.encode(), replace=self._replace_nul)
            if text is not None:
                return text.decode()
        elif "\0" not in value:
            return value
        elif self._replace_nul:
            return value.replace("\0", "\ufffd")
        raise NulRefused(f"{self.paths[index]} {HELD}")
