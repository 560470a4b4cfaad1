"""What every destination promises, as tests that any package can run on its own.

The destinations of Tailrace run them on their real servers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any
from unittest import SkipTest

import anyio

from tailrace.assembly import target as target_of
from tailrace.config.loading import masked
from tailrace.errors import ConfigurationError
from tailrace.handlers.probe import probe_handler
from tailrace.testing.checks import GuaranteeBroken, at_least_once, each_change_once
from tailrace.testing.compared_rows import comparison_faults
from tailrace.testing.comparison import of_log, of_state
from tailrace.testing.harness import Harness
from tailrace.testing.history import numbered
from tailrace.testing.process import CLUSTER
from tailrace.testing.scenarios import FaultKind, answer
from tailrace.testing.target import NAME

_SOON = {"attempts": 2, "first_seconds": 0.01, "cap_seconds": 0.01}


class DestinationContract:
    """Derive a class from it, say what the destination is, and pytest collects its tests.

    ``handler`` and :meth:`holds` are required. What the other attributes do not say is not tested:
    such a test is skipped. An object is made for each test, and its destination must hold nothing
    then. The tests need no plugin.
    """

    handler: Mapping[str, Any]
    """As below ``handlers.NAME`` in ``config.yaml``, with its ``type``."""
    once = False
    """Whether it stores its position with its data: then it gets each change once."""
    drops = False
    """Whether the documents of a collection that is dropped are removed from it."""
    sweeps = False
    """Whether the documents that a snapshot shows to be gone are removed from it."""
    refused: Mapping[str, Any] | None = None
    """Fields of a document that it refuses."""
    secret = ""
    """The text of a secret in ``handler``, or in a file that ``handler`` names."""
    backup: Callable[[], Any] | None = None
    """Copies what it holds, with its positions; returns a function that puts the copy back."""
    seconds = 60.0
    """How long a test waits for the destination."""

    def holds(self) -> Any:
        """What it holds now: a mapping of each ``_id`` to its row, or a sequence with the ``id`` of
        each change that was applied, or of its message, in their order. It may be a coroutine
        function."""
        raise NotImplementedError

    def document(self, number: int, version: int) -> Mapping[str, Any]:
        """The document ``number`` in its ``version``, for a destination that takes only some."""
        return numbered(number, version)

    def row(self, document: dict[str, Any]) -> Any:
        """What it holds of a document, if not the whole."""
        return document

    def down(self) -> AbstractContextManager[object]:
        """While the block runs, the destination does not answer."""
        raise SkipTest("down() does not stop it")

    def expired(self) -> AbstractContextManager[object]:
        """While the block runs, the destination refuses the credentials, also on connections that
        are open; at its end the file that ``handler`` names has others."""
        raise SkipTest("expired() does not refuse its credentials")

    # --- the tests -----------------------------------------------------------------------------

    def test_it_holds_what_the_source_has_after_every_fault(self) -> None:
        """Errors, outages, repeats, kills at every ``await``, and with ``once`` hand-overs."""
        more: dict[str, Any] = {"holds": self.holds, "document": self.document, "row": self.row}
        more |= {"drops": self.drops, "seconds": self.seconds}

        async def check() -> None:
            if self.once:
                await each_change_once(self.handler, backup=self.backup, **more)
            else:
                await at_least_once(self.handler, **more)

        anyio.run(check)

    def test_a_refused_document_is_set_aside_and_the_others_arrive(self) -> None:
        """Without another attempt, from the middle of a batch."""
        refused = self.refused
        if refused is None:
            raise SkipTest("refused is not set")

        async def check(harness: Harness) -> None:
            for number in range(1, 20):
                wrong = refused if number == 10 else {}
                harness.changes.insert({**self.document(number, 1), **wrong})
            await harness.handled()
            letters = await harness.dead_letters()
            key = {"_id": self.document(10, 1)["_id"]}
            keys = [letter.event.document_key for letter in letters]
            _require(keys == [key], f"the dead letters are {keys}, and not {[key]}")
            tries = letters[0].attempts
            _require(tries <= 1, f"it was refused after {tries} attempts: raise Refused")
            harness.changes.lose(key["_id"])
            await self._require_equal(harness, "a refused document", letters[0].event.id)

        self._run(check)

    def test_an_outage_is_waited_out(self) -> None:
        """It is longer than all attempts: in a run, and at a start."""
        down = self.down()

        async def check(harness: Harness) -> None:
            self._write(harness, 1, 10)
            await harness.handled()
            with down:
                self._write(harness, 11, 20)
                await harness.waits()
            await self._require_arrived(harness, "an outage")
            with self.down():
                await harness.restart()
                self._write(harness, 21, 30)
                await harness.waits()
            await self._require_arrived(harness, "a start in an outage")

        self._run(check)

    def test_refused_credentials_are_an_outage_that_new_ones_end(self) -> None:
        """Without a restart: the file of a secret is read again at each connection."""
        expired = self.expired()

        async def check(harness: Harness) -> None:
            self._write(harness, 1, 10)
            await harness.handled()
            with expired:
                self._write(harness, 11, 20)
                await harness.waits()
            await self._require_arrived(harness, "refused credentials")

        self._run(check)

    def test_a_probe_says_what_is_possible_and_leaves_nothing(self) -> None:
        """As ``tailrace check --connect`` makes it."""

        async def check() -> None:
            said = await self._tried()
            self._require_masked(said)
            _require(bool(said), "probe returns no text")
            held = await answer(self.holds())
            _require(not held, f"the probe has left {held!r}")

        anyio.run(check)

    def test_a_probe_says_that_the_destination_is_down(self) -> None:
        """Other errors than ``ConfigurationError`` and those of an outage would be a traceback."""
        down = self.down()

        async def check() -> None:
            with down:
                try:
                    said = await self._tried()
                except ConfigurationError as error:
                    self._require_masked(str(error))
                    return
            _require(False, f"it is down, and a probe says {said!r}")

        anyio.run(check)

    def test_a_snapshot_removes_what_is_gone_and_nothing_else(self) -> None:
        """No event said that it was gone. A document whose row is refused keeps its older state."""
        if not self.sweeps:
            raise SkipTest("sweeps is not set")

        async def check(harness: Harness) -> None:
            changes = harness.changes
            self._write(harness, 1, 10)
            await harness.snapshot()
            for number in (2, 5):
                changes.lose(self.document(number, 1)["_id"])
            self._write(harness, 11, 12)
            await harness.snapshot()
            await self._require_equal(harness, "a snapshot")
            if self.refused is None:
                return
            before = changes.documents[0]
            changes.update(before["_id"], self.refused)
            await harness.snapshot()
            held = (await answer(self.holds())).get(before["_id"])
            _require(
                held == self.row(before),
                f"the row of a document was refused, and its older state is {held!r} now: spare "
                "the keys in scope.dead_letter_keys",
            )

        self._run(check)

    def test_a_comparison_tells_the_same_rows_from_others(self) -> None:
        """Beside ``write``; of a destination that has ``comparison``."""

        async def check() -> None:
            async with Harness(self.handler, seconds=self.seconds) as harness:
                wrong = await comparison_faults(harness, self.document, once=self.once)
                _require(not wrong, wrong)

        anyio.run(check)

    def test_a_secret_is_shown_nowhere(self) -> None:
        """Neither in what ``tailrace check`` prints nor in the text of an object."""
        if not self.secret:
            raise SkipTest("secret is not set")
        settings = Harness(self.handler).settings
        self._require_masked(f"{masked(settings)} {settings!r}")

    # --- what they share -----------------------------------------------------------------------

    def _run(self, check: Callable[[Harness], Awaitable[None]]) -> None:
        async def run() -> None:
            more = {"on_failure": "dead_letter", "retry": _SOON}
            async with Harness(self.handler, handler=more, seconds=self.seconds) as harness:
                await check(harness)

        anyio.run(run)

    def _write(self, harness: Harness, first: int, last: int) -> None:
        for number in range(first, last + 1):
            harness.changes.insert(self.document(number, 1))
        for number in range(first, last + 1, 2):
            harness.changes.replace(self.document(number, 2))

    async def _tried(self) -> str:
        settings = Harness(self.handler).settings
        scopes = [target_of(settings.scopes[0])]
        with anyio.fail_after(self.seconds):
            return await probe_handler(NAME, settings.handlers[NAME], scopes, str(CLUSTER))

    async def _require_arrived(self, harness: Harness, after: str) -> None:
        await harness.handled()
        letters = await harness.dead_letters()
        _require(
            not letters, f"{after} must not cost an event: {[each.reason for each in letters]}"
        )
        await self._require_equal(harness, after)

    async def _require_equal(self, harness: Harness, after: str, *set_aside: Any) -> None:
        """``set_aside``: the ``id`` of each dead letter."""
        held = await answer(self.holds())
        if isinstance(held, Mapping):
            found = of_state(harness.changes, held, self.row)
        else:
            held = [*held, *set_aside]
            found = of_log(harness.changes, held, harness.delivered, first=0, once=self.once)
        if found:
            raise GuaranteeBroken(FaultKind.PLAIN, after, found)

    def _require_masked(self, text: str) -> None:
        shown = self.secret and self.secret in text
        _require(not shown, "a secret is shown: make the field a SecretText, or a SecretUri")


def _require(truth: bool, otherwise: str) -> None:
    if not truth:
        raise AssertionError(otherwise)
