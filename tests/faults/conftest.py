"""Scripted sets of three members, and what a client's URI needs to notice faults soon."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.scripted import ScriptedSet

QUICK = "&heartbeatFrequencyMS=500&connectTimeoutMS=1000"


@pytest.fixture
def three() -> Iterator[ScriptedSet]:
    """A scripted replica set of three members."""
    with ScriptedSet(members=3) as server:
        yield server
