"""The commands: thin. Each reads its arguments, calls :mod:`tailrace.app` or a tool, and prints.

Exit codes: 0 stopped, drained and saved, or finished; 1 a failure that no restart mends; 2 usage
or configuration; 3 stopped, but not drained or not saved in time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import structlog

from tailrace import __version__, arguments
from tailrace.errors import ConfigurationError, Problem, TailraceError, describe

if TYPE_CHECKING:
    from tailrace.config import Settings
    from tailrace.observe.output import Output
    from tailrace.signals import StopSignals


def main(given: Sequence[str], signals: StopSignals) -> int:
    """Runs a command; returns the exit code, and prints one message for what is wrong."""
    parser = arguments.parser()
    options = parser.parse_args(given)
    if options.command is None:
        return _version(parser, options)
    try:
        if options.command == "run":
            return _run(options, signals)
        return _COMMANDS[options.command](options)
    except TailraceError as error:
        return _refused(error)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output went away: nothing more to say
        return 1


# Imports stand inside the commands: `tailrace check` starts without loading a driver.


def _version(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    if options.version:
        print(f"tailrace {__version__}")  # noqa: T201
        return 0
    parser.print_usage(sys.stderr)
    return 2


def _run(options: argparse.Namespace, signals: StopSignals) -> int:
    from tailrace.observe.output import Output

    with Output() as output:
        signals.last_resort = replace(signals.last_resort, leave=partial(_leave_start, output))
        code = _follow(options, signals, output)
        # All is closed by then; but a driver's thread that waits for a server would keep us.
        output.leave(code)


def _follow(options: argparse.Namespace, signals: StopSignals, output: Output) -> int:
    from tailrace.observe import last_words, logs

    # Until the file has said which form logs take: one that suits whoever reads them.
    style = "console" if sys.stderr.isatty() else "json"
    logs.configure("info", style)
    try:
        from tailrace import app

        if not signals.received:
            settings = _load(options)
            style = settings.logging.format
            logs.configure(settings.logging.level, style)
        if signals.received:
            structlog.get_logger().info("service.stopped")
            return app.FINISHED
        process = app.Process(signals, output)
        return anyio.run(app.serve, settings, process, backend_options=_event_loop())
    except (SystemExit, KeyboardInterrupt, asyncio.CancelledError) as error:
        # Raised in a task of a handler's own, where the delivery cannot see it, or asked of all
        # tasks by one: signals are noted, and raise nothing.
        print(f"tailrace: a handler has ended the process: {describe(error)}", file=sys.stderr)  # noqa: T201
        return 1
    except TailraceError as error:
        return _refused(error) if style == "console" else last_words.log(error)
    except Exception as error:  # noqa: BLE001 - the process ends with it
        if style == "console":
            traceback.print_exception(error)
            return 1
        return last_words.log(error)


def _leave_start(output: Output) -> None:
    """A signal came, and the start hangs: nothing is followed yet, so there is nothing to drain."""
    structlog.get_logger().info("service.stopped", reason="the start does not end: leaving it")
    output.leave(0)


def _health(options: argparse.Namespace) -> int:
    from tailrace.observe import health_check

    http = _load(options).http
    well, answer = health_check.ask(http.host, http.port, "/readyz" if options.ready else "/livez")
    print(answer, file=sys.stdout if well else sys.stderr)
    return 0 if well else 1


def _check(options: argparse.Namespace) -> int:
    from tailrace import config

    if options.schema:
        _print(json.dumps(config.schema(), indent=2, ensure_ascii=False))
        return 0
    settings = _load(options)
    from tailrace.handlers import check_targets

    problems = check_targets(settings.handlers)
    if problems:
        raise ConfigurationError(*problems, source=options.config)
    if options.connect:
        from tailrace import app

        found = anyio.run(app.connect, settings, _print)
        if found:
            for problem in found:
                print(f"tailrace: {problem}", file=sys.stderr)  # noqa: T201
            return 1
        return 0
    import yaml

    _print(yaml.safe_dump(config.masked(settings), sort_keys=False, allow_unicode=True).rstrip())
    return 0


def _demo(options: argparse.Namespace) -> int:
    from tailrace.demo import demonstrate

    return anyio.run(demonstrate, options.events, options.directory, options.uri)


def _pipeline(options: argparse.Namespace) -> int:
    try:
        from tailrace.pipeline import entry
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in ("tailrace", "bson"):
            raise
        raise ConfigurationError(
            Problem("tailrace pipeline", f"needs {error.name}: pip install 'tailrace[pipeline]'")
        ) from None
    from tailrace.observe import logs

    logs.configure("info", "console" if sys.stderr.isatty() else "json")
    return entry.run(options)


def _checkpoints(options: argparse.Namespace) -> int:
    _print(anyio.run(_ask_store, options).rstrip())
    return 0


async def _ask_store(options: argparse.Namespace) -> str:
    from tailrace.assembly import any_store
    from tailrace.checkpoints import console

    now: dict[str, Any] = {"now": datetime.now(UTC)}
    position = None
    if options.verb == "set":
        position = console.read_position(
            token=options.token,
            token_data=options.token_data,
            at=options.at,
            after_invalidate=options.after_invalidate,
        )
    settings = _load(options)
    names = [scope.name for scope in settings.scopes]
    if options.verb == "set" and options.scope not in names:
        known = ", ".join(names)
        raise ConfigurationError(
            Problem(f"scope {options.scope!r}", f"is not in {options.config}, which has: {known}")
        )
    async with any_store(settings) as store:
        match options.verb:
            case "list":
                return await console.list_positions(store, **now)
            case "show":
                return await console.show_position(
                    store, options.scope, as_json=options.json, **now
                )
            case "reset":
                return await console.reset_position(
                    store, options.scope, dry_run=options.dry_run, **now
                )
        assert position is not None  # noqa: S101 - for the type checker: the verb is "set"
        return await console.set_position(
            store, options.scope, position, dry_run=options.dry_run, **now
        )


def _dead_letters(options: argparse.Namespace) -> int:
    return anyio.run(_ask_letters, options)


async def _ask_letters(options: argparse.Namespace) -> int:
    from tailrace.assembly import any_letters
    from tailrace.dead_letters import console
    from tailrace.dead_letters.replay import replay_letters

    settings = _load(options)
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
                        report=_print,
                        **which,
                    )
                _print(str(done).rstrip())
                return 1 if done.failed else 0
    _print(text.rstrip())
    return 0


_COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "check": _check,
    "health": _health,
    "demo": _demo,
    "pipeline": _pipeline,
    "checkpoints": _checkpoints,
    "dead-letters": _dead_letters,
}


def _event_loop() -> dict[str, Any]:
    """For :func:`anyio.run`: uvloop where it is to be had, asyncio's own loop elsewhere.

    On an idle stream a sixth of the time from the server to the handler is the loop's.
    """
    return {"use_uvloop": find_spec("uvloop") is not None}


def _load(options: argparse.Namespace) -> Settings:
    from tailrace.config import load

    settings = load(options.config)
    # Modules of handlers: those beside the file come before those where the process runs.
    sys.path[:0] = [str(Path(options.config).absolute().parent), ""]
    return settings


def _print(text: str) -> None:
    print(text)  # noqa: T201


def _refused(error: TailraceError) -> int:
    """Says what is wrong; returns the exit code."""
    if isinstance(error, ConfigurationError):
        _print_problems(error)
        return 2
    print(f"tailrace: {describe(error)}", file=sys.stderr)  # noqa: T201
    return 1


def _print_problems(error: ConfigurationError) -> None:
    count = len(error.problems)
    where = f"{error.source}: " if error.source else ""
    head = f"tailrace: {where}"
    if count == 1:
        print(f"{head}{error.problems[0]}", file=sys.stderr)  # noqa: T201
        return
    print(f"{head}{count} problems", file=sys.stderr)  # noqa: T201
    for problem in error.problems:
        print(f"  {problem}", file=sys.stderr)  # noqa: T201
