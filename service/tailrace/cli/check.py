"""``tailrace check``: validates the configuration, and tries with ``--connect`` what run needs.

Exit codes: 0 valid, 1 something that was tried failed, 2 wrong usage or configuration.
"""

import argparse
import json
import sys
from collections.abc import Iterator

from tailrace.cli.arguments import add_config, read_settings
from tailrace.cli.waiting_bar import waiting_bar
from tailrace.config.loading import located, masked
from tailrace.config.settings import Settings, model_of, schema
from tailrace.config.subscriptions import beginnings
from tailrace.errors import ConfigurationError
from tailrace.handlers import check_handlers
from tailrace.handlers.types import installed_models
from tailrace.telemetry.opening import problems_of


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_config(parser)
    parser.add_argument("--connect", action="store_true", help="also try what run needs")
    parser.add_argument(
        "--schema", action="store_true", help="print the configuration's JSON schema, for editors"
    )
    parser.add_argument("--json", action="store_true", help="print the configuration as JSON")


def run(options: argparse.Namespace) -> int:
    """Validates the configuration, and prints it without secrets or tries it."""
    if options.schema:
        model = model_of(installed_models())
        print(json.dumps(schema(model), indent=2, ensure_ascii=False))
        return 0
    settings = read_settings(options)
    problems = check_handlers(settings.handlers, settings.scopes, settings.routes)
    if problems := [*problems, *problems_of(settings.telemetry)]:
        raise ConfigurationError(*problems, source=options.config)
    if options.connect:
        return _connect(settings, options.config)
    if names := list(_without_documents(settings)):
        message = "'snapshot: never' delivers changes only, and no existing documents"
        print(f"tailrace: {options.config}: {message}: {', '.join(names)}", file=sys.stderr)
    if options.json:
        print(json.dumps(masked(settings), indent=2, ensure_ascii=False, default=str))
        return 0
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.width = 1000
    yaml.dump(masked(settings), sys.stdout)
    return 0


def _without_documents(settings: Settings) -> Iterator[str]:
    """The scopes, or handlers of scopes, that get changes only."""
    for scope in settings.scopes:
        begins = beginnings(settings, scope)
        names = [name for name, each in begins.items() if each.snapshot.mode == "never"]
        if len(names) == len(begins):
            yield scope.name
        else:
            yield from (f"{scope.name} (handler {name})" for name in names)


def _connect(settings: Settings, file: str) -> int:
    import anyio

    from tailrace import probe

    parts = 1 + len(settings.handlers) + len(settings.scopes)
    with waiting_bar("trying what run needs", probe.MOST_SECONDS * parts) as bar:
        problems = anyio.run(probe.connect, settings, bar.print)
    for problem in located(ConfigurationError(*problems), file).problems:
        print(f"tailrace: {problem}", file=sys.stderr)
    return 1 if problems else 0
