"""Configurations to start from, and what a bad one is told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tailrace.config import Settings, loads, parse
from tailrace.errors import ConfigurationError

MINIMAL = """\
mongodb:
  uri: mongodb://localhost:27017/
scopes:
  - name: orders
    database: shop
handlers:
  log:
    type: log
routes:
  - scope: orders
    handlers: [log]
"""


def minimal(**sections: Any) -> dict[str, Any]:
    """The least that is a configuration, as data, with some sections put in or replaced."""
    return {
        "mongodb": {"uri": "mongodb://localhost:27017/"},
        "scopes": [{"name": "orders", "database": "shop"}],
        "handlers": {"log": {"type": "log"}},
        "routes": [{"scope": "orders", "handlers": ["log"]}],
        **sections,
    }


def with_scope(**keys: Any) -> dict[str, Any]:
    return minimal(scopes=[{"name": "orders", "database": "shop", **keys}])


def with_columns(**collections: Any) -> dict[str, Any]:
    return minimal(pipeline={"columns": collections})


def with_handler(**keys: Any) -> dict[str, Any]:
    return minimal(handlers={"log": {"type": "log"}, "mine": keys})


def with_route(**keys: Any) -> dict[str, Any]:
    return minimal(routes=[{"scope": "orders", "handlers": ["log"], **keys}])


def problems(data: Any) -> dict[str, str]:
    """Path to message of everything that is wrong with the data."""
    with pytest.raises(ConfigurationError) as caught:
        parse(data)
    return {problem.path: problem.message for problem in caught.value.problems}


def problems_of_text(source: str, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Path to message of everything that is wrong with a text."""
    with pytest.raises(ConfigurationError) as caught:
        loads(source, environ or {})
    return {problem.path: problem.message for problem in caught.value.problems}


def settings_of(lines: str, **environ: str) -> Settings:
    """The settings of the minimal file with some lines behind it."""
    return loads(f"{MINIMAL}{lines}\n", environ)
