"""How a watcher reacts to each error."""

import pytest

from tailrace.engine.error_policy import Blame, decide
from tailrace.errors import (
    CheckpointCorrupt,
    CheckpointError,
    CheckpointFenced,
    CommandFailed,
    ConnectionFailed,
    HandlerFailed,
    MissingResumeToken,
    ScopeHalted,
    StreamEnded,
)


def command(code: int, message: str = "no") -> CommandFailed:
    return CommandFailed(message, code=code, code_name="Some")


@pytest.mark.parametrize("code", [2, 9, 14, 20, 72, 73, 166, 168, 40324, 40415])
def test_a_refusal_of_the_scope_needs_an_operator(code: int) -> None:
    decision = decide(command(code, "the server's words"), "orders")
    assert (decision.halt, decision.reason) == (True, "refused")
    # The server's message, and what to do about it.
    assert decision.message.startswith(f"the server's words (code {code} Some): ")
    assert "correct the scope" in decision.message
    # In mid-stream the same code says nothing about the scope: its stream was accepted.
    assert not decide(command(code), "orders", opening=False).halt


@pytest.mark.parametrize("opening", [True, False])
@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (11, "access"),
        (13, "access"),
        (18, "access"),
        (391, "access"),
        (26, "stream"),
        (8000, "stream"),
        (40573, "stream"),
    ],
)
def test_what_others_may_mend_is_waited_for(code: int, reason: str, opening: bool) -> None:
    """Users, roles, a database, a set in its initiation: no setting of ours is wrong for good."""
    decision = decide(command(code, "the server's words"), "orders", opening=opening)
    assert (decision.halt, decision.reason) == (False, reason)
    assert decision.message.startswith(f"the server's words (code {code} Some): ")
    assert decision.message.endswith("It is tried again until it works")


@pytest.mark.parametrize("opening", [True, False])
@pytest.mark.parametrize(
    ("code", "help"), [(47, "helps later changes only"), (10334, "split_large_events: true")]
)
def test_an_event_that_cannot_be_sent_can_be_set_aside(code: int, help: str, opening: bool) -> None:
    decision = decide(command(code), "orders", opening=opening)
    assert (decision.halt, decision.reason) == (True, "refused")
    assert help in decision.message
    assert "'tailrace scopes skip orders'" in decision.message


@pytest.mark.parametrize(
    ("code", "blame", "halts", "reason"),
    [
        (286, Blame.POSITION, True, "history_lost"),
        (280, Blame.POSITION, True, "history_lost"),
        (286, Blame.COMMAND, False, "stream"),
        (280, Blame.MOMENT, False, "stream"),
        (9, Blame.COMMAND, True, "refused"),
        (9, Blame.MOMENT, False, "stream"),
        (9, Blame.POSITION, True, "refused"),
    ],
)
def test_what_the_server_says_without_the_position_decides(
    code: int, blame: Blame, halts: bool, reason: str
) -> None:
    decision = decide(command(code), "orders", blame=blame)
    assert (decision.halt, decision.reason) == (halts, reason)
    if blame is Blame.POSITION:
        assert "tailrace scopes seek orders --at TIME" in decision.message


def test_an_assertion_at_the_opening_comes_from_the_parser() -> None:
    """The parser's codes are many and unnamed. In mid-stream such a code restarts; Atlas's too."""
    error = CommandFailed(
        "the match filter must be an object", code=15959, code_name="Location15959"
    )
    decision = decide(error, "orders")
    assert (decision.halt, decision.reason) == (True, "refused")
    assert decision.message.endswith("refuses the pipeline or an option: correct the scope")
    assert not decide(error, "orders", opening=False).halt
    assert not decide(CommandFailed("no", code=8000, code_name="Location8000"), "orders").halt


def test_a_start_that_is_refused_is_named() -> None:
    message = decide(command(20), "orders", handler="lake").message
    assert message.endswith(" (it was to begin at the position that handler 'lake' stored)")
    message = decide(command(40649), "orders").message
    assert "the checkpoint is not a position of this server and this scope" in message


@pytest.mark.parametrize("code", [286, 280, 260, 222, 40576, 50811])
def test_a_position_that_the_server_cannot_resume_needs_an_operator(code: int) -> None:
    """Sending it again can never succeed, and skipping it would lose changes silently."""
    decision = decide(command(code), "orders")
    assert (decision.halt, decision.reason) == (True, "history_lost")
    assert "tailrace scopes seek orders --at TIME" in decision.message
    assert "tailrace snapshot start orders" in decision.message


@pytest.mark.parametrize(
    ("error", "halts", "reason", "message"),
    [
        (CheckpointFenced("taken over"), True, "fenced", "taken over"),
        (CheckpointCorrupt("cannot be read"), True, "position", "cannot be read"),
        (MissingResumeToken("no _id"), True, "position", "no _id"),
        (ScopeHalted("another cluster"), True, "position", "another cluster"),
        (CheckpointError("disk full"), False, "checkpoint", "disk full"),
        (ConnectionFailed("no primary"), False, "stream", "no primary"),
        (StreamEnded("it ended"), False, "stream", "it ended"),
        (command(11600), False, "stream", "no (code 11600 Some)"),
        (command(43), False, "stream", "no (code 43 Some)"),
        (KeyError("x"), False, "internal", "KeyError: 'x'"),
        (AssertionError(), False, "internal", "AssertionError"),
    ],
)
def test_an_error_that_no_restart_fixes_halts_and_everything_else_restarts(
    error: Exception, halts: bool, reason: str, message: str
) -> None:
    decision = decide(error, "orders")
    assert (decision.halt, decision.reason, decision.message) == (halts, reason, message)


def test_a_handlers_error_restarts_whatever_it_is() -> None:
    """A write of the handler that is refused is no refusal of the stream."""
    decision = decide(HandlerFailed("audit", "abc", command(13)), "orders")
    assert (decision.halt, decision.reason) == (False, "handler")
    assert "audit" in decision.message


def test_inside_a_group_halting_wins() -> None:
    inner = ExceptionGroup("inner", [StreamEnded("ended"), command(286)])
    decision = decide(ExceptionGroup("outer", [HandlerFailed("a", "b", ValueError()), inner]), "s")
    assert (decision.halt, decision.reason) == (True, "history_lost")
