"""Tailrace follows MongoDB change streams and hands every change, in order, to handlers.

This module is the public API and has what a handler needs. All else may change with a release:

- :class:`ChangeEvent`: one change, as a handler gets it.
- :class:`ResumeToken`, :class:`SinkPosition`: the position of a change in the stream, and the
  position that a handler reads back from its destination.
- :class:`PermanentError`, :class:`TemporaryError`: a handler raises these to say whether another
  attempt can help.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailrace.errors import PermanentError, TemporaryError
    from tailrace.event import ChangeEvent
    from tailrace.model import ResumeToken, SinkPosition

__all__ = ["ChangeEvent", "PermanentError", "ResumeToken", "SinkPosition", "TemporaryError"]

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Imports on first use, so that the process handles signals before it imports more."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tailrace import errors, event, model

    return next(getattr(each, name) for each in (errors, event, model) if hasattr(each, name))


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
