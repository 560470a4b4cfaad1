"""What several commands share: ``--config``, its settings and scopes, and refusals."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from tailrace.errors import ConfigurationError, Problem, how_to_install

if TYPE_CHECKING:
    from tailrace.config.scopes import ScopeSettings
    from tailrace.config.served import ServedSettings
    from tailrace.config.settings import Settings
    from tailrace.control.client import DaemonClient

_CONFIG = os.environ.get("TAILRACE_CONFIG") or "config.yaml"


def add_config(parser: argparse.ArgumentParser, *, default: str = _CONFIG) -> None:
    """Adds ``--config``. With ``default=argparse.SUPPRESS`` one that was given before stays."""
    parser.add_argument(
        "--config", default=default, metavar="FILE", help=f"the configuration; default: {_CONFIG}"
    )


def read_settings(options: argparse.Namespace) -> Settings:
    """The settings of ``--config``. Python looks for handlers' modules beside that file first."""
    from tailrace.config.loading import load
    from tailrace.handlers.types import handler_models

    settings = load(options.config, handler_models)
    sys.path[:0] = [str(Path(options.config).absolute().parent), ""]
    return settings


def client_of(settings: Settings | ServedSettings, config: str) -> DaemonClient:
    """A client of the daemon that runs with these settings on this machine."""
    from tailrace.config.store import local_token_file
    from tailrace.control.client import DaemonClient
    from tailrace.observe.access import is_here
    from tailrace.observe.local_token import read_token

    http = settings.http
    if http.token is not None:
        token = http.token.get_secret_value()
        return DaemonClient(http.host, http.port, token, config, f"the http.token of {config}")
    file, known = local_token_file(settings.store), "that it has made"
    try:
        token = "" if is_here(http.host) else read_token(file)
    except OSError as error:
        token, known = "", f"which this user cannot read: {error.strerror}"
    return DaemonClient(
        http.host, http.port, token, config, f"the one in {file.absolute()}, {known}"
    )


def daemon_of(config: str) -> DaemonClient:
    """The same; of the configuration only what it needs is read."""
    from tailrace.config.served import load_served

    return client_of(load_served(config), config)


def with_lines(error: Exception, options: argparse.Namespace) -> Exception:
    """The error; problems of the configuration get the lines of ``--config``."""
    file = getattr(options, "config", None)
    if file is None or not isinstance(error, ConfigurationError):
        return error
    from tailrace.config.loading import located

    return located(error, file)


def require_scope(
    name: str, handler: str | None, handlers: Mapping[str, Sequence[str]], config: str
) -> None:
    """Refuses a scope that the configuration does not have, and a handler that the scope does not.

    ``handlers``: by scope, the names of those that get its changes.
    """
    if name not in handlers:
        message = f"is not in {config}, which has: {', '.join(handlers)}"
        refuse(f"scope {name!r}", message + meant(name, handlers))
    if handler is not None and handler not in (names := handlers[name]):
        has = f"it has: {', '.join(names)}" if names else "it has none"
        refuse("--handler", f"scope {name!r} has no handler {handler!r}; {has}")


def scope_of(name: str, settings: Settings, config: str) -> ScopeSettings:
    """The settings of a scope; refuses a name that the configuration does not have."""
    scopes = {scope.name: scope for scope in settings.scopes}
    require_scope(name, None, dict.fromkeys(scopes, ()), config)
    return scopes[name]


def meant(given: str, names: Iterable[str]) -> str:
    """The end of a refusal: the name that was probably meant, if one is near."""
    near = get_close_matches(given, list(names), 1)
    return f". Did you mean {near[0]!r}?" if near else ""


def refuse(where: str, message: str) -> NoReturn:
    """Raises :class:`ConfigurationError` with one problem."""
    raise ConfigurationError(Problem(where, message))


def add_json(parser: argparse.ArgumentParser) -> None:
    """Adds ``--json`` for what was done."""
    parser.add_argument("--json", action="store_true", help="print what was done as JSON")


def result_text(options: argparse.Namespace, done: Mapping[str, Any]) -> str:
    """What was done, as JSON or as its ``message``."""
    if options.json:
        return json.dumps(done, indent=2) + "\n"
    return f"{done['message']}\n"


@contextmanager
def needs_pipeline(command: str) -> Iterator[None]:
    """Imports of the Spark job: refuses if a package of the extra ``pipeline`` is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in ("tailrace", "bson"):
            raise
        refuse(command, f"needs {error.name}: {how_to_install('pipeline')}")
