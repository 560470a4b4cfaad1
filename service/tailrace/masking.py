"""Replaces secrets by ``***`` in errors, logs, status, dead letters and configurations.

A secret is recognized by the name before it, by its place in a URL, or because it is in the
process's own configuration. In doubt, text is masked.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl, quote, quote_plus, unquote_plus, urlsplit

MASK = "***"

SHORTEST_OWN = 8
"""Secrets of at least this many characters are masked everywhere: a shorter one may be any word."""

_NAME = (
    r"(?:password|passphrase|passwd|pwd|secret|token|credential|api[_-]?key|access[_-]?key"
    r"|private[_-]?key|authorization|authmechanismproperties)"
)
_SECRET_NAME = re.compile(_NAME, re.IGNORECASE)
_QUOTED = r"\"(?:[^\"\\]|\\.)*\"?|'(?:[^'\\]|\\.)*'?"
# The value of a header may be two words: a scheme, and the secret.
_SCHEME = r"(?:(?:bearer|basic|digest|negotiate|token)\s+)?"
# `name=value`, as in URLs, environments, DSNs and calls; the value may be in quotes.
_ASSIGNED = re.compile(
    rf"({_NAME}[\w.%-]{{0,40}}['\"]?\s*=(?!=)\s*{_SCHEME})(?:{_QUOTED}|[^\s&;'\"]+)", re.IGNORECASE
)
# `"name": value`, as in JSON and in dictionaries.
_MEMBER = re.compile(
    rf"({_NAME}[\w.-]{{0,40}}\\?['\"]\s*:\s*)(?:{_QUOTED}|[^\s,;}}]+)", re.IGNORECASE
)
# `Name: value`, as in headers and YAML. Not `http.token: must be …`, which is a path in a file.
_FIELD = re.compile(
    r"((?<![\w.\]-])(?:\w[\w-]{0,40})?(?:password|passphrase|passwd|pwd|secret|api[_-]?key|access[_-]?key"
    rf"|private[_-]?key|[_-]token|authorization):[ \t]*{_SCHEME})(?:{_QUOTED}|[^\s,;'\"]+)",
    re.IGNORECASE,
)
_BEARER = re.compile(r"(\bbearer\s+)[\w.~+/-]{8,}=*", re.IGNORECASE)
# All text between user and host of a URL, up to the last "@": a password may have one unescaped.
_URLS = re.compile(r"://[^\s'\"]*")
_LOGIN = re.compile(r"://[^:/@]*:")

# A connection string as the specification has it: a user and password without ':', '/', '?' and
# '@' (those must be percent-encoded), hosts, options.
# https://github.com/mongodb/specifications/blob/master/source/connection-string/connection-string-spec.md
_LOGIN_PART = r"[^:@/?#\s]*"
_HOST = r"(?:\[[0-9A-Fa-f:.]+\]|[^:@/?#,\s\[\]]+)(?::[0-9]{1,5})?"
_URI = re.compile(
    rf"\w[\w+]*://(?:{_LOGIN_PART}(?::{_LOGIN_PART})?@)?"
    rf"{_HOST}(?:,{_HOST})*(?:/[^?@#:\s]*)?(?:\?[^@]*)?"
)
_URI_PASSWORD = re.compile(r"(://[^:@/]*):[^@/]*@")

_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
"""What controls a terminal, such as its colours (ECMA-48, 5.4): delta-rs has it in its errors."""

_HINTS = ("://", "pass", "token", "key", "secret", "auth", "bearer", "credential", "pwd")
"""A text with none of these, as most, has no secret except the process's own."""

_own: list[str] = []
"""Secrets of the configuration, which may be in any message."""


def keep_secret(*secrets: str) -> None:
    """Masks these secrets everywhere from now on, also percent-encoded.

    Not one that is the name of a secret itself, such as ``password``: without the name before it,
    another secret would not be recognized.
    """
    for secret in secrets:
        if len(secret) >= SHORTEST_OWN and not _SECRET_NAME.fullmatch(secret):
            forms = {*_own, secret, quote(secret, safe=""), quote_plus(secret)}
            _own[:] = sorted(
                forms, key=len, reverse=True
            )  # so that no part of a longer one is left


def secrets_of(uri: str) -> list[str]:
    """The secrets of a connection string: its password, and options with the name of a secret."""
    try:
        parts = urlsplit(uri)
        found = [value for name, value in parse_qsl(parts.query) if is_secret_name(name)]
        return [*found, parts.password or "", unquote_plus(parts.password or "")]
    except ValueError:  # not a URL
        return []


def without_secrets(text: str) -> str:
    """The text with each secret replaced by ``***``."""
    for secret in _own:
        text = text.replace(secret, MASK)
    lowered = text.lower()
    if not any(hint in lowered for hint in _HINTS):
        return text
    text = _URLS.sub(_without_login, text)
    for pattern in (_ASSIGNED, _MEMBER, _FIELD, _BEARER):
        text = pattern.sub(rf"\1{MASK}", text)
    return text


def _without_login(urls: re.Match[str]) -> str:
    text, end = urls[0], urls[0].rfind("@")
    login = _LOGIN.search(text, 0, max(end, 0))
    return f"{text[: login.end()]}{MASK}{text[end:]}" if login else text


@lru_cache(maxsize=1024)  # log lines have few different names
def is_secret_name(name: str) -> bool:
    """Whether a value with this name is secret."""
    return _SECRET_NAME.search(name) is not None


def without_secrets_within(value: Any) -> Any:
    """A value of a log line with its secrets masked, also in lists and mappings."""
    if isinstance(value, str):
        return without_secrets(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {
            str(key): MASK if is_secret_name(str(key)) else without_secrets_within(item)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [without_secrets_within(item) for item in value]
    return without_secrets(repr(value))


def mask_uri(text: str) -> str:
    """The connection string, with its password and secret options replaced by ``***``.

    A text that is not a valid connection string is masked as a whole.
    """
    if _URI.fullmatch(text) is None:
        return MASK
    hosts, question, options = _URI_PASSWORD.sub(rf"\1:{MASK}@", text).partition("?")
    return f"{hosts}{question}{re.sub('[^&;]+', _masked_option, options)}"


def _masked_option(option: re.Match[str]) -> str:
    name, equals, _ = option[0].partition("=")
    if not equals:
        return MASK  # may be the rest of a value with an unescaped separator
    return f"{name}={MASK}" if is_secret_name(unquote_plus(name)) else option[0]


def shortened(text: str, longest: int) -> str:
    """The text; if it is too long, both ends and how much is left out between them."""
    return text if len(text) <= longest else _ends(text, text, longest, len(text))


def masked_line(text: str, longest: int) -> str:
    """The text in one line, without secrets and what controls a terminal, and shortened."""
    if len(text) <= 4 * longest:
        return shortened(_line(text), longest)
    # Cut roughly before it is masked, so that megabytes do not block the event loop.
    head, tail = _line(text[: 2 * longest]), _line(text[-2 * longest :])
    return _ends(head, tail, longest, len(text))


def _line(text: str) -> str:
    return without_secrets(" ".join(_ESCAPES.sub("", text).split()))


def _ends(head: str, tail: str, longest: int, length: int) -> str:
    left_out = f"({length - longest} characters left out)"
    return f"{head[: longest * 3 // 4]} … {left_out} … {tail[-(longest // 4) :]}"
