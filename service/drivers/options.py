"""What both adapters tell their client, besides what the URI says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pymongo.errors import ConfigurationError as DriverConfigurationError
from pymongo.errors import InvalidURI, PyMongoError
from pymongo.uri_parser import parse_uri

from service.drivers.pinning import select
from service.errors import ConfigurationError, Problem

_SPARE_CONNECTIONS = 10
_DRIVER_DEFAULT_POOL = 100


def parsed(uri: str) -> Mapping[str, Any]:
    """The URI's parts. A URI that the driver refuses is a :class:`ConfigurationError`."""
    try:
        return parse_uri(uri, validate=True, warn=False)
    except (InvalidURI, DriverConfigurationError, PyMongoError, ValueError, TypeError) as error:
        raise ConfigurationError(
            Problem("mongodb.uri", f"is no usable MongoDB connection string: {error}")
        ) from error


def client_options(uri: str, streams: int, **more: Any) -> dict[str, Any]:
    """Keyword arguments of a client that carries ``streams`` change streams.

    Every stream holds a connection while it waits, so the pool grows with them. What the URI
    says stands.
    """
    given = {str(name).lower() for name in parsed(uri)["options"]}
    if "loadbalanced" in given:
        raise ConfigurationError(
            Problem("mongodb.uri", "loadBalanced connections cannot keep a cursor's server")
        )
    options: dict[str, Any] = {"server_selector": select, **more}
    defaults = {
        "appname": "tailrace",
        "maxPoolSize": max(_DRIVER_DEFAULT_POOL, 2 * streams + _SPARE_CONNECTIONS),
    }
    options.update({name: v for name, v in defaults.items() if name.lower() not in given})
    return options
