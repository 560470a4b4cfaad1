"""Asks all questions, one after another, each within its time limit."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from secrets import token_hex
from time import monotonic

import anyio

from tailrace.compat.answer import AnswerKind, CompatAnswer, Facts, negative
from tailrace.compat.database import PREFIX, own_database
from tailrace.compat.questions import ELECTION, QUESTIONS
from tailrace.compat.site import Question, Site
from tailrace.drivers import DRIVERS, identify
from tailrace.errors import (
    ConfigurationError,
    DriverError,
    Problem,
    StartRefused,
    TailraceError,
    describe,
)

RUN_SECONDS = 300.0
"""After this time no further question is asked."""
_CONNECT_SECONDS = 10.0
_NOBODY = {
    "username": "tailrace_compat_nobody",
    "password": "none",
    "authSource": "admin",
    "authMechanism": "SCRAM-SHA-256",
}


@dataclass(frozen=True, slots=True)
class CompatRun:
    """What to ask, and how. ``database``: empty for a new one; ``seconds``: for a question."""

    uri: str
    driver: str
    database: str = ""
    seconds: float = 20.0
    elections: bool = False

    @property
    def questions(self) -> Sequence[Question]:
        return [each for each in QUESTIONS if self.elections or each.name != ELECTION]


async def ask_all(run: CompatRun, report: Callable[[CompatAnswer], None]) -> signal.Signals | None:
    """Asks each question and reports its answer; returns the signal that ended the run, if any.

    Raises :class:`ConfigurationError` if the server cannot be asked, and :class:`StartRefused` if
    the database could not be dropped at the end.
    """
    received = list[signal.Signals]()
    failure: TailraceError | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_stop_at_signal, tasks.cancel_scope, received, name="signals")
        try:
            await _ask_all(run, report)
        except (ConfigurationError, StartRefused) as error:  # the group would wrap it
            failure = error
        except DriverError as error:
            failure = ConfigurationError(Problem("--uri", describe(error)))
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return received[0] if received else None


async def _stop_at_signal(scope: anyio.CancelScope, received: list[signal.Signals]) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        async for number in signals:
            received.append(number)
            scope.cancel()


async def _ask_all(run: CompatRun, report: Callable[[CompatAnswer], None]) -> None:
    factory, limit = DRIVERS[run.driver], (run.seconds + 1) * 1000
    silence = {"socketTimeoutMS": int(limit), "serverSelectionTimeoutMS": int(limit)}
    try:
        identity = await identify(factory, run.uri, min(run.seconds, _CONNECT_SECONDS))
    except (ConfigurationError, StartRefused) as error:
        reason = describe(error).removeprefix("mongodb.uri: ").replace("mongodb.uri", "the URI")
        raise ConfigurationError(Problem("--uri", reason)) from error
    name = run.database or PREFIX + token_hex(4)
    async with factory(run.uri, 1, **silence) as driver:
        hello = await driver.run("admin", {"hello": 1})
        outsider = partial(factory, run.uri, 1, **silence, **_NOBODY)
        site = Site(driver, outsider, name, identity, hello)
        async with own_database(driver, name):
            end = monotonic() + RUN_SECONDS
            for question in run.questions:
                seconds = max(question.seconds, run.seconds)
                report(await _answer(question, site, min(seconds, end - monotonic())))


async def _answer(question: Question, site: Site, seconds: float) -> CompatAnswer:
    began = monotonic()

    def answered(kind: AnswerKind, reason: str = "", facts: Facts | None = None) -> CompatAnswer:
        took = round(monotonic() - began, 2)
        return CompatAnswer(question.name, kind, reason, facts or {}, took)

    if seconds <= 0:
        return answered(AnswerKind.FAILED, f"not asked: the run has taken {RUN_SECONDS:g} s")
    try:
        with anyio.fail_after(seconds):
            return answered(AnswerKind.YES, facts=await question.ask(site))
    except TimeoutError:
        return answered(AnswerKind.FAILED, f"no answer in {seconds:g} s")
    except Exception as error:  # noqa: BLE001 - an error is an answer, and the next one is asked
        no = negative(error)
        return answered(no.kind, no.reason, no.facts)
