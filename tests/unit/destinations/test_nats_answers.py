"""What an answer of JetStream says something about: this event, or the destination."""

import pytest

from tailrace.destinations.nats.answers import NotStored, failure
from tailrace.errors import PermanentError, Refused, Unavailable

MESSAGE = {10054: "message size exceeds maximum", 10097: "header size exceeds maximum"}
DESTINATION = {
    0: "an answer without a code",
    10002: "resource limits exceeded for account",
    10008: "JetStream system temporarily unavailable",
    10009: "not leader",
    10023: "insufficient resources",
    10028: "insufficient memory",
    10035: "account not found",
    10039: "JetStream not enabled for account",
    10047: "insufficient storage",
    10052: "stream configuration",
    10060: "expected stream does not match",
    10070: "wrong last msg ID",
    10071: "wrong last sequence",
    10076: "JetStream not enabled",
    10077: "maximum messages exceeded",
    10096: "stream not valid",
    10109: "invalid operation on sealed stream",
    10111: "rollup not permitted",
    10118: "stream is offline",
    10120: "no limits for the account",
    10158: "duplicate message id is in process",
    10163: "expected last sequence per subject temporarily unavailable",
    10165: "invalid per-message TTL",
    10166: "per-message TTL is disabled",
    10167: "too many requests",
    10168: "message counters is disabled",
    10169: "message counter increment is missing",
    10174: "atomic publish is disabled",
    10185: "minimum api level required",
    10188: "message schedules is disabled",
    10194: "stream is offline: …",
    19999: "a code of a later server",
}


@pytest.mark.parametrize("code", MESSAGE)
def test_a_message_that_is_too_large_is_refused_if_it_was_alone(code: int) -> None:
    error = NotStored("app.shop.orders", code, MESSAGE[code])
    assert isinstance(failure(error, 1), Refused)
    assert isinstance(failure(error, 2), PermanentError)


@pytest.mark.parametrize("code", DESTINATION)
@pytest.mark.parametrize("events", [1, 2])
def test_what_is_about_the_destination_is_waited_for(code: int, events: int) -> None:
    raised = failure(NotStored("app.shop.orders", code, DESTINATION[code]), events)
    assert isinstance(raised, Unavailable)
    assert DESTINATION[code] in str(raised)
