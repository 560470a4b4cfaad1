"""Mistakes in the settings of a Kafka handler are one line each, with the key and what to do."""

import pytest

from tests.unit.destinations.conftest import Check

MISTAKES = {
    "topic: x, envelope: debezium, ddl_topic: y": "ddl_topic: envelope debezium has no form",
    "retries: 3": "handlers.mine.retries: ",
    "topic: '{prefix}.x'": "set prefix, or another topic",
    "topic: '{database.x}'": "handlers.mine.topic: ",
    "prefix: a, positions_topic: 'a b'": "must be the name of a topic",
    "prefix: a, client: {acks: 1}": "acks is set by Tailrace: order and delivery depend on it",
    "prefix: a, client: {sasl.username: x}": "use the key username",
    "prefix: a, client: {no.such: 1}": 'No such configuration property: "no.such"',
    "prefix: a, client: {linger.ms: soon}": "handlers.mine.client: ",
    "prefix: a, security_protocol: sasl_ssl": "needs sasl_mechanism",
    "prefix: a, username: x": "need security_protocol sasl_ssl",
    "prefix: a, security_protocol: sasl_ssl, sasl_mechanism: PLAIN": "needs username and password",
    "prefix: a, security_protocol: ssl, ssl_ca_location: /none": "ssl.ca.location",
}


GIVEN = 'type: kafka, bootstrap_servers: "127.0.0.1:1"'


@pytest.mark.parametrize("more", MISTAKES)
def test_a_mistake_is_one_line(more: str, check: Check) -> None:
    mistake = check(f"{{{GIVEN}, {more}}}").mistake
    assert mistake.startswith("handlers.mine")
    assert MISTAKES[more] in mistake


def test_secrets_are_not_shown(check: Check) -> None:
    checked = check(f"{{{GIVEN}, prefix: a, client: {{ssl.key.password: open-sesame}}}}")
    assert checked.code == 0
    assert "open-sesame" not in checked.out + checked.err
