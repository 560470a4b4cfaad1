"""MongoDB: a second embedded server with a mirror of the shop."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from pymongo import AsyncMongoClient

from tailrace.demo.destinations.target import Source, Target
from tailrace.demo.programs import find_mongod
from tailrace.demo.server import embedded_server
from tailrace.demo.verification import differences
from tailrace.demo.workload import read_source
from tailrace.demo.workspace import Layout
from tailrace.event.extended_json import to_json

_COPY = "copy"
_STATE = "tailrace_"
"""The first letters of the collections in which Tailrace keeps positions."""


@asynccontextmanager
async def opened(layout: Layout, database: str) -> AsyncIterator[Target]:
    """Runs a replica set of one member during the block."""
    storage, log = layout.destination / "mongod", layout.log("destination")
    async with embedded_server(await find_mongod(), storage, log) as uri:

        async def compared(source: Source) -> list[str]:
            async with AsyncMongoClient[dict[str, Any]](uri) as client:
                copied = await read_source(client[_COPY])
            found = {
                f"{database}.{namespace.partition('.')[2]}": _by_identity(documents)
                for namespace, documents in copied.items()
                if not namespace.startswith(f"{_COPY}.{_STATE}")
            }
            return differences(found, source, "the mirror has")

        handler = {"type": "mongodb", "uri": uri, "database": _COPY}
        yield Target(handler, f"the database {_COPY!r} at {uri}", compared)


def _by_identity(documents: list[bytes]) -> dict[str, str]:
    texts = [to_json(raw, canonical=True) for raw in documents]
    return {
        json.dumps(json.loads(text)["_id"], ensure_ascii=False, separators=(",", ":")): text
        for text in texts
    }
