"""The client options of both adapters, in addition to the options of the URI."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pymongo.errors import PyMongoError
from pymongo.uri_parser import parse_uri

from tailrace.drivers.pinning import select
from tailrace.errors import ConfigurationError, Problem

_SPARE_CONNECTIONS = 10
_DRIVER_DEFAULT_POOL = 100

# An @ after the first slash or question mark: then that slash or mark belongs to the password.
_UNESCAPED = re.compile(r"[^:/]*://[^/?]*[/?].*@", re.DOTALL)


@contextmanager
def refusals(uri: str) -> Iterator[None]:
    """Raises a driver's error about a URI as :class:`ConfigurationError`, without the password."""
    try:
        yield
    except (PyMongoError, OSError, TypeError, ValueError) as error:
        if _UNESCAPED.match(uri):
            # The driver mistakes the end of the password for another part, and quotes it.
            hint = "name and password must be percent-encoded (urllib.parse.quote_plus)"
            raise ConfigurationError(_unusable(hint)) from None
        raise ConfigurationError(_unusable(str(error))) from error


def parsed(uri: str) -> Mapping[str, Any]:
    """The URI's parts. Raises :class:`ConfigurationError` if the driver refuses the URI."""
    with refusals(uri):
        return parse_uri(uri, validate=True, warn=False)


def _unusable(reason: str) -> Problem:
    return Problem("mongodb.uri", f"is not a usable MongoDB connection string: {reason}")


def client_options(uri: str, streams: int, **more: Any) -> dict[str, Any]:
    """Keyword arguments of a client for ``streams`` change streams.

    Each stream holds a connection while it waits, so the pool grows with the streams. Options of
    the URI take precedence.
    """
    in_uri = {str(name).lower() for name in parsed(uri)["options"]}
    refused = {
        "loadbalanced": "loadBalanced connections cannot keep a cursor's server",
        "timeoutms": "timeoutMS would bound the server's waiting for changes as well",
    }
    if problems := [Problem("mongodb.uri", refused[name]) for name in refused if name in in_uri]:
        raise ConfigurationError(*problems)
    defaults = {
        "appname": "tailrace",
        "maxPoolSize": max(_DRIVER_DEFAULT_POOL, 2 * streams + _SPARE_CONNECTIONS),
    }
    own = {name: value for name, value in defaults.items() if name.lower() not in in_uri}
    return {"server_selector": select, **more, **own}


def socket_seconds(uri: str) -> float:
    """How long a connection may be silent before its command fails; 0: without a limit."""
    options = {str(name).lower(): value for name, value in parsed(uri)["options"].items()}
    return float(options.get("sockettimeoutms") or 0)


def files_of(uri: str) -> list[str]:
    """The files that the options of a URI name: of certificates, keys and revocations."""
    names = ("tlscertificatekeyfile", "tlscafile", "tlscrlfile")
    options = {str(name).lower(): value for name, value in parsed(uri)["options"].items()}
    return [str(options[name]) for name in names if name in options]
