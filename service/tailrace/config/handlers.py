"""What the configuration knows of a handler: the word that selects its type.

The table of types (:mod:`tailrace.handlers.types`) is handed to
:func:`tailrace.config.loading.load`; what the settings of several types have in common is in
:mod:`tailrace.destination.settings`.
"""

from collections.abc import Callable, Collection, Mapping

from tailrace.config.fields import Section


class AnyHandlerSettings(Section):
    """The settings of a handler. The ``type`` of a subclass is one literal word."""

    type: str
    """Selects this handler."""

    @property
    def needs_documents(self) -> bool:
        """Whether every update must carry the whole document, for this handler to store it."""
        return False


HandlerModels = Callable[[Collection[str]], Mapping[str, type[AnyHandlerSettings] | str]]
"""The settings of the types of handlers that a file may use, by the word of the key ``type``.

It gets the words that the file uses, and returns at least these if they are known; a text says why
the type of that word cannot be used.
"""
