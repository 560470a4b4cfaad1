"""Configurations to start from, and the problems of a bad one."""

from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from tailrace.config.settings import Settings
from tailrace.errors import ConfigurationError
from tests.configuration import loads

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
    """The smallest valid configuration as data, with some sections added or replaced.

    ``scope`` and ``route`` add keys to the only scope and route; ``handler`` is one more handler.
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
    """The settings of a file with this data."""
    return loads(yaml.safe_dump(data, sort_keys=False, allow_unicode=True), {})


def problems(data: Any) -> dict[str, str]:
    """Everything that is wrong with the data: path to message."""
    return problems_of_text(yaml.safe_dump(data, sort_keys=False, allow_unicode=True))


def problems_of_text(source: str, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Everything that is wrong with a text: path to message."""
    with pytest.raises(ConfigurationError) as caught:
        loads(source, environ or {})
    return {problem.path: problem.message for problem in caught.value.problems}


def settings_of(lines: str, **environ: str) -> Settings:
    """The settings of the smallest file with these lines appended."""
    return loads(f"{MINIMAL}{lines}\n", environ)
