"""``tailrace check``: validates the configuration, and prints it without its secrets."""

from __future__ import annotations

import argparse
import json
import sys

import anyio

from tailrace import config
from tailrace.cli.reading import read_settings
from tailrace.errors import ConfigurationError


def run(options: argparse.Namespace) -> int:
    """Exit code 0 where nothing is wrong, 1 where the server is not as the file wants it."""
    if options.schema:
        print(json.dumps(config.schema(), indent=2, ensure_ascii=False))
        return 0
    settings = read_settings(options)
    for warning in settings.deprecations:
        print(f"tailrace: {options.config}: {warning}", file=sys.stderr)
    from tailrace.handlers import check_targets

    problems = check_targets(settings.handlers)
    if problems:
        raise ConfigurationError(*problems, source=options.config)
    if options.connect:
        return _connect(settings)
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.width = 1000
    yaml.dump(config.masked(settings), sys.stdout)
    return 0


def _connect(settings: config.Settings) -> int:
    from tailrace import app

    problems = anyio.run(app.connect, settings, print)
    for problem in problems:
        print(f"tailrace: {problem}", file=sys.stderr)
    return 1 if problems else 0
