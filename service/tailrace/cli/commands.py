"""Runs a command by its name, and imports only what that command needs. Short commands are here.

Exit codes: 0 stopped, drained and saved, or finished; 1 a failure; 2 usage or configuration;
3 stopped, but not drained or not saved in time.
"""

import argparse
import json
import sys
from collections.abc import Sequence

from tailrace.cli.arguments import parser, read_settings, refuse
from tailrace.cli.exit_report import print_error
from tailrace.errors import ConfigurationError, TailraceError, how_to_install
from tailrace.signals import StopSignals


def main(given: Sequence[str], signals: StopSignals) -> int:
    """Runs a command and returns the exit code; prints one message if something is wrong."""
    options = parser().parse_args(given)
    try:
        match options.command:
            case "run":
                from tailrace.cli import run

                return run.run(options, signals)
            case "scopes":
                from tailrace.cli import scopes

                return scopes.run(options)
            case "checkpoints":
                from tailrace.cli import checkpoints

                return checkpoints.run(options)
            case "dead-letters":
                from tailrace.cli import dead_letters

                return dead_letters.run(options)
            case "handlers":
                from tailrace.cli import handlers

                return handlers.run(options)
            case "check":
                return _check(options)
            case "snapshot":
                from tailrace.cli import snapshot

                return snapshot.run(options)
            case "health":
                return _health(options)
            case "pipeline":
                return _pipeline(options)
            case _:
                return _demo(options)
    except TailraceError as error:
        return print_error(error)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output is gone: print nothing more
        return 1


def _check(options: argparse.Namespace) -> int:
    """Validates the configuration and prints it without secrets; 1 if the server has a problem."""
    from tailrace import config

    if options.schema:
        from tailrace.handlers.types import installed_models

        model = config.model_of(installed_models())
        print(json.dumps(config.schema(model), indent=2, ensure_ascii=False))
        return 0
    settings = read_settings(options)
    from tailrace.handlers import check_handlers

    if problems := check_handlers(settings.handlers):
        raise ConfigurationError(*problems, source=options.config)
    if options.connect:
        import anyio

        from tailrace import trial

        problems = anyio.run(trial.connect, settings, print)
        for problem in problems:
            print(f"tailrace: {problem}", file=sys.stderr)
        return 1 if problems else 0
    if names := [scope.name for scope in settings.scopes if scope.snapshot.mode == "never"]:
        told = "'snapshot: never' delivers changes only, and no existing documents"
        print(f"tailrace: {options.config}: {told}: {', '.join(names)}", file=sys.stderr)
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.width = 1000
    yaml.dump(config.masked(settings), sys.stdout)
    return 0


def _health(options: argparse.Namespace) -> int:
    """Asks the daemon on this machine; 0 if it answers that it is healthy."""
    from tailrace.observe import health_check

    http = read_settings(options).http
    well, answer = health_check.ask(http.host, http.port, "/readyz" if options.ready else "/livez")
    print(answer, file=sys.stdout if well else sys.stderr)
    return 0 if well else 1


def _pipeline(options: argparse.Namespace) -> int:
    """Runs the Spark job; 2 if the extra ``pipeline`` is not installed."""
    try:
        from tailrace.pipeline import entry
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in ("tailrace", "bson"):
            raise
        refuse("tailrace pipeline", f"needs {error.name}: {how_to_install('pipeline')}")
    from tailrace.observe import logs

    logs.configure("info", "console" if sys.stderr.isatty() else "json")
    return entry.run(options)


def _demo(options: argparse.Namespace) -> int:
    """Runs the whole system on one machine; 0 only if the tables equal the source."""
    import anyio

    from tailrace.demo import demonstrate

    return anyio.run(demonstrate, options.events, options.directory, options.uri)
