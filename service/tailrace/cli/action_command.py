"""The command of an action: its options come from the request; the daemon on this machine answers.

Where none runs, the action may work with the store.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from tailrace.cli.arguments import (
    add_config,
    client_of,
    read_settings,
    require_scope,
    scope_of,
)
from tailrace.cli.waiting_bar import waiting_bar
from tailrace.config.served import ServedSettings, load_served
from tailrace.config.store import MemoryStoreSettings, SqliteStoreSettings
from tailrace.control.action import Action
from tailrace.control.bodies import Body, Metavar, read_body
from tailrace.control.client import DaemonClient, NoDaemon, operator
from tailrace.control.outcome import ActionRefused, Done

if TYPE_CHECKING:
    from tailrace.control.server_positions import ServerPositions
    from tailrace.stores import Store

_SECONDS = 60.0
"""How long the answer may take, beside what the request says."""


def add_options(
    parser: argparse.ArgumentParser, request: type[Body], leave_out: Collection[str] = ()
) -> None:
    """Adds an option for each field of a request. Lists are options to repeat."""
    for name, field in request.model_fields.items():
        if name in leave_out:
            continue
        flag = (field.alias or name).replace("_", "-")
        meaning = (field.description or "").replace("`", "").replace("%", "%%")
        options: dict[str, Any] = {"dest": name, "help": " ".join(meaning.split())}
        if field.annotation is bool:
            options["action"] = "store_true"
        else:
            metavar = next(
                (each.name for each in field.metadata if isinstance(each, Metavar)), None
            )
            options |= {"metavar": metavar, "required": field.is_required()}
            options["default"] = None if field.is_required() else field.get_default()
        if field.annotation == list[str]:
            flag = flag.removesuffix("s")
            options |= {"action": "append", "default": []}
        elif field.annotation in (float, float | None):
            options["type"] = float
        elif field.annotation is int:
            options["type"] = int
        parser.add_argument(f"--{flag}", **options)


def given_in(options: argparse.Namespace, request: type[Body]) -> dict[str, Any]:
    """The keys of a request that the options give."""
    return {
        field.alias or name: getattr(options, name)
        for name, field in request.model_fields.items()
        if getattr(options, name, None) not in (None, [], field.default)
    }


@dataclass(frozen=True, slots=True)
class ActionCommand:
    """The command of one action, on a scope or on none.

    Exit codes: 0 done, 1 refused, the store failed or no daemon runs, 2 wrong usage, a wrong token,
    or a mistake in the configuration.
    """

    action: Action

    def add(self, parser: argparse.ArgumentParser) -> None:
        """Adds the command's arguments."""
        add_config(parser)
        self.add_verb(parser)

    def add_verb(self, parser: argparse.ArgumentParser) -> None:
        """The same, where the command before it has ``--config``."""
        parser.description = self.action.summary.replace("`", "")
        if "{name}" in self.action.path:
            parser.add_argument("scope", help="the scope's name")
        add_options(parser, self.action.request)
        parser.add_argument("--json", action="store_true", help="print the answer as JSON")

    def run(self, options: argparse.Namespace) -> int:
        """Asks, and prints the answer."""
        with waiting_bar("asking", 30):
            answer = self._ask(options)
        waits = getattr(options, "wait", None) is not None
        if waits and answer.get("effective") is False:
            raise ActionRefused(409, answer["message"])
        text = json.dumps(answer, indent=2) + "\n" if options.json else self.action.text(answer)
        print(text, end="")
        return 0

    def _ask(self, options: argparse.Namespace) -> Mapping[str, Any]:
        served = load_served(options.config)
        scope, handler = getattr(options, "scope", None), getattr(options, "handler", None)
        if scope is not None:
            require_scope(scope, handler, served.handlers, options.config)
        parameters = given_in(options, self.action.request)
        try:
            return self._of_daemon(client_of(served, options.config), scope, parameters)
        except NoDaemon:
            if self.action.offline is None or isinstance(served.store, MemoryStoreSettings):
                raise
        import anyio

        return anyio.run(self._without_daemon, options, served, parameters)

    def _of_daemon(
        self, client: DaemonClient, scope: str | None, given: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        path = self.action.path.replace("{name}", quote(scope or "", safe=""))
        seconds = float(given.get("wait", 0.0)) + _SECONDS
        if self.action.changes:
            done: Mapping[str, Any] = client.act(path, given, seconds)
            return done
        answer: Mapping[str, Any] = client.get(path, patience_seconds=seconds, **given)
        return answer

    async def _without_daemon(
        self, options: argparse.Namespace, served: ServedSettings, parameters: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        from tailrace.control.offline import OfflineControl

        assert self.action.offline is not None  # noqa: S101 - for the type checker
        request = read_body(self.action.request, json.dumps(parameters).encode(), "")
        async with _store(options, served) as store:
            handlers, server = served.handlers[options.scope], partial(_server, options)
            control = OfflineControl(store.checkpoints, store.desired_states, handlers, server)
            answer: Any = await self.action.offline(control, options.scope, request, operator())
        if isinstance(answer, Done):
            return {"message": answer.message, **answer.details}
        return dict(answer)


def _store(
    options: argparse.Namespace, served: ServedSettings
) -> AbstractAsyncContextManager[Store]:
    """The store; one in a file is opened without the rest of the configuration."""
    if isinstance(served.store, SqliteStoreSettings):
        from tailrace.stores import sqlite

        return sqlite.open_store(served.store.path)
    from tailrace.assembly import open_store

    return open_store(read_settings(options))


@asynccontextmanager
async def _server(options: argparse.Namespace) -> AsyncIterator[ServerPositions]:
    """The positions of the scope on its server."""
    from tailrace.cli.scope_server import scope_server

    settings = read_settings(options)
    scope = scope_of(options.scope, settings, options.config)
    async with scope_server(settings, scope) as server:
        yield server
