"""Mistakes in the settings of a Kafka handler are one line each, with the key and what to do."""

from pathlib import Path

import pytest

from tailrace.cli import main

CONFIGURATION = """\
mongodb: {{uri: mongodb://localhost/}}
scopes: [{{name: orders, database: shop, collection: orders, full_document: lookup}}]
routes: [{{scope: orders, handlers: [bus]}}]
handlers:
  bus: {{type: kafka, bootstrap_servers: "127.0.0.1:1", {more}}}
"""
MISTAKES = {
    "topic: x, envelope: debezium, ddl_topic: y": "ddl_topic: envelope debezium has no form",
    "retries: 3": "handlers.bus.retries: ",
    "topic: '{prefix}.x'": "set prefix, or another topic",
    "topic: '{database.x}'": "handlers.bus.topic: ",
    "prefix: a, positions_topic: 'a b'": "must be the name of a topic",
    "prefix: a, client: {acks: 1}": "acks is set by Tailrace: order and delivery depend on it",
    "prefix: a, client: {sasl.username: x}": "use the key username",
    "prefix: a, client: {no.such: 1}": 'No such configuration property: "no.such"',
    "prefix: a, client: {linger.ms: soon}": "handlers.bus.client: ",
    "prefix: a, security_protocol: sasl_ssl": "needs sasl_mechanism",
    "prefix: a, username: x": "need security_protocol sasl_ssl",
    "prefix: a, security_protocol: sasl_ssl, sasl_mechanism: PLAIN": "needs username and password",
    "prefix: a, security_protocol: ssl, ssl_ca_location: /none": "ssl.ca.location",
}


@pytest.mark.parametrize("more", MISTAKES)
def test_a_mistake_is_one_line(
    more: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIGURATION.format(more=more))
    assert main(["check", "--config", str(path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "handlers.bus" in line
    assert MISTAKES[more] in line


def test_secrets_are_not_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = "prefix: a, client: {ssl.key.password: open-sesame}"
    path = tmp_path / "config.yaml"
    path.write_text(CONFIGURATION.format(more=more))
    assert main(["check", "--config", str(path)]) == 0
    out = capsys.readouterr()
    assert "open-sesame" not in out.out + out.err
