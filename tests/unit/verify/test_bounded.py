"""A destination that never answers does not hold a verification for ever."""

from typing import Any

import anyio
import pytest

from tailrace.event import Namespace
from tailrace.verify.bounded import BoundedComparison

ORDERS = Namespace("shop", "orders")


class Silent:
    async def expected(self, *given: Any) -> Any:
        await anyio.sleep_forever()

    stored = stored_keys = suspects = expected


async def test_each_call_that_takes_too_long_fails() -> None:
    bounded = BoundedComparison(Silent(), seconds=0)
    suspects = bounded.suspects
    assert suspects is not None
    for call in (
        lambda: bounded.expected([]),
        lambda: bounded.stored(ORDERS, []),
        lambda: bounded.stored_keys(ORDERS, None, 1),
        lambda: suspects(ORDERS, Silent().expected),
    ):
        with pytest.raises(TimeoutError):
            await call()
