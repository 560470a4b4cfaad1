"""The answer to a question, and which answer an error of the server is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tailrace.errors import CommandFailed, ConnectionFailed, ScopeHalted, TailraceError
from tailrace.stream import NO_ACCESS

Facts = Mapping[str, Any]
"""Numbers, flags, and words that the server has of itself: no data and no names of the user's."""

_UNSUPPORTED = frozenset(
    {
        *(4, 20, 59, 72, 73),  # NoSuchKey, IllegalOperation, CommandNotFound, InvalidOptions, …
        *(115, 166, 238, 263),  # CommandNotSupported, …OnView, NotImplemented, in transactions
        *(303, 304),  # "Feature not supported" of Amazon DocumentDB
        *(40324, 40415, 16436),  # an unknown stage, an unknown field, an unknown stage (older)
    }
)
"""mongod, src/mongo/base/error_codes.yml, and assertions of its parsers."""
_ATLAS_ERROR = 8000


class AnswerKind(StrEnum):
    """How a question was answered."""

    YES = "yes"
    NO = "no"
    NOT_ALLOWED = "not allowed"
    NOT_SUPPORTED = "not supported here"
    FAILED = "failed"


class NegativeAnswer(Exception):
    """The answer is not yes. ``reason`` is our own text, and ``facts`` what was seen."""

    def __init__(
        self, reason: str, facts: Facts | None = None, *, kind: AnswerKind = AnswerKind.NO
    ) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason
        self.facts = facts or {}


def not_here(reason: str) -> NegativeAnswer:
    """The answer where there is nothing to ask about."""
    return NegativeAnswer(reason, kind=AnswerKind.NOT_SUPPORTED)


@dataclass(frozen=True, slots=True)
class CompatAnswer:
    """The answer to the question with this name, and how long it took."""

    question: str
    kind: AnswerKind
    reason: str = ""
    facts: Facts = field(default_factory=dict)
    seconds: float = 0.0


def negative(error: Exception) -> NegativeAnswer:
    """The answer that an error is. Its text may quote names and addresses, and is left out."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, NegativeAnswer):
        return error
    while not isinstance(error, CommandFailed) and isinstance(error.__cause__, TailraceError):
        error = error.__cause__  # a store's error has the driver's
    match error:
        case CommandFailed():
            facts = {"code": error.code, "code_name": error.code_name}
            return NegativeAnswer(_of_code(error), facts, kind=_kind(error))
        case ScopeHalted():
            return not_here("Tailrace refuses to read this server so")
        case ConnectionFailed():
            name = str(error).partition(":")[0]
            reason = "the connection failed" + (f" ({name})" if name.isidentifier() else "")
            return NegativeAnswer(reason, kind=AnswerKind.FAILED)
    return NegativeAnswer(f"ended with {type(error).__name__}", kind=AnswerKind.FAILED)


def _kind(error: CommandFailed) -> AnswerKind:
    if error.code in NO_ACCESS or (error.code == _ATLAS_ERROR and "not allowed" in str(error)):
        return AnswerKind.NOT_ALLOWED
    return AnswerKind.NOT_SUPPORTED if error.code in _UNSUPPORTED else AnswerKind.FAILED


def _of_code(error: CommandFailed) -> str:
    return f"the server answered with code {error.code} {error.code_name}".rstrip()
