"""Decides by an error's class and the server's code whether a watcher restarts or halts."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from tailrace import errors
from tailrace.errors import CommandFailed, TailraceError, describe


class Reason(StrEnum):
    """Why a run ended: the label of the restart, and a heading in the runbook."""

    CANCELLED = "cancelled"
    CHECKPOINT = "checkpoint"
    DEAD_LETTERS = "dead_letters"
    DESTINATION = "destination"
    FENCED = "fenced"
    """The store holds a newer position than this process's."""
    HANDLER = "handler"
    HISTORY_LOST = "history_lost"
    """The server refuses the start point for good."""
    INTERNAL = "internal"
    POSITION = "position"
    REFUSED = "refused"
    STREAM = "stream"


_OPTION = "the server refuses an option or a pipeline stage: correct the scope"

# mongod, src/mongo/base/error_codes.yml, and the assertion codes of its change stream stages.
REFUSED_CODES = {
    13: "the user lacks the privilege: it needs the actions 'changeStream' and 'find' there "
    "(the role 'read' on the database, or 'readAnyDatabase' for a cluster scope)",
    11: "the user is not known: check mongodb.uri",
    18: "the credentials are refused: check mongodb.uri",
    40573: "only replica sets and sharded clusters have change streams",
    2: _OPTION,
    9: _OPTION,
    14: _OPTION,
    20: _OPTION,
    72: "the server refuses an option: correct the scope",
    73: "the server refuses the namespace: correct the scope",
    166: "views and time series have no change streams: correct the scope",
    168: "the server does not know an operator: correct the scope's pipeline",
    40324: "the server does not know a pipeline stage: correct the scope's pipeline",
    40415: "the server does not know an option: correct the scope, or take a newer server",
    10334: "an event is larger than 16 MB: set split_large_events: true",
    47: "a required image is missing: enable changeStreamPreAndPostImages on the collection, or "
    "ask for 'whenAvailable'",
}

# The server's codes for a start point that is not a resume token (resume_token.cpp, data_view.h).
_NO_TOKEN = frozenset({15, 40647, 40648, 40649, 50872})

_LOCATION = "Location"
"""Prefix of mongod's name for a code without a name: an assertion, at the opening of its parser."""
_ATLAS_ERROR = 8000
"""Also without a name: Atlas could not do something just now."""

# The server can never accept the stored position again.
_HISTORY_LOST = frozenset(
    {
        286,  # ChangeStreamHistoryLost: the oplog no longer reaches back to the token
        280,  # ChangeStreamFatalError: not resumable, as when the pipeline changed
        260,  # InvalidResumeToken
        222,  # CloseChangeStream
        40576,  # resume of a change stream was not possible (older servers' 286)
        50811,  # the token belongs to another collection
    }
)


@dataclass(frozen=True, slots=True)
class Decision:
    """Halt or restart; ``reason`` labels the restart, ``message`` explains it."""

    halt: bool
    reason: Reason
    message: str


def decide(error: BaseException, scope: str, *, opening: bool = True, leader: str = "") -> Decision:
    """Decides about the error that ended a watcher's run.

    ``opening``: the stream had not got beyond its first ``getMore``, which some servers need to
    notice that the history is lost; later the same codes say nothing about the checkpoint.
    ``leader``: the handler at whose own position the stream was to start, if any.
    """
    decisions = [_judge(leaf, scope, opening, leader) for leaf in _leaves(error)]
    return next((decision for decision in decisions if decision.halt), decisions[0])


def _judge(error: BaseException, scope: str, opening: bool, leader: str) -> Decision:
    if isinstance(error, CommandFailed):
        stored = f"the position that handler {leader!r} stored" if leader else "the checkpoint"
        begins = f" (it was to begin at {stored})" if opening and leader else ""
        refusal = REFUSED_CODES.get(error.code, "")
        if opening and error.code in _HISTORY_LOST:
            message = (
                f"the server cannot resume from {stored}: {error}. Changes since then may be lost. "
                f"Choose a new position with 'tailrace checkpoints set {scope} --at TIME', or "
                f"'tailrace checkpoints reset {scope}' to begin where the scope is configured to, "
                "then restart; or let on_history_lost: skip do so by itself, and record the gap"
            )
            return Decision(True, Reason.HISTORY_LOST, message)
        if opening and error.code in _NO_TOKEN:
            refusal, begins = f"{stored} is not a resume token of this server", ""
        elif opening and error.code_name.startswith(_LOCATION) and error.code != _ATLAS_ERROR:
            refusal = refusal or "the server refuses the pipeline or an option: correct the scope"
        if refusal:
            return Decision(True, Reason.REFUSED, f"{error}: {refusal}{begins}")
    for kind, halt, reason in _BY_CLASS:
        if isinstance(error, kind):
            return Decision(halt, reason, str(error) if halt else describe(error))
    return Decision(False, Reason.INTERNAL, describe(error))


_BY_CLASS = [
    (errors.CheckpointFenced, True, Reason.FENCED),
    (errors.CheckpointCorrupt, True, Reason.POSITION),
    (errors.MissingResumeToken, True, Reason.POSITION),
    (errors.ScopeHalted, True, Reason.POSITION),
    (errors.SourceRestored, True, Reason.HISTORY_LOST),
    (errors.SegmentUnreadable, True, Reason.POSITION),
    (errors.HandlerGaveUp, True, Reason.HANDLER),
    (errors.CheckpointError, False, Reason.CHECKPOINT),
    (errors.DeadLetterError, False, Reason.DEAD_LETTERS),
    (errors.DestinationUnavailable, False, Reason.DESTINATION),
    (errors.PositionMoved, False, Reason.HANDLER),
    (errors.HandlerFailed, False, Reason.HANDLER),
    (errors.TaskCancelled, False, Reason.CANCELLED),
    (TailraceError, False, Reason.STREAM),
]
"""By error class, whether the scope halts, and why. The first class that matches decides."""


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error
