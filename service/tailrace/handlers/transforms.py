"""A function of the user's that changes documents on their way to a handler.

It gets documents after :mod:`tailrace.event.field_protection`, so its errors cannot tell what is
hashed or masked, and before :mod:`tailrace.event.field_mapping`.
"""

import dis
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import anyio.lowlevel
import bson
from bson.errors import BSONError

from tailrace.destination.target import imported_target
from tailrace.errors import ConfigurationError, PermanentError, Problem, describe
from tailrace.event import ChangeEvent
from tailrace.event.bson import DOCUMENT, STRING, encoded, walk
from tailrace.event.codec import CODEC
from tailrace.event.other_id import with_raw
from tailrace.event.raw_fields import element

_AT_ONCE = 500
"""After so many events, the event loop may go on."""
_BEFORE = b"fullDocumentBeforeChange"
_IMAGES = (b"fullDocument", _BEFORE)
_UPDATE, _OPERATION = b"updateDescription", b"operationType"
_DELETE = (7).to_bytes(4, "little") + b"delete\0"
_PARAMETERS = {
    ("documents",): (True, False),
    ("documents", "events"): (True, True),
    ("document",): (False, False),
    ("document", "event"): (False, True),
}
"""By the names of the parameters, whether it gets several documents, and whether events, too."""

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)

_RETURNS = ("RETURN_VALUE", "RETURN_CONST")  # the latter in Python 3.12 and 3.13
_CONSTANTS = ("LOAD_CONST", "RETURN_CONST")

_Made = Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Transform:
    """Calls ``function``, which ``name`` names, with documents of events."""

    name: str
    function: Callable[..., Any]
    several: bool
    with_events: bool

    @classmethod
    def of_function(cls, name: str, function: Any) -> "Transform":
        """Raises ``ValueError`` with the words after the name if it cannot be a transform."""
        if not callable(function) or inspect.isclass(function):
            raise ValueError("is not a function")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise ValueError("is a generator: return a list instead of 'yield'")
        signature = inspect.signature(function)
        required = [each for each in signature.parameters.values() if each.default is each.empty]
        names = tuple(each.name for each in required)
        if names not in _PARAMETERS or any(each.kind not in _POSITIONAL for each in required):
            raise ValueError(
                "must take (documents), (documents, events), (document) or (document, event): it "
                f"is {getattr(function, '__name__', function)}{signature}"
            )
        made = cls(name, function, *_PARAMETERS[names])
        returns = signature.return_annotation
        if (
            returns in (None, "None")
            or _returns_nothing(function)
            or (made.several and not made._returns_a_list())
        ):
            wanted = "a list with one" if made.several else "one"
            raise ValueError(f"returns no document: return {wanted}, or None for 'not this one'")
        return made

    @classmethod
    def of_target(cls, name: str, target: str) -> "Transform":
        """The transform of handler ``name``. Raises :class:`ConfigurationError`."""
        path = f"handlers.{name}.transform"
        try:
            return cls.of_function(target, imported_target(name, target))
        except ConfigurationError as error:
            raise ConfigurationError(Problem(path, error.problems[0].message)) from error
        except ValueError as error:
            raise ConfigurationError(Problem(path, f"{target!r} {error}")) from error

    async def of(self, events: Sequence[ChangeEvent]) -> list[ChangeEvent | None]:
        """The events with what the function makes of their documents, at the same indices.

        One whose document it leaves out is a delete of the document; an insert, before which there
        was none, is ``None``. Raises what the function raises, and :class:`PermanentError` if it
        returns something else than documents.
        """
        found: list[ChangeEvent | None] = []
        for first in range(0, len(events), _AT_ONCE):
            if first:
                await anyio.lowlevel.checkpoint()
            found += await self._part(events[first : first + _AT_ONCE])
        return found

    async def _part(self, events: Sequence[ChangeEvent]) -> list[ChangeEvent | None]:
        images = [
            (at, name, raw)
            for name in _IMAGES
            for at, event in enumerate(events)
            if (raw := event.field_bytes(name.decode())) is not None
        ]
        made: list[dict[bytes, bytes | None]] = [{} for _ in events]
        if images:
            documents = [bson.decode(raw, CODEC) for *_, raw in images]
            answers = await self._called(documents, [events[at].fresh() for at, *_ in images])
            for (at, name, raw), answer in zip(images, answers, strict=True):
                made[at][name] = self._encoded(raw, answer)
        return [_event(event, images) for event, images in zip(events, made, strict=True)]

    async def _called(
        self, documents: list[dict[str, Any]], events: list[ChangeEvent]
    ) -> Sequence[_Made]:
        if not self.several:
            pairs = zip(documents, events, strict=True)
            return [await self._call(*(pair[: 1 + self.with_events])) for pair in pairs]
        count = len(documents)
        answers = await self._call(*([documents, events] if self.with_events else [documents]))
        if not isinstance(answers, list | tuple) or len(answers) != count:
            returned = f"{len(answers)}" if isinstance(answers, list | tuple) else _type(answers)
            raise PermanentError(
                f"transform {self.name!r} returned {returned} for {count} documents: it must "
                "return a list with one document, or None, for each"
            )
        return answers

    async def _call(self, *arguments: Any) -> Any:
        answer = self.function(*arguments)
        return await answer if inspect.isawaitable(answer) else answer

    def _encoded(self, raw: bytes, answer: object) -> bytes | None:
        """A document that the function has returned, with the ``_id`` of the one that it got."""
        if answer is None:
            return None
        if not isinstance(answer, Mapping):
            message = f"returned {_type(answer)}, and not a document or None"
            raise PermanentError(f"transform {self.name!r} {message}")
        try:
            made = bson.encode({key: value for key, value in answer.items() if key != "_id"})
        except (BSONError, ArithmeticError, RecursionError, TypeError, ValueError) as error:
            message = f"returned a document that BSON cannot store: {describe(error)}"
            raise PermanentError(f"transform {self.name!r} {message}") from error
        own = b"".join(
            raw[at - len(name) - 2 : end] for name, _, at, end in walk(raw, 0) if name == b"_id"
        )
        return encoded(own + made[4:-1])

    def _returns_a_list(self) -> bool:
        """Whether it returns a list for no documents, as far as that can be known."""
        try:
            answer = self.function(*([[], []] if self.with_events else [[]]))
            if inspect.iscoroutine(answer):
                try:
                    answer.send(None)
                    answer.close()
                    return True  # it waits for something
                except StopIteration as stopped:
                    answer = stopped.value
        except (Exception, SystemExit):  # noqa: BLE001 - it is never called with none
            return True
        return isinstance(answer, list | tuple)


def _event(event: ChangeEvent, images: Mapping[bytes, bytes | None]) -> ChangeEvent | None:
    """The event with these images; what an update changes is not known any more."""
    gone = b"fullDocument" in images and images[b"fullDocument"] is None
    if gone:
        return None if event.operation_type == "insert" else deleted(event, images)
    if not images and event.field_bytes("updateDescription") is None:
        return event
    return _rebuilt(event, images)


def deleted(event: ChangeEvent, images: Mapping[bytes, bytes | None] | None = None) -> ChangeEvent:
    """The event as a delete of its document; ``images``: with a document before the change."""
    before = {b"fullDocument": None, _BEFORE: (images or {}).get(_BEFORE)}
    return _rebuilt(event, before, _DELETE)


def _rebuilt(
    event: ChangeEvent, images: Mapping[bytes, bytes | None], operation: bytes | None = None
) -> ChangeEvent:
    raw, elements = event.raw, list[bytes]()
    for name, kind, at, end in walk(raw, 0):
        value: bytes | None = raw[at:end]
        if name in images and kind == DOCUMENT:
            value = images[name]
        elif name == _UPDATE:
            value = None
        elif operation is not None and name == _OPERATION and kind == STRING:
            value = operation
        if value is not None:
            elements.append(element(kind, name, value))
    return with_raw(event, encoded(b"".join(elements)))


def _returns_nothing(function: Any) -> bool:
    """Whether each ``return`` of it, if there is any, returns ``None``: then it would leave out
    every document."""
    code = getattr(function, "__code__", None)
    if code is None:
        return False
    before: dis.Instruction | None = None
    for instruction in dis.get_instructions(code):
        value = instruction if instruction.opname == "RETURN_CONST" else before
        is_none = value is not None and value.opname in _CONSTANTS and value.argval is None
        if instruction.opname in _RETURNS and (instruction.is_jump_target or not is_none):
            return False
        before = instruction
    return True


def _type(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
