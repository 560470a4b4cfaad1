"""What the HTTP server of the pipeline shows to whom."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from tailrace.observe.access import Access
from tailrace.observe.exchange import Call, Request
from tailrace.pipeline.observation import _Views


@pytest.mark.parametrize(
    ("loopback", "shown"), [(True, "not a number: anna"), (False, "see the log")]
)
async def test_why_a_batch_failed_is_shown_on_loopback_only(loopback: bool, shown: str) -> None:
    """The error may quote documents."""
    progress = SimpleNamespace(
        report=dict, batches=3, set_aside=0, missing={}, seconds={}, waiting={}
    )
    job = SimpleNamespace(
        progress=progress,
        lake=SimpleNamespace(location="lake"),
        tables=SimpleNamespace(location="tables"),
    )
    follower: Any = SimpleNamespace(job=job, failure="not a number: anna", failures=1)
    views = _Views(follower, None, Access(loopback), lambda: False)  # type: ignore[arg-type]
    headers: Mapping[bytes, bytes] = {}
    for path in ("/readyz", "/status"):
        call = views.find(Request("GET", path, headers))
        assert isinstance(call, Call)
        text = (await call.answer(b"")).body.decode()
        assert shown in text
        assert ("anna" in text) is loopback
