"""Replays and discards dead letters by the daemon on this machine."""

import argparse
from collections.abc import Mapping
from typing import Any

from tailrace.cli.arguments import result_text
from tailrace.cli.waiting_bar import WaitingBar, waiting_bar
from tailrace.control.client import DaemonClient, NoDaemon
from tailrace.control.outcome import ActionRefused
from tailrace.observe.health_check import NO_ANSWER
from tailrace.observe.terminal_text import printable

_SECONDS = 600.0
"""How long one answer may take: as long as a handler takes for a dead letter."""

_SHOWS = "'tailrace dead-letters list' shows what still waits"


def through_daemon(client: DaemonClient, options: argparse.Namespace) -> int:
    """Asks until all that is meant is done; prints each dead letter, and returns the exit code.

    Raises :class:`tailrace.control.outcome.ActionRefused`, also if no daemon runs.
    """
    try:
        with waiting_bar("asking the daemon", _SECONDS) as bar:
            code, done = _through(client, options, bar)
    except NoDaemon as error:
        message = f"to {options.verb} dead letters, the daemon has to run: {error} Start it with"
        raise ActionRefused(503, f"{message} 'tailrace run', then try again; {_SHOWS}") from error
    except ActionRefused as error:
        if error.status != NO_ANSWER:
            raise
        raise ActionRefused(503, f"the daemon gave no answer: {_SHOWS} ({error})") from error
    print(result_text(options, done), end="")
    return code


def _through(
    client: DaemonClient, options: argparse.Namespace, bar: WaitingBar
) -> tuple[int, Mapping[str, Any]]:
    """The exit code, and what was done."""
    filters = {name: getattr(options, name) for name in ("scope", "handler", "key", "error")}
    body: dict[str, Any] = {name: said for name, said in filters.items() if said is not None}
    body |= {"ids": options.id, "dry_run": options.dry_run}
    reported, refused, failed = list[Mapping[str, str]](), dict[str, str](), 0
    while True:
        answer = client.act(f"/dead-letters/{options.verb}", body, _SECONDS)
        if options.dry_run:
            return 0, answer
        for letter in answer["letters"]:
            reported.append(letter)
            if not options.json:
                outcome, handler = printable(letter["outcome"]), printable(letter["handler"])
                bar.print(f"{letter['id']}  {letter['scope']}  {handler}  {outcome}")
        failed += answer["failed"]
        refused |= answer["refused"]
        if answer["next"] is None:
            break
        body["after"] = answer["next"]
    done = len(reported) - failed
    message = f"Replayed {number(done)}; {failed} failed again."
    if options.verb == "discard":
        message = f"Discarded {number(done)}."
    elif failed:
        message += "\nFix the handler or discard those that fail, then replay again."
    message += "".join(f"\nNot those of {of}: {why}" for of, why in refused.items())
    if not reported and not refused:
        message = "No dead letters."
    counts = {"done": done, "failed": failed, "letters": reported, "refused": refused}
    return 1 if failed or refused else 0, {"message": message, **counts}


def number(count: int) -> str:
    """A count with its noun, such as "2 dead letters"."""
    return f"{count} dead letter{'' if count == 1 else 's'}"
