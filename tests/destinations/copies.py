"""Daemons that copy the collection ``orders`` to another MongoDB cluster, and odd documents."""

from struct import pack
from typing import Any

from tailrace.event.bson import encoded
from tests.daemon import Daemon, until
from tests.destinations.mongodb import Target, raw_documents
from tests.orders import Orders


def following(orders: Orders, target: Target, directory: str = "run", **more: Any) -> Daemon:
    """A daemon whose scope is the collection ``orders``, or more with other keys of the scope."""
    handler = {
        **target.handler,
        "retry": {"attempts": 2, "first_seconds": 0.01, "cap_seconds": 0.01},
        **more.pop("handler", {}),
    }
    return orders.daemon(
        directory,
        scope={"full_document": "lookup", **more.pop("scope", {})},
        handlers={"copy": handler},
        routes=[{"scope": "orders", "handlers": ["copy"]}],
        **more,
    )


def halted(run: Daemon) -> str:
    """Why the only scope halts. It stops the process."""
    return run.halts()


def until_equal(orders: Orders, target: Target, collection: str = "orders") -> list[bytes]:
    """Until the copy has the same bytes as the source."""

    def equal() -> bool:
        source = raw_documents(orders.server, orders.database, collection)
        return source == target.raw(collection)

    until(equal, "that the copy equals the source")
    return target.raw(collection)


def _element(kind: int, name: bytes, value: bytes = b"") -> bytes:
    return b"%c%b\0%b" % (kind, name, value)


_TEXT = b"\x02\0\0\0a\0"
ODD = {
    "repeated names": _element(16, b"a", pack("<i", 1)) + _element(16, b"a", pack("<i", 2)),
    "dollars": _element(16, b"$set", pack("<i", 1)) + _element(16, b"$set", pack("<i", 2)),
    "dots": b"".join(_element(10, name) for name in (b"a.b", b".", b"", b"0", b"$a.b")),
    "a zero time": _element(17, b"t", bytes(8)) + _element(10, b"t"),
    "old types": _element(6, b"u")
    + _element(14, b"s", _TEXT)
    + _element(12, b"p", _TEXT + bytes(12)),
    "broken text": _element(2, b"s", b"\x03\0\0\0\xff\xfe\0"),
    "odd numbers": _element(1, b"d", pack("<d", -0.0)) + _element(1, b"n", b"\1" * 6 + b"\xf8\x7f"),
    "dates": _element(9, b"d", pack("<q", 2**62)) + _element(9, b"e", pack("<q", -(2**62))),
    "keys": _element(255, b"min") + _element(127, b"max"),
    "code": _element(15, b"c", pack("<i", 15) + _TEXT + encoded(b"")) + _element(13, b"j", _TEXT),
    "regex": _element(11, b"r", b"a.*\0ix\0"),
    "binary": _element(5, b"b", b"\x08\0\0\0\x02\x04\0\0\0abcd"),
}


def odd_documents() -> list[bytes]:
    """Documents with what applications seldom store, by themselves and within another."""
    found = []
    for number, elements in enumerate(ODD.values()):
        inner = _element(3, b"in", encoded(elements)) + _element(4, b"list", encoded(b""))
        for half, content in enumerate((elements, inner)):
            identity = _element(16, b"_id", pack("<i", 2 * number + half))
            found.append(encoded(identity + content))
    return found
