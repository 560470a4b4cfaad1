"""The configuration for eyes: all of it, but no secret."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from typing import Any
from urllib.parse import unquote_plus

from pydantic import BaseModel, SecretStr

from service.config.settings import Settings

MASK = "***"

# A connection string as the specification has it: a user and password without ':', '/', '?' and
# '@' (those must be percent-encoded), hosts, options.
# https://github.com/mongodb/specifications/blob/master/source/connection-string/connection-string-spec.md
_URI = re.compile(
    r"(?P<scheme>[a-z0-9+.-]+://)"
    r"(?:(?P<user>[^:@/?#\s]*)(?P<password>:[^:@/?#\s]*)?@)?"
    r"(?P<hosts>(?:\[[0-9A-Fa-f:.]+\]|[^:@/?#,\s\[\]]+)(?::[0-9]{1,5})?"
    r"(?:,(?:\[[0-9A-Fa-f:.]+\]|[^:@/?#,\s\[\]]+)(?::[0-9]{1,5})?)*)"
    r"(?P<database>/[^?@#:\s]*)?"
    r"(?:\?(?P<options>[^@?\s]*))?\Z",
    re.IGNORECASE,
)
_SECRET_OPTION = re.compile(
    r"password|passphrase|passwd|secret|token|credential|authmechanismproperties", re.IGNORECASE
)


def masked(settings: Settings) -> dict[str, Any]:
    """The effective configuration as plain data, in the order of the file, without secrets.

    Keys that are left to the server are left out.
    """
    return _section(settings)


def mask_uri(text: str) -> str:
    """The connection string with ``***`` for its password and for options that hold secrets.

    Where the text is no proper connection string, more is masked rather than less.
    """
    match = _URI.match(text)
    if match:
        user, password = match["user"], match["password"]
        login = "" if user is None else f"{user}{f':{MASK}' if password else ''}@"
        head = f"{match['scheme']}{login}{match['hosts']}{match['database'] or ''}"
        options = match["options"]
        return head if options is None else f"{head}?{_masked_options(options)}"
    scheme, separator, rest = text.partition("://")
    if not separator:
        return MASK
    _, at, behind = rest.rpartition("@")
    if not at:
        return f"{scheme}://{MASK}"
    hosts, question, options = behind.partition("?")
    tail = f"{hosts}?{_masked_options(options)}" if question else hosts
    return f"{scheme}://{MASK}@{tail}"


def _masked_options(options: str) -> str:
    return "".join(
        part if part in ("&", ";", "") else _masked_option(part)
        for part in re.split(r"([&;])", options)
    )


def _masked_option(option: str) -> str:
    name, equals, _ = option.partition("=")
    if not equals:
        return MASK  # the rest of a value with an unescaped separator, perhaps
    return f"{name}={MASK}" if _SECRET_OPTION.search(unquote_plus(name)) else option


def _section(section: BaseModel) -> dict[str, Any]:
    values = {
        info.alias or name: getattr(section, name)
        for name, info in type(section).model_fields.items()
    }
    return {key: _plain(value) for key, value in values.items() if value is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return _section(value)
    if isinstance(value, SecretStr):
        return mask_uri(value.get_secret_value())
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.isoformat() if isinstance(value, date) else value
