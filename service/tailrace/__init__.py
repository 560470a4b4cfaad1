"""Tailrace follows MongoDB change streams and delivers every change, in order, to handlers.

This module is the public API and has what a handler needs; :mod:`tailrace.destination` has what a
destination in a package of its own needs beside that, and :mod:`tailrace.testing` what their tests
need. All else may change with a release:

- :class:`ChangeEvent`: one change, as a handler gets it; :class:`ResumeToken`: its position.
- :class:`Batch`, :class:`ScopeContext`: what the methods of a handler class get;
  :class:`Message`: what ``batch.messages(envelope)`` makes of an event.
- :class:`PermanentError`, :class:`TemporaryError`: a handler raises these to say whether another
  attempt can help.
- :class:`Unavailable`, :class:`Refused`, :class:`Fenced`: what a destination may answer: it is
  down, it refuses single events, or another process writes there now.
- :func:`destination_type`, :class:`BatchHandlerSettings`: for packages that add a type of handler.
"""

from typing import TYPE_CHECKING

from tailrace.version import __version__ as __version__

if TYPE_CHECKING:
    from tailrace.destination import Batch, BatchHandlerSettings, ScopeContext, destination_type
    from tailrace.envelope import Message
    from tailrace.errors import Fenced, PermanentError, Refused, TemporaryError, Unavailable
    from tailrace.event import ChangeEvent
    from tailrace.model import ResumeToken

_MODULES = {
    "Batch": "destination",
    "BatchHandlerSettings": "destination",
    "ChangeEvent": "event",
    "Fenced": "errors",
    "Message": "envelope",
    "Unavailable": "errors",
    "Refused": "errors",
    "PermanentError": "errors",
    "ResumeToken": "model",
    "ScopeContext": "destination",
    "TemporaryError": "errors",
    "destination_type": "destination",
}

__all__ = [
    "Batch",
    "BatchHandlerSettings",
    "ChangeEvent",
    "Fenced",
    "Message",
    "PermanentError",
    "Refused",
    "ResumeToken",
    "ScopeContext",
    "TemporaryError",
    "Unavailable",
    "destination_type",
]


def __getattr__(name: str) -> object:
    """Imports on first use, so that the process handles signals before it imports more."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"tailrace.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
