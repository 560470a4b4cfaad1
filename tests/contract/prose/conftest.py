"""Every prose test runs with both drivers; `ground` is each server that can show it."""

from __future__ import annotations

import pytest

from tests.contract.prose.grounds import Ground, MongodGround, ScriptedGround
from tests.contract.streams import DRIVER_NAMES


@pytest.fixture(params=DRIVER_NAMES)
def name(request: pytest.FixtureRequest) -> str:
    """The driver."""
    return str(request.param)


@pytest.fixture(params=["scripted", "mongod"])
def ground(request: pytest.FixtureRequest) -> Ground:
    """The server."""
    if request.param == "scripted":
        return ScriptedGround(request.getfixturevalue("scripted"))
    mongod = request.getfixturevalue("mongod")
    return MongodGround(mongod, request.getfixturevalue("database"))
