"""Configurations of several scopes for the page to show."""

from typing import Any


def scopes(*names: str) -> dict[str, Any]:
    """Sections for a daemon: each scope follows the collection of its name in ``shop``."""
    return {
        "scopes": [
            {"name": name, "database": "shop", "collection": name, "max_await_time_ms": 200}
            for name in names
        ],
        "routes": [{"scope": name, "handlers": ["file"]} for name in names],
    }
