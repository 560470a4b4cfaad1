"""The answers as a line on the terminal, and as a document to attach to an issue."""

import platform
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from tailrace.compat.answer import AnswerKind, CompatAnswer
from tailrace.compat.questions import QUESTIONS
from tailrace.version import __version__

_WIDTH = 2 + max(len(each.name) for each in QUESTIONS)
_KIND_WIDTH = 2 + max(map(len, AnswerKind))


def line(answer: CompatAnswer) -> str:
    """``yes  stream.collection  a stream of a collection``, with what was seen."""
    question = next(each for each in QUESTIONS if each.name == answer.question)
    facts = ", ".join(f"{name} {_text(value)}" for name, value in answer.facts.items())
    seen = answer.reason or facts
    asks = f"{question.asks}{f' ({seen})' if seen else ''}"
    return f"{answer.kind:<{_KIND_WIDTH}}{answer.question:<{_WIDTH}}{asks}"


def lacking(answers: Sequence[CompatAnswer]) -> list[str]:
    """The questions whose answer every scope needs, and that were not answered with yes."""
    needed = {each.name for each in QUESTIONS if not each.needed_by}
    return [each.question for each in answers if each.question in needed and each.kind != "yes"]


def document(answers: Sequence[CompatAnswer], driver: str, *, complete: bool) -> dict[str, Any]:
    """JSON types. ``complete``: every question was asked."""
    known = {each.name: each for each in QUESTIONS}
    drivers = ("pymongo",) if driver == "pymongo" else ("motor", "pymongo")
    return {
        "tailrace": __version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "driver": driver,
        "drivers": {name: version(name) for name in drivers},
        "complete": complete,
        "works": complete and not lacking(answers),
        "lacking": lacking(answers),
        "answers": [
            {
                "question": each.question,
                "asks": known[each.question].asks,
                "needed_by": known[each.question].needed_by or "every scope",
                "answer": each.kind.value,
                "reason": each.reason,
                "facts": dict(each.facts),
                "seconds": each.seconds,
            }
            for each in answers
        ],
    }


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
