"""Tests of this directory run in simulated time."""

import logging
from collections.abc import Iterator, Mapping

import pytest
import structlog
from structlog.testing import LogCapture

from tests.unit.replicas.simulated_time import SimulatedLoop


def pytest_asyncio_loop_factories() -> Mapping[str, type[SimulatedLoop]]:
    """A loop for each test, whose time begins at 0."""
    return {"simulated": SimulatedLoop}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Nothing is logged, which would take most of the time."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


@pytest.fixture
def log(quiet: None) -> LogCapture:
    """What is logged from the level ``warning`` on."""
    capture = LogCapture()
    warnings = structlog.make_filtering_bound_logger(logging.WARNING)
    structlog.configure(processors=[capture], wrapper_class=warnings)
    return capture
