"""``tailrace checkpoints``: the stored positions."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import Any

import anyio

from tailrace.assembly import open_store
from tailrace.cli import positions
from tailrace.cli.reading import read_settings
from tailrace.errors import ConfigurationError, Problem


def run(options: argparse.Namespace) -> int:
    """Does what the verb says, and prints what came of it."""
    print(anyio.run(_ask, options).rstrip())
    return 0


async def _ask(options: argparse.Namespace) -> str:
    now: dict[str, Any] = {"now": datetime.now(UTC)}
    position = None
    if options.verb == "set":
        position = positions.read_position(
            token=options.token,
            token_data=options.token_data,
            at=options.at,
            after_invalidate=options.after_invalidate,
        )
    settings = read_settings(options)
    names = [scope.name for scope in settings.scopes]
    if options.verb == "set" and options.scope not in names:
        known = ", ".join(names)
        raise ConfigurationError(
            Problem(f"scope {options.scope!r}", f"is not in {options.config}, which has: {known}")
        )
    async with open_store(settings) as opened:
        store = opened.checkpoints
        match options.verb:
            case "list":
                return await positions.list_positions(store, **now)
            case "show":
                return await positions.show_position(
                    store, options.scope, as_json=options.json, **now
                )
            case "reset":
                return await positions.reset_position(
                    store, options.scope, dry_run=options.dry_run, **now
                )
        assert position is not None  # noqa: S101 - for the type checker: the verb is "set"
        return await positions.set_position(
            store, options.scope, position, dry_run=options.dry_run, **now
        )
