"""Connections of peers in our form. A password is replaced by a variable of the environment."""

import re
from collections.abc import Mapping
from urllib.parse import quote_plus

from tailrace.migrate.conversion import Conversion

_URI = re.compile(r"(mongodb(?:\+srv)?://)(?:([^/?]*)@)?([^/?@]*)(/[^?]*)?(?:\?(.*))?\Z", re.DOTALL)
"""The login ends at the last ``@``, also if an earlier one is not percent-encoded: a part of a
password is no host."""


def connect(
    conversion: Conversion, uri: str, user: str, password: str, query: Mapping[str, str]
) -> None:
    """Sets the URI, with a user and more options of the query."""
    match = _URI.match(uri)
    if match is None:  # empty, or a variable
        conversion.uri = uri or "${MONGODB_URI}"
        if not uri:
            conversion.login["MONGODB_URI"] = "mongodb://unset"
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


def secret(conversion: Conversion, name: str, value: str) -> str:
    """A variable in the place of a secret, which stays what it is if it is a variable already."""
    if "$" in value:
        return value
    conversion.login[name] = value
    return f"${{{name}}}"


def _quoted(text: str) -> str:
    return text if "${" in text else quote_plus(text)
