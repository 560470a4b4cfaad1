"""``tailrace checkpoints``: the stored positions."""

import argparse
from datetime import UTC, datetime

import anyio

from tailrace.assembly import open_store
from tailrace.cli import positions
from tailrace.cli.reading import read_settings, refuse


def run(options: argparse.Namespace) -> int:
    """Lists, shows, sets or resets positions, and prints the result."""
    print(anyio.run(_answer, options).rstrip())
    return 0


async def _answer(options: argparse.Namespace) -> str:
    now, position = datetime.now(UTC), None
    if options.verb == "set":
        position = positions.read_position(
            options.token, options.token_data, options.at, options.after_invalidate
        )
    settings = read_settings(options)
    names = [scope.name for scope in settings.scopes]
    if position is not None and options.scope not in names:
        told = f"is not in {options.config}, which has: {', '.join(names)}"
        refuse(f"scope {options.scope!r}", told)
    async with open_store(settings) as opened:
        store = opened.checkpoints
        if options.verb == "list":
            return await positions.list_positions(store, now=now)
        if options.verb == "show":
            return await positions.show_position(
                store, options.scope, now=now, as_json=options.json
            )
        if position is None:
            return await positions.reset_position(
                store, options.scope, now=now, dry_run=options.dry_run
            )
        return await positions.set_position(
            store, options.scope, position, now=now, dry_run=options.dry_run
        )
