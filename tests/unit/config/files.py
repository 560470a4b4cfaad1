"""Configurations to start from, and what a bad one is told."""

from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from tailrace.config import Settings, loads
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
    """The least that is a configuration, as data, with some sections put in or replaced.

    ``scope`` and ``route`` add keys to the only ones that there are, ``handler`` is one more.
    """
    scope, handler, route = (sections.pop(key, {}) for key in ("scope", "handler", "route"))
    return {
        "mongodb": {"uri": "mongodb://localhost:27017/"},
        "scopes": [{"name": "orders", "database": "shop", **scope}],
        "handlers": {"log": {"type": "log"}, **({"mine": handler} if handler else {})},
        "routes": [{"scope": "orders", "handlers": ["log"], **route}],
        **sections,
    }


def parse(data: Any) -> Settings:
    """The settings of a file that holds the data."""
    return loads(yaml.safe_dump(data, sort_keys=False, allow_unicode=True), {})


def problems(data: Any) -> dict[str, str]:
    """Path to message of everything that is wrong with the data."""
    return problems_of_text(yaml.safe_dump(data, sort_keys=False, allow_unicode=True))


def problems_of_text(source: str, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Path to message of everything that is wrong with a text."""
    with pytest.raises(ConfigurationError) as caught:
        loads(source, environ or {})
    return {problem.path: problem.message for problem in caught.value.problems}


def settings_of(lines: str, **environ: str) -> Settings:
    """The settings of the minimal file with some lines behind it."""
    return loads(f"{MINIMAL}{lines}\n", environ)
