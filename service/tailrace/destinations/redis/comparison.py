"""Compares the values of keys with those that would be set for their documents."""

from collections.abc import Callable, Sequence
from itertools import accumulate

from tailrace.destination import (
    ROWS_BYTES,
    DocumentId,
    HeldKeys,
    HeldRows,
    Namespace,
    Row,
    converted,
)
from tailrace.destination.held_keys import held_key
from tailrace.destinations.redis.key_names import KeyNames, ListedKeys
from tailrace.destinations.redis.server import RedisServer
from tailrace.errors import Refused
from tailrace.event import ChangeEvent
from tailrace.event.document_key import key_text

Values = Callable[[Sequence[ChangeEvent]], Sequence[tuple[str, bytes | None]]]
"""By event, its key and its value."""


class KeysComparison:
    """Implements :class:`tailrace.destination.Comparison` with a connection of its own.

    Redis stores no position with the values. ``expires``: whether keys expire.
    """

    def __init__(
        self, server: RedisServer, names: KeyNames, values: Values, *, expires: bool
    ) -> None:
        self._server = server
        self._names = names
        self._values = values
        self._expires = expires

    async def expected(self, documents: Sequence[ChangeEvent]) -> Sequence[Row]:
        made = await converted(self._values, documents)
        nameless = [at for at, (key, _) in enumerate(made) if not key]
        if nameless:
            raise Refused(dict.fromkeys(nameless, "it has no document key"))
        return [{"value": value} for _, value in made]

    async def stored(self, collection: Namespace, keys: Sequence[DocumentId]) -> HeldRows:
        prefix = self._prefix(collection)
        names = [prefix + key_text(key.raw) for key in keys]
        values, read = list[bytes | None](), 0
        if names:
            async with self._server.connection() as connection:
                sizes = await connection.answers([("STRLEN", name) for name in names])
                # Of a key that holds no string, the size is an error, and the value None.
                ends = accumulate(size if isinstance(size, int) else 0 for size in sizes)
                over = (at for at, end in enumerate(ends, 1) if end >= ROWS_BYTES)
                read = next(over, len(names))
                values = await connection.one("MGET", *names[:read])
        values += [None] * (len(names) - len(values))
        rows = [None if value is None else {"value": value} for value in values]
        return HeldRows(rows, expires=self._expires, whole=read == len(names))

    async def stored_keys(self, collection: Namespace, after: str | None, most: int) -> HeldKeys:
        prefix = self._prefix(collection)
        pattern, owns = self._names.pattern(prefix), ListedKeys({prefix}).owns
        async with self._server.connection() as connection:
            scan = ("SCAN", after or "0", "MATCH", pattern, "COUNT", most)
            cursor, names = await connection.one(*scan)
        texts = [_text(name[len(prefix.encode()) :]) for name in names if owns(name)]
        keys = [held_key(text) for text in texts]
        following = cursor.decode() if int(cursor) else None
        return HeldKeys([key for key in keys if key is not None], following)

    def _prefix(self, collection: Namespace) -> str:
        return self._names.prefix(collection.db, collection.coll or "")


def _text(name: bytes) -> str:
    return name.decode(errors="backslashreplace")
