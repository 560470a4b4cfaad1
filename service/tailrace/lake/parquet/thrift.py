"""Thrift's compact protocol, as far as Parquet's metadata needs it.

https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md. A value to be
written is a pair of its type and its bytes, so that a struct is a mapping of field ids to values.
What is read is not built but walked: a reader takes the few fields that it wants and skips the
rest, so that hostile bytes cost no more than their length.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE = 1, 2, 3, 4, 5, 6, 7
BINARY, LIST, SET, MAP, STRUCT, UUID = 8, 9, 10, 11, 12, 13

Value = tuple[int, bytes]
"""The type of a value, and its bytes."""

_WIDTHS = {TRUE: 1, FALSE: 1, BYTE: 1, DOUBLE: 8, UUID: 16}
"""Bytes of an element of a list or a map, by its type, where that is fixed."""

_DEEPEST = 32
"""Structs and lists in each other; Parquet's metadata has nine."""

_VARINT_BITS = 63
"""Where the tenth and last byte of a 64-bit number stands."""


def varint(number: int) -> bytes:
    """A number of at least 0, seven bits a byte, the lowest first ("ULEB128")."""
    if number < 0x80:
        return bytes((number,))
    parts = bytearray()
    while number >= 0x80:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def i32(number: int) -> Value:
    return I32, varint(_zigzag(number))


def i64(number: int) -> Value:
    return I64, varint(_zigzag(number))


def flag(true: bool) -> Value:
    """A field that says yes or no: its type says it all."""
    return TRUE if true else FALSE, b""


def binary(data: bytes) -> Value:
    return BINARY, varint(len(data)) + data


def struct(fields: Mapping[int, Value | None]) -> Value:
    """The fields by id, in ascending order and less than 16 apart; those of ``None`` are absent."""
    parts, last = bytearray(), 0
    for field, value in fields.items():
        if value is not None:
            kind, data = value
            parts.append((field - last) << 4 | kind)
            parts += data
            last = field
    parts.append(0)
    return STRUCT, bytes(parts)


def listing(kind: int, values: Sequence[Value]) -> Value:
    """A list of values of one type (none of which is a flag)."""
    count = len(values)
    head = bytes((count << 4 | kind,)) if count < 15 else bytes((0xF0 | kind,)) + varint(count)
    return LIST, head + b"".join([data for _, data in values])


def _zigzag(number: int) -> int:
    return number << 1 if number >= 0 else ~(number << 1)


class ThriftReader:
    """Goes through one struct. Every method raises ``ValueError`` where the bytes are none."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def fields(self) -> Iterator[tuple[int, int]]:
        """Id and type of each field of the struct that is next.

        The caller reads or skips a field's value before it asks for the next one.
        """
        field = 0
        while head := self._byte():
            step = head >> 4
            field = field + step if step else self.integer()
            yield field, head & 0x0F

    def integer(self) -> int:
        """An ``i16``, ``i32`` or ``i64``."""
        number = self._varint()
        return number >> 1 ^ -(number & 1)

    def binary(self) -> bytes:
        size = self._varint()
        begin = self._at
        self._pass(size)
        return self._data[begin : begin + size]

    def listing(self) -> tuple[int, int]:
        """The type of a list's elements, and how many follow: each of at least one byte."""
        head = self._byte()
        count = head >> 4
        if count == 0x0F:
            count = self._varint()
        if count > len(self._data) - self._at:
            raise ValueError(f"a list of {count} elements in {len(self._data) - self._at} bytes")
        return head & 0x0F, count

    def skip(self, kind: int) -> None:
        """Passes the value of a field."""
        if kind not in (TRUE, FALSE):
            self._skip(kind, 0)

    def _skip(self, kind: int, depth: int) -> None:
        if depth > _DEEPEST:
            raise ValueError("structs in structs without an end")
        if kind in _WIDTHS:
            self._pass(_WIDTHS[kind])
        elif kind in (I16, I32, I64):
            self._varint()
        elif kind == BINARY:
            self._pass(self._varint())
        elif kind in (LIST, SET):
            element, count = self.listing()
            for _ in range(count):
                self._skip(element, depth + 1)
        elif kind == MAP:
            self._skip_map(depth)
        elif kind == STRUCT:
            for _, inner in self.fields():
                if inner not in (TRUE, FALSE):
                    self._skip(inner, depth + 1)
        else:
            raise ValueError(f"a value of the unknown type {kind}")

    def _skip_map(self, depth: int) -> None:
        count = self._varint()
        if not count:
            return
        kinds = self._byte()
        if 2 * count > len(self._data) - self._at:
            raise ValueError(f"a map of {count} entries in {len(self._data) - self._at} bytes")
        for _ in range(count):
            self._skip(kinds >> 4, depth + 1)
            self._skip(kinds & 0x0F, depth + 1)

    def _varint(self) -> int:
        number = 0
        for shift in range(0, _VARINT_BITS + 1, 7):
            byte = self._byte()
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
        raise ValueError("a number of more than ten bytes")

    def _byte(self) -> int:
        self._pass(1)
        return self._data[self._at - 1]

    def _pass(self, size: int) -> None:
        if size > len(self._data) - self._at:
            raise ValueError("the metadata ends inside a value")
        self._at += size
