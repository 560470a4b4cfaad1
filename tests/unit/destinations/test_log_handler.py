"""What the log handler writes, and what it must not write."""

import json

from structlog.testing import capture_logs

from tailrace.destinations.log import LogHandlerSettings
from tailrace.event import ChangeEvent
from tailrace.handlers.open_handler import open_handler
from tests.handlers import deliver, opening
from tests.unit.engine.changes import Document, change, token


async def logged(document: Document, level: str = "info") -> Document:
    settings = LogHandlerSettings.model_validate({"type": "log", "level": level})
    with capture_logs() as logs:
        async with open_handler(opening("first_look"), settings) as handler:
            await deliver(handler, ChangeEvent.from_document(document))
    (line,) = logs
    return dict(line)


async def test_a_line_tells_what_happened_and_where() -> None:
    assert await logged(change(1), "warning") == {
        "event": "event.received",
        "handler": "first_look",
        "log_level": "warning",
        "operation": "insert",
        "ns": "shop.orders",
        "cluster_time": "2025-11-30T10:53:21+00:00",
        "token": token(1).digest,
    }


async def test_neither_documents_nor_whole_tokens_are_written() -> None:
    secret = {"card": "4111 1111"}
    line = await logged(
        change(
            1,
            "key 4111 1111",
            fullDocument=secret,
            fullDocumentBeforeChange=secret,
            updateDescription={"updatedFields": secret},
        )
    )
    text = json.dumps(line)
    assert "4111" not in text
    assert token(1).document["_data"] not in text
