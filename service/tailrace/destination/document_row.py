"""Documents as rows of a comparison: as BSON, or as Extended JSON."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import orjson

from tailrace.event.bson import encoded, walk
from tailrace.event.extended_json import to_json


class DocumentRow(Mapping[str, str]):
    """A document as a row: equal to one of the same bytes, with its fields as canonical JSON."""

    __slots__ = ("_elements", "raw")

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self._elements: Mapping[str, tuple[int, int, int]] | None = None

    def __eq__(self, other: object) -> bool:
        return self.raw == other.raw if isinstance(other, DocumentRow) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __getitem__(self, name: str) -> str:
        kind, begin, end = self._fields[name]
        json = to_json(encoded(b"%c\0%b" % (kind, self.raw[begin:end])), canonical=True)
        return json.removeprefix('{"":').removesuffix("}")

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    @property
    def text(self) -> str:
        """As canonical Extended JSON."""
        return to_json(self.raw, canonical=True)

    @property
    def _fields(self) -> Mapping[str, tuple[int, int, int]]:
        """The kind, begin and end of each value; the last of several with one name."""
        if self._elements is None:  # only those that differ are asked for fields
            self._elements = {
                name.decode(errors="replace"): (kind, begin, end)
                for name, kind, begin, end in walk(self.raw, 0)
            }
        return self._elements


class JsonRow(Mapping[str, str]):
    """A document in Extended JSON as a row, with its fields as JSON.

    It is equal to another one, or to a :class:`DocumentRow`, with the same values: numbers that are
    written differently are different, and the order of fields counts if both are ``in_order``.
    """

    __slots__ = ("_values", "in_order", "text")

    def __init__(self, text: str, *, in_order: bool = True) -> None:
        self.text = text
        self.in_order = in_order
        self._values: Mapping[str, str] | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, JsonRow | DocumentRow):
            return NotImplemented
        if self.text == (text := other.text):
            return True
        pairs = tuple if self.in_order and getattr(other, "in_order", True) else dict
        return bool(_values(self.text, pairs) == _values(text, pairs))

    __hash__ = None  # type: ignore[assignment]

    def __getitem__(self, name: str) -> str:
        return self._fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    @property
    def _fields(self) -> Mapping[str, str]:
        if self._values is None:
            fields = orjson.loads(self.text)
            self._values = {name: orjson.dumps(value).decode() for name, value in fields.items()}
        return self._values


def _values(text: str, pairs: Callable[[list[tuple[str, Any]]], Any]) -> Any:
    return json.loads(text, parse_int=str.encode, parse_float=str.encode, object_pairs_hook=pairs)
