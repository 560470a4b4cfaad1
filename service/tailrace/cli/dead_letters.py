"""``tailrace dead-letters``: what handlers could not handle."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import Any

import anyio

from tailrace.assembly import any_letters
from tailrace.cli.reading import read_settings
from tailrace.dead_letters import console
from tailrace.dead_letters.replay import replay_letters


def run(options: argparse.Namespace) -> int:
    """Does what the verb says; exit code 1 where a letter that was replayed failed again."""
    return anyio.run(_ask, options)


async def _ask(options: argparse.Namespace) -> int:
    settings = read_settings(options)
    which: dict[str, Any] = {"scope": options.scope, "handler": options.handler}
    async with any_letters(settings) as letters:
        match options.verb:
            case "list":
                text = await console.list_letters(letters, **which, now=datetime.now(UTC))
            case "show":
                now = datetime.now(UTC)
                text = await console.show_letter(letters, options.id, **which, now=now)
            case "discard":
                text = await console.discard_letters(
                    letters, ids=options.id, dry_run=options.dry_run, **which
                )
            case _:
                from tailrace.handlers import open_handlers

                wanted = {letter.handler for letter in await letters.letters(**which)}
                known = {n: h for n, h in settings.handlers.items() if n in wanted}
                async with open_handlers(known, settings.delivery) as handlers:
                    done = await replay_letters(
                        letters,
                        handlers,
                        ids=options.id,
                        dry_run=options.dry_run,
                        report=print,
                        **which,
                    )
                print(str(done).rstrip())
                return 1 if done.failed else 0
    print(text.rstrip())
    return 0
