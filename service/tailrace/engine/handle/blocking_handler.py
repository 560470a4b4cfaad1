"""Finds the handler that blocks the event loop, from the stack alone: deliveries pay nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from tailrace.engine.handle.commits import Commits
from tailrace.engine.handle.delivery import Delivery

_ENGINE = str(Path(__file__).parents[1])
_PACKAGE = str(Path(__file__).parents[2])


def blocking_handler(innermost: FrameType) -> dict[str, str]:
    """The handler and its scope, where the stack leads through a delivery, for the log.

    ``at`` is the line of the handler that is being executed (or, where it is no handler's work,
    the innermost of this package), ``inside`` the innermost line of all.
    """
    called = ours = None
    for frame in _outwards(innermost):
        path = frame.f_code.co_filename
        if path.startswith(_PACKAGE) and ours is None:
            ours = frame
        if not path.startswith(_ENGINE):
            called = frame
        elif isinstance(delivery := frame.f_locals.get("self"), Delivery | Commits):
            return {
                "scope": delivery.scope,
                "handler": delivery.name,
                "at": _place(called or frame),
                "inside": _place(innermost),
            }
    return {"at": _place(ours or innermost), "inside": _place(innermost)}


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _place(frame: FrameType) -> str:
    code = frame.f_code
    return f"{code.co_filename}:{frame.f_lineno} {code.co_qualname}"
