"""Which handlers may be verified all the time: the configuration says so before anything runs."""

from typing import Any

import pytest

from tailrace.handlers import check_handlers
from tests.unit.config.files import minimal, parse

DSN, URI, URL = "postgresql://h/d", "mongodb://h", "redis://h:1/0"
HASHED_ID = {"hash_key": "k", "hash": ["_id"]}


class Kept:
    async def write(self, batch: Any) -> None: ...
    def comparison(self, scope: Any) -> None: ...


class Stored:
    async def write(self, batch: Any) -> None: ...


@pytest.mark.parametrize(
    ("handler", "is_comparable"),
    [
        ({"type": "postgresql", "dsn": DSN, "table": "{collection}"}, True),
        ({"type": "postgresql", "dsn": DSN, "table": "t", "fields": HASHED_ID}, False),
        ({"type": "postgresql", "dsn": DSN, "log": "changes"}, False),
        ({"type": "mongodb", "uri": URI, "database": "copy"}, True),
        ({"type": "mongodb", "uri": URI, "database": "copy", "outbox": "events"}, False),
        ({"type": "redis", "url": URL, "key": "{collection}:{key}"}, True),
        ({"type": "redis", "url": URL, "stream": "changes"}, False),
        ({"type": "python", "target": f"{__name__}:Kept"}, True),
        ({"type": "python", "target": f"{__name__}:Stored"}, False),
        ({"type": "http", "url": "https://h"}, False),
        ({"type": "log"}, False),
    ],
)
def test_a_route_with_verify_needs_handlers_that_can_be_asked(
    handler: dict[str, Any], is_comparable: bool
) -> None:
    data = minimal(
        handler=handler,
        scope={"full_document": "lookup"},
        route={"handlers": ["mine"], "verify": {"every": "24h"}},
    )
    settings = parse(data)
    problems = check_handlers(settings.handlers, settings.scopes, settings.routes)
    assert [(each.path, each.message[:40]) for each in problems] == (
        [] if is_comparable else [("routes[0].verify", "handler 'mine' cannot be asked for its r")]
    )
