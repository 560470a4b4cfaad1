"""Failure policies: a handler's own settings take precedence over `delivery`."""

from dataclasses import replace
from typing import Any

import pytest

from tailrace.config.delivery import DeliverySettings
from tailrace.destinations.log import LogHandlerSettings
from tailrace.handlers.failures import failure_policy
from tailrace.handlers.open_handler import open_handler
from tailrace.model.failure_policy import Backoff, FailurePolicy
from tests.handlers import handler, opening

DELIVERY = {
    "retry": {"attempts": 7, "first_seconds": 2, "cap_seconds": 60},
    "on_failure": "halt",
    "dead_letters": {"max_consecutive": 3, "max_ratio": 0.1, "ratio_window": 50},
}
OF_DELIVERY = {
    "attempts": 7,
    "backoff": Backoff(2.0, 60.0),
    "timeout_seconds": None,
    "halt": True,
    "max_consecutive": 3,
    "max_ratio": 0.1,
    "ratio_window": 50,
}


@pytest.mark.parametrize(
    ("own", "differs"),
    [
        ({}, {}),
        ({"timeout_seconds": 5}, {"timeout_seconds": 5.0}),
        ({"on_failure": "dead_letter"}, {"halt": False}),
        (
            {"retry": {"attempts": 2, "first_seconds": 1, "cap_seconds": 1}},
            {"attempts": 2, "backoff": Backoff(1.0, 1.0)},
        ),
        # As a whole: keys missing in such a section get the default, not `delivery`'s value.
        ({"retry": {"attempts": 2}}, {"attempts": 2, "backoff": Backoff(0.5, 30.0)}),
    ],
)
async def test_each_key_of_a_handler_goes_before_that_of_delivery(
    own: dict[str, Any], differs: dict[str, Any]
) -> None:
    settings = LogHandlerSettings.model_validate({"type": "log", **own})
    delivery = DeliverySettings.model_validate(DELIVERY)
    expected = FailurePolicy(**{**OF_DELIVERY, **differs})
    async with open_handler(replace(opening("look"), delivery=delivery), settings) as opened:
        assert opened.failure == expected


async def nothing(given: object) -> None:
    return None


@pytest.mark.parametrize(
    ("own", "halts"), [({}, True), ({"on_failure": "dead_letter"}, False)], ids=["default", "set"]
)
def test_a_handler_with_a_position_halts_unless_its_own_settings_say_otherwise(
    own: dict[str, Any], halts: bool
) -> None:
    """A dead letter could not be replayed to it."""
    settings = LogHandlerSettings.model_validate({"type": "log", **own})
    table = handler("table", on_events=nothing, position=nothing)
    assert failure_policy("table", settings, DeliverySettings(), table).halt is halts
