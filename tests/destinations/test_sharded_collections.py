"""Documents of sharded collections in destinations that keep the last state of each document."""

from collections.abc import Callable
from itertools import zip_longest
from typing import Any

import pytest

from tailrace.event import ChangeEvent
from tailrace.model import Scope
from tests.destinations.calling import opened
from tests.handlers import begin, deliver
from tests.scripted.sharded import IN_ONE_BATCH, SEQUENCES, ShardedCollection

SHOP = Scope("orders", "shop")


@pytest.mark.parametrize("how", ["by transaction", "by event", "renamed fields"])
@pytest.mark.parametrize("name", ["postgresql", "mongodb", "redis"])
async def test_a_document_stays_while_it_lives(
    made: Callable[..., Any], name: str, how: str
) -> None:
    """All sequences side by side; a call of the destination ends between or inside transactions."""
    destination, living, streams = made(name), dict[Any, Any](), list[list[list[Any]]]()
    mapped = {"fields": {"leave_out": ["region"]}} if how == "renamed fields" else {}
    for title, sequence in SEQUENCES.items():
        for version in (1, 2):
            if how == "by event" and any(part in title for part in IN_ONE_BATCH):
                continue
            collection, identity = ShardedCollection(version), f"{title}, tokens {version}"
            sequence(collection, identity)
            living |= collection.living()
            groups = collection.sent
            if how == "by event":
                groups = [[event] for group in groups for event in group]
            streams.append(groups)
    async with opened({**destination.handler, **mapped}, SHOP) as handler:
        if handler.position is not None:
            await begin(handler)
        for batch in zip_longest(*streams, fillvalue=()):
            events = [ChangeEvent.from_document(event) for group in batch for event in group]
            await deliver(handler, *events)
    found = {each["_id"]: each for each in destination.documents("shop", "orders").values()}
    if mapped:
        living = {k: {f: v for f, v in each.items() if f != "region"} for k, each in living.items()}
    assert found == living
