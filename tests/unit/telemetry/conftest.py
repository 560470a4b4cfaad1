"""A provider of spans of each test."""

import pytest
from opentelemetry.sdk.trace import TracerProvider


@pytest.fixture(autouse=True)
def own_provider(monkeypatch: pytest.MonkeyPatch) -> list[TracerProvider]:
    """The provider of the process stays as it is for other tests."""
    providers = list[TracerProvider]()
    monkeypatch.setattr("opentelemetry.trace.set_tracer_provider", providers.append)
    return providers
