"""The section ``telemetry`` of a configuration."""

from typing import Any

from tailrace.config.telemetry import TelemetrySettings
from tests.unit.config.files import minimal, parse


def settings(**keys: Any) -> TelemetrySettings:
    section = parse(minimal(telemetry=keys)).telemetry
    assert section is not None
    return section
