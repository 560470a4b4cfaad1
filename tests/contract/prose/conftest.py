"""Every prose test of the specification runs with both drivers."""

import pytest

from tests.contract.streams import DRIVER_NAMES


@pytest.fixture(params=DRIVER_NAMES)
def name(request: pytest.FixtureRequest) -> str:
    """The name of the driver."""
    return str(request.param)
