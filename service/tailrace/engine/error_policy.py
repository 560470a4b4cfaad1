"""Decides by an error's class and the server's code whether a watcher restarts or halts."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from tailrace import errors
from tailrace.errors import CommandFailed, TailraceError, describe
from tailrace.event.naming import described
from tailrace.stream import HISTORY_LOST, NO_ACCESS, UnsentEvent


class Reason(StrEnum):
    """Why a run ended: the label of the restart, and a heading in the runbook."""

    ACCESS = "access"
    """The server refuses the login or a privilege."""
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


class Blame(StrEnum):
    """About what a refusal of the server says something."""

    COMMAND = "command"
    """The scope's options and pipeline: refused until the configuration is changed."""
    POSITION = "position"
    """The start point: the same command without it is accepted."""
    EVENT = "event"
    """One event, which the server cannot make."""
    MOMENT = "moment"
    """The state of the server, its users or its data: whoever changes that does not tell us."""


_OPTION = "the server refuses an option or a pipeline stage: correct the scope"
_PRIVILEGE = (
    "the user lacks the privilege: it needs the actions 'changeStream' and 'find' there "
    "(the role 'read' on the database, or 'readAnyDatabase' for a cluster scope)"
)
_LOGIN = "check the user and its password in mongodb.uri"

# mongod, src/mongo/base/error_codes.yml, and the assertion codes of its change stream stages.
REFUSALS: Mapping[int, tuple[Blame, str]] = {
    11: (Blame.MOMENT, f"the user is not known: {_LOGIN}"),
    13: (Blame.MOMENT, _PRIVILEGE),
    18: (Blame.MOMENT, f"the credentials are refused: {_LOGIN}"),
    391: (Blame.MOMENT, f"the login has ended: {_LOGIN}"),
    26: (Blame.MOMENT, "the database does not exist yet"),
    40573: (Blame.MOMENT, "only members of a replica set and sharded clusters have change streams"),
    8000: (Blame.MOMENT, "Atlas cannot do that just now"),
    2: (Blame.COMMAND, _OPTION),
    9: (Blame.COMMAND, _OPTION),
    14: (Blame.COMMAND, _OPTION),
    20: (Blame.COMMAND, _OPTION),
    72: (Blame.COMMAND, "the server refuses an option: correct the scope"),
    73: (Blame.COMMAND, "the server refuses the namespace: correct the scope"),
    166: (Blame.COMMAND, "views and time series have no change streams: correct the scope"),
    168: (Blame.COMMAND, "the server does not know an operator: correct the scope's pipeline"),
    40324: (
        Blame.COMMAND,
        "the server does not know a pipeline stage: correct the scope's pipeline",
    ),
    40415: (
        Blame.COMMAND,
        "the server does not know an option: correct the scope, or take a newer server",
    ),
    10334: (
        Blame.EVENT,
        "the event is larger than 16 MB: set split_large_events: true or, if the server looks "
        "documents up, full_document: lookup",
    ),
    47: (
        Blame.EVENT,
        "a required image is missing: ask for 'whenAvailable'. Enabling "
        "changeStreamPreAndPostImages on the collection helps later changes only",
    ),
}
"""By code, about what the refusal says something, and what an operator can do."""

_EVENT = "the server cannot make this event with the scope's pipeline: correct the pipeline"

# The server's codes for a start point that is not a resume token (resume_token.cpp, data_view.h).
_NO_TOKEN = frozenset({15, 40647, 40648, 40649, 50872})

_LOCATION = "Location"
"""Prefix of mongod's name for a code without a name: an assertion, at the opening of its parser."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Halt or restart; ``reason`` labels the restart, ``message`` explains it."""

    halt: bool
    reason: Reason
    message: str


def decide(
    error: BaseException,
    scope: str,
    *,
    opening: bool = True,
    handler: str = "",
    blame: Blame | None = None,
) -> Decision:
    """Decides about the error that ended a watcher's run.

    ``opening``: the stream had not got beyond its first ``getMore``, which some servers need to
    notice that the history is lost; later the same codes say nothing about the checkpoint.
    ``scope``: as an operator's commands name it, with the handler that is on its own, if it is one.
    ``handler``: the handler at whose own position the stream was to start, if any. ``blame``: what
    the server has said when it was asked again, if it was (:func:`tailrace.engine.refusal.blame`).
    """
    decisions = [_judge(leaf, scope, opening, handler, blame) for leaf in _leaves(error)]
    return next((decision for decision in decisions if decision.halt), decisions[0])


def _judge(
    error: BaseException, scope: str, opening: bool, handler: str, blame: Blame | None
) -> Decision:
    if isinstance(error, CommandFailed):
        usual, advice = REFUSALS.get(error.code, (None, ""))
        if usual is Blame.MOMENT:
            reason = Reason.ACCESS if error.code in NO_ACCESS else Reason.STREAM
            return Decision(False, reason, f"{error}: {advice}. It is tried again until it works")
        if usual is Blame.EVENT:
            return Decision(True, Reason.REFUSED, f"{error}: {advice}{_set_aside(scope)}")
        if opening and blame is not Blame.MOMENT:
            refused = _refusal(error, scope, handler, blame, advice)
            if refused is not None:
                return refused
    if isinstance(error, errors.HandlerGaveUp):
        advice = (
            "Correct the handler or its settings, then 'tailrace reload' and 'tailrace scopes "
            f"restart {scope}'; or let the handler set such events aside (on_failure: dead_letter)"
        )
        return Decision(True, Reason.HANDLER, f"{error}. {advice}")
    for kind, halt, reason in _BY_CLASS:
        if isinstance(error, kind):
            return Decision(halt, reason, str(error) if halt else describe(error))
    return Decision(False, Reason.INTERNAL, describe(error))


def _refusal(
    error: CommandFailed, scope: str, handler: str, blame: Blame | None, advice: str
) -> Decision | None:
    """What the refusal of an opening says of the position, or of the scope's configuration."""
    stored = f"the position that handler {handler!r} stored" if handler else "the checkpoint"
    if error.code in HISTORY_LOST:
        if blame is Blame.COMMAND:
            message = f"{error} (also without a position, so none is lost: it is tried again)"
            return Decision(False, Reason.STREAM, message)
        message = (
            f"the server cannot resume from {stored}: {error}. Changes since then may be lost. "
            f"'tailrace scopes seek {scope} --at TIME' continues at a time that the oplog still "
            f"has, then 'tailrace snapshot start {scope}' brings back the documents as they are "
            "now; or let on_history_lost: snapshot do both by itself (skip: only the first), and "
            "record the gap"
        )
        return Decision(True, Reason.HISTORY_LOST, message)
    if error.code in _NO_TOKEN or (blame is Blame.POSITION and (advice or _unnamed(error))):
        message = f"{error}: {stored} is not a position of this server and this scope. Choose one:"
        return Decision(True, Reason.REFUSED, f"{message} 'tailrace scopes seek {scope} --at TIME'")
    if not advice and _unnamed(error):
        advice = "the server refuses the pipeline or an option: correct the scope"
    if not advice:
        return None
    begins = f" (it was to begin at {stored})" if handler else ""
    return Decision(True, Reason.REFUSED, f"{error}: {advice}{begins}")


def _unnamed(error: CommandFailed) -> bool:
    return error.code_name.startswith(_LOCATION)


def unsendable(scope: str, unsent: UnsentEvent) -> str:
    """Why a scope halts before an event that the server cannot send, and what helps."""
    error = unsent.error
    usual, advice = REFUSALS.get(error.code, (None, ""))
    advice = advice if usual is Blame.EVENT else _EVENT
    return (
        f"scope {scope!r}: the server cannot send the {described(unsent.event)}: {error}: "
        f"{advice}{_set_aside(scope)}. All changes before it are handled"
    )


def _set_aside(scope: str) -> str:
    return (
        f". 'tailrace scopes skip {scope}' sets this one change aside, with a record of the gap "
        "(--dry-run shows it)"
    )


_BY_CLASS = [
    (errors.CheckpointFenced, True, Reason.FENCED),
    (errors.CheckpointCorrupt, True, Reason.POSITION),
    (errors.MissingResumeToken, True, Reason.POSITION),
    (errors.ScopeHalted, True, Reason.POSITION),
    (errors.SourceRestored, True, Reason.HISTORY_LOST),
    (errors.SegmentUnreadable, True, Reason.POSITION),
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
