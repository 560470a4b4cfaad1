"""A soak that is interrupted ends with its report, also in its comparison at the end."""

import threading
from typing import Any

from tests.soak.system import SoakSystem
from tests.soak.verifying import SoakVerifications


class Unequal(SoakSystem):
    """It has a destination that lacks a document for ever."""

    def unequal(self) -> dict[str, list[str]]:
        return {"copy": ["orders/1"]}


class Endless:
    """A service whose verification does not end."""

    returncode = None

    def begun(self, *arguments: str) -> Any:
        return self

    def __enter__(self) -> "Endless":
        return self

    def __exit__(self, *_: object) -> None: ...

    def poll(self) -> None: ...


def test_an_interrupt_ends_the_comparison_with_what_is_unequal_until_then() -> None:
    service: Any = Endless()
    nothing: Any = None
    system, interrupted = Unequal(nothing, {}, service, ()), threading.Event()
    interrupted.set()
    assert system.caught_up(3600, interrupted) == {"copy": ["orders/1"]}
    plan: Any = type("Plan", (), {"rate": 1})
    verifications = SoakVerifications(system, plan, nothing)
    verifications.once(until=interrupted)
    assert verifications.told()["verifications"] == {}
