"""What the processes of a test log."""

from collections.abc import Iterator

import pytest
import structlog
from structlog.testing import LogCapture


@pytest.fixture
def log() -> Iterator[LogCapture]:
    """What is logged from now on; of processes in simulated time, from the given level on."""
    capture = LogCapture()
    structlog.configure(processors=[capture])
    yield capture
    structlog.reset_defaults()
