"""Connections of peers in our form. A password is replaced by a variable of the environment."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote_plus

from tailrace.migrate.conversion import Conversion
from tailrace.migrate.options import PeerOptions

_URI = re.compile(r"(mongodb(?:\+srv)?://)(?:([^@/]*)@)?([^/?]*)(/[^?]*)?(?:\?(.*))?\Z", re.DOTALL)
_JAAS = re.compile(r"\b(username|password)\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s;]+))")

_TUNING = (
    r"(key|value)\.(serializer|deserializer)|acks|linger\.ms|batch\.size|buffer\.memory|retries"
    r"|max\.in\.flight.*|max\.block\.ms|delivery\.timeout\.ms|request\.timeout\.ms|client\.id"
    r"|retry\.backoff.*|reconnect\.backoff.*|metadata\.max\.age\.ms|enable\.idempotence|.*buffer.*"
    r"|max\.request\.size|auto\.create\.topics\.enable"
)


def connect(
    conversion: Conversion, uri: str, user: str, password: str, query: Mapping[str, str]
) -> None:
    """Sets the URI, with a user and more options of the query."""
    match = _URI.match(uri)
    if match is None:  # empty, or a variable
        conversion.uri = uri or "${MONGODB_URI}"
        return
    scheme, login, hosts, database, options = match.groups()
    if not user and login:
        user, _, password = login.partition(":")
    elif user:
        user, password = _quoted(user), _quoted(password)
    if password and "$" not in password:
        conversion.login["MONGODB_PASSWORD"] = password
        password = "${MONGODB_PASSWORD}"  # noqa: S105 - a variable
    names = {pair.partition("=")[0] for pair in (options or "").split("&")}
    more = [f"{name}={value}" for name, value in query.items() if name not in names and value]
    text = "&".join(filter(None, (options, *more)))
    who = f"{user}:{password}@" if password else f"{user}@" if user else ""
    path = database or ("/" if text else "")
    conversion.uri = f"{scheme}{who}{hosts}{path}{'?' + text if text else ''}"


def kafka(conversion: Conversion, client: PeerOptions) -> dict[str, Any]:
    """The connection of a handler ``kafka``, from the options of a Kafka client."""
    servers = client.take("bootstrap.servers")
    if not servers:
        client.lose(
            "bootstrap.servers",
            "the file does not name the brokers, which Kafka Connect's workers know: set the "
            "environment variable KAFKA_BOOTSTRAP_SERVERS",
        )
    handler: dict[str, Any] = {"bootstrap_servers": servers or "${KAFKA_BOOTSTRAP_SERVERS}"}
    if protocol := client.take("security.protocol").lower():
        handler["security_protocol"] = protocol
    if mechanism := client.take("sasl.mechanism"):
        handler["sasl_mechanism"] = mechanism
    for name, *values in _JAAS.findall(client.take("sasl.jaas.config")):
        handler[name] = "".join(values)
        if name == "password":
            handler[name] = secret(conversion, "KAFKA_PASSWORD", "".join(values))
    if compression := client.take("compression.type"):
        handler["client"] = {"compression.type": compression}
    reason = "options of Java's client: see 'client' of the handler for those of librdkafka"
    client.lose_rest({".*": reason}, (_TUNING,))
    return handler


def secret(conversion: Conversion, name: str, value: str) -> str:
    """A variable in the place of a secret, which stays what it is if it is a variable already."""
    if "$" in value:
        return value
    conversion.login[name] = value
    return f"${{{name}}}"


def _quoted(text: str) -> str:
    return text if "${" in text else quote_plus(text)
