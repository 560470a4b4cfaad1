"""A server that uses little CPU: replies are encoded beforehand and sent unchanged.

It is a process with one blocking thread a connection. Its standard input controls it:

    serve N        every cursor gets N more replies, as fast as it asks
    serve N C      only cursors on collection C do
    await N        waits until exactly N cursors are open
    tick MS N      every cursor gets N single events, one each MS milliseconds, which contain
                   the time at which they were sent
    reload D R K   other documents (of D bytes), replies (of R events, 0: of 16 MB) and kind

It answers ``done`` on standard output as soon as they are sent. Otherwise it is idle, and its
cursors wait as mongod's do.
"""

import itertools
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import bson
from bson import Int64
from bson.timestamp import Timestamp

from tests.bench import stock
from tests.scripted import wire
from tests.scripted.behaviour import Behaviour
from tests.scripted.journal import Command
from tests.scripted.topology import Topology

_BEHAVIOUR = Behaviour(streaming_hello=False)
_SEND_BYTES = 4 * 1024 * 1024


@dataclass(slots=True)
class _Cursor:
    id: int
    namespace: str
    served: int = 0
    """The replies that it has received."""
    allowed: int = 0
    ticks: int = 0
    ticked: int = 0

    @property
    def satisfied(self) -> bool:
        return self.served == self.allowed and self.ticked == self.ticks


class Source:
    """The state that connections share; ``changed`` guards it and wakes waiting threads."""

    def __init__(self, document_bytes: int, events: int | None) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        host = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.topology = Topology("replica_set", "rs0", [host])
        self.uri = f"mongodb://{host}/?replicaSet=rs0"
        self.changed = threading.Condition()
        self.cursors: dict[int, _Cursor] = {}
        self.ids = itertools.count(1)
        self.load(document_bytes, events)

    def load(
        self, document_bytes: int, events: int | None, kind: stock.Kind = "object_ids"
    ) -> None:
        """Creates the replies to serve from now on."""
        self.replies = stock.stored_replies(document_bytes, events, kind)
        self.template = stock.event(0, document_bytes, kind)

    def accept(self) -> None:
        """Serves each connection in a thread, forever."""
        while True:
            connection, _ = self.listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BYTES)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def obey(self, line: str) -> str:
        """Executes a line of standard input; returns the answer."""
        match line.split():
            case ["await", count]:
                with self.changed:
                    self.changed.wait_for(lambda: len(self.cursors) == int(count))
                    return "done"
            case ["serve", count, *collection]:
                self._allow(int(count), "".join(collection))
            case ["tick", milliseconds, count]:
                for _ in range(int(count)):
                    time.sleep(int(milliseconds) / 1000)
                    with self.changed:
                        for cursor in self.cursors.values():
                            cursor.ticks += 1
                        self.changed.notify_all()
            case ["reload", document_bytes, events, kind]:
                self.load(int(document_bytes), int(events) or None, cast(stock.Kind, kind))
                return f"done {sum(r.events for r in self.replies)} {len(self.replies)}"
            case _:
                return f"unknown: {line}"
        with self.changed:
            self.changed.wait_for(lambda: all(c.satisfied for c in self.cursors.values()))
            return f"done {sum(self._events(c.served) for c in self.cursors.values())}"

    def _events(self, replies: int) -> int:
        """The number of events in the first replies; replies of 16 MB differ in their number."""
        rounds, rest = divmod(replies, len(self.replies))
        counts = [reply.events for reply in self.replies]
        return rounds * sum(counts) + sum(counts[:rest])

    def _allow(self, count: int, collection: str) -> None:
        with self.changed:
            for cursor in self.cursors.values():
                if not collection or cursor.namespace.endswith(f".{collection}"):
                    cursor.allowed += count
            self.changed.notify_all()

    # --- connections -----------------------------------------------------------------------

    def _serve(self, connection: socket.socket) -> None:
        number = next(self.ids)
        mine: set[int] = set()
        stream = connection.makefile("rb")
        try:
            while header := stream.read(wire.HEADER_BYTES):
                message = wire.parse(header, stream.read(wire.body_bytes(header)))
                if message is None:
                    break
                parts = self._answer(message, number, mine)
                head = wire.frame_head(message, next(self.ids), sum(map(len, parts)))
                _send(connection, [head, *parts])
        except OSError:
            pass
        finally:
            self._forget(mine)
            connection.close()

    def _answer(self, message: wire.Message, number: int, mine: set[int]) -> list[bytes]:
        document = message.document
        name = next(iter(document))
        reply: Mapping[str, Any] = {}
        match name.lower():
            case "getmore":
                return self._get_more(document)
            case "aggregate" if "$changeStream" in document["pipeline"][0]:
                return self._open(message, mine)
            case "aggregate":  # of the oplog, which it does not have
                reply = {"cursor": {"firstBatch": [], "id": Int64(0), "ns": "local.oplog.rs"}}
            case "listcollections":
                reply = {"cursor": {"firstBatch": [], "id": Int64(0), "ns": "bench.$cmd"}}
            case "hello" | "ismaster":
                command = Command(0.0, 0, number, name, message.database, document)
                reply = self.topology.hello(command, _BEHAVIOUR, _now())
            case "buildinfo":
                reply = {"version": "7.0.18", "versionArray": [7, 0, 18, 0]}
            case "replsetgetconfig":
                settings = {"replicaSetId": self.topology.replica_set_id}
                reply = {"config": {"_id": "rs0", "version": 1, "settings": settings}}
            case "killcursors":
                self._forget(document["cursors"])
        return [bson.encode({**reply, "ok": 1.0})]

    def _forget(self, cursors: Iterable[int]) -> None:
        with self.changed:
            for cursor in cursors:
                self.cursors.pop(cursor, None)
            self.changed.notify_all()

    def _open(self, message: wire.Message, mine: set[int]) -> list[bytes]:
        target = message.document["aggregate"]
        namespace = f"{message.database}.{'$cmd.aggregate' if target == 1 else target}"
        cursor = _Cursor(next(self.ids), namespace)
        with self.changed:
            self.cursors[cursor.id] = cursor
            mine.add(cursor.id)
        return _cursor_reply("firstBatch", wire.array([]), _now(), cursor)

    def _get_more(self, document: Mapping[str, Any]) -> list[bytes]:
        cursor = self.cursors.get(document["getMore"])
        if cursor is None:
            return [bson.encode({"ok": 0.0, "code": 43, "errmsg": "cursor not found"})]
        with self.changed:
            if cursor.satisfied:
                wait = document.get("maxTimeMS", 1000) / 1000
                self.changed.wait_for(lambda: not cursor.satisfied, wait)
            array, at = self._take(cursor)
            if cursor.satisfied:
                self.changed.notify_all()
        return _cursor_reply("nextBatch", array, at, cursor)

    def _take(self, cursor: _Cursor) -> tuple[bytes, Timestamp]:
        if cursor.served < cursor.allowed:
            reply = self.replies[cursor.served % len(self.replies)]
            cursor.served += 1
            return reply.array, reply.time
        ticks = cursor.ticks - cursor.ticked
        cursor.ticked = cursor.ticks
        return wire.array([self._stamped() for _ in range(ticks)]), _now()

    def _stamped(self) -> bytes:
        event = dict(self.template)
        stamp = {"sentAt": Int64(time.monotonic_ns())}
        event["fullDocument"] = {**event["fullDocument"], **stamp}
        return wire.in_order(event)


def _cursor_reply(name: str, array: bytes, at: Timestamp, cursor: _Cursor) -> list[bytes]:
    """A reply in parts, so that the stored batch is sent without a copy."""
    begin, behind = b"\x04%b\0" % name.encode(), stock.tail(at, cursor.id, cursor.namespace)
    stamps = wire.elements({"ok": 1.0, "operationTime": at})
    size = 4 + len(begin) + len(array) + len(behind) + 1
    whole = 4 + len(b"\x03cursor\0") + size + len(stamps) + 1
    front = struct.pack("<i8si", whole, b"\x03cursor\0", size) + begin
    return [front, array, b"%b\0%b\0" % (behind, stamps)]


def _send(connection: socket.socket, parts: list[bytes]) -> None:
    views = [memoryview(part) for part in parts]
    while views:
        sent = connection.sendmsg(views)
        while views and sent >= len(views[0]):
            sent -= len(views.pop(0))
        if views:
            views[0] = views[0][sent:]


def _now() -> Timestamp:
    return Timestamp(int(time.time()), 1)


def main() -> None:
    """``python -m tests.bench.source DOCUMENT_BYTES EVENTS [CPU]``."""
    document_bytes, events, *cpu = map(int, sys.argv[1:])
    if cpu:
        os.sched_setaffinity(0, {cpu[0]})
    source = Source(document_bytes, events or None)
    threading.Thread(target=source.accept, daemon=True).start()
    print(source.uri, flush=True)
    for line in sys.stdin:
        print(source.obey(line), flush=True)


if __name__ == "__main__":
    main()
