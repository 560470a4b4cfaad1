"""Replays and discards dead letters by the daemon on this machine."""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from tailrace.cli.arguments import result_text
from tailrace.cli.dead_letter_text import number
from tailrace.cli.terminal_text import printable
from tailrace.cli.waiting_bar import WaitingBar, waiting_bar
from tailrace.control.client import Client, NoDaemon
from tailrace.control.outcome import ActionRefused
from tailrace.errors import ConfigurationError, Problem
from tailrace.observe.health_check import NO_ANSWER

_SECONDS = 600.0
"""How long one answer may take: as long as a handler takes for a letter."""

Letter = Mapping[str, Any]


def through_daemon(client: Client, options: argparse.Namespace) -> int:
    """Asks for one document's letters after another; prints each, and returns the exit code.

    Raises :class:`tailrace.control.ActionRefused`; :class:`tailrace.control.client.NoDaemon` if
    nothing was asked for.
    """
    listed = _listed(client, options)
    try:
        with waiting_bar("asking the daemon", _SECONDS) as bar:
            code, done = _through(client, options, listed, bar)
    except ActionRefused as error:
        if not isinstance(error, NoDaemon) and error.status != NO_ANSWER:
            raise
        shows = "'tailrace dead-letters list' shows what still waits"
        raise ActionRefused(503, f"the daemon gave no answer: {shows} ({error})") from error
    print(result_text(options, done), end="")
    return code


def _through(
    client: Client, options: argparse.Namespace, listed: Sequence[Letter], bar: WaitingBar
) -> tuple[int, Mapping[str, Any]]:
    """The exit code, and what was done."""
    seen, done, failed = set[tuple[Any, ...]](), 0, 0
    reported: list[Letter] = []
    while letters := [each for each in listed if _work(options, each) not in seen]:
        for letter in letters:
            if _work(options, letter) in seen:
                continue
            seen.add(_work(options, letter))
            more: str | None = letter["id"]
            while more is not None:
                found = _act(client, options.verb, letter, more)
                for each in found["letters"]:
                    reported.append(each)
                    if not options.json:
                        outcome, handler = printable(each["outcome"]), printable(each["handler"])
                        bar.print(f"{each['id']}  {each['scope']}  {handler}  {outcome}")
                again = found.get("failed", 0)
                done, failed = done + len(found["letters"]) - again, failed + again
                more = found.get("next")
                bar.share = min(len(reported) / len(listed), 1)
        if options.id:
            break
        listed = _listed(client, options)
    code = 1 if failed else 0
    message = f"Replayed {number(done)}; {failed} failed again."
    if options.verb == "discard":
        code, message = 0, f"Discarded {number(done)}."
    elif failed:
        message += "\nFix the handler or discard those that fail, then replay again."
    if not seen:
        message = "No dead letters."
    counts = {"done": done, "failed": failed, "letters": reported}
    return code, {"message": message, **counts}


def _listed(client: Client, options: argparse.Namespace) -> Sequence[Letter]:
    """The letters that are meant and wait; refuses ids that no letter has."""
    found = client.get("/dead-letters", scope=options.scope, handler=options.handler, limit=1000)
    letters: Sequence[Letter] = found["letters"]
    if unknown := set(options.id) - {each["id"] for each in letters}:
        advice = "is not waiting; 'tailrace dead-letters list' shows those that are"
        named = (f"dead letter {each!r}" for each in sorted(unknown))
        raise ConfigurationError(*(Problem(each, advice) for each in named))
    return [each for each in letters if not options.id or each["id"] in options.id]


def _act(client: Client, verb: str, letter: Letter, id: str) -> Any:
    where = {"scope": letter["scope"], "handler": letter["handler"]}
    return client.act(f"/dead-letters/{quote(id, safe='')}/{verb}", where, _SECONDS)


def _work(options: argparse.Namespace, letter: Letter) -> tuple[Any, ...]:
    """What one request does: a replay all letters of a document, a discard one letter."""
    part = letter["id"] if options.verb == "discard" else letter["document"]
    return letter["scope"], letter["handler"], part
