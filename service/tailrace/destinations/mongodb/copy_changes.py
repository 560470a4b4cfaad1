"""What a batch does to a copy: the last change of each document."""

from dataclasses import dataclass, field

from tailrace.destinations.mongodb.statements import Change, key_of
from tailrace.event import ChangeEvent, Namespace


@dataclass(slots=True)
class CopyChanges:
    """The changes of one copy, and the keys of all documents that the batch names."""

    copy: Namespace
    changes: list[Change] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)

    def add(self, index: int, event: ChangeEvent, only_if: bytes = b"") -> str:
        """Adds the last event of a document; returns why it is refused, if it is.

        An update whose document is gone changes nothing: its delete follows. ``only_if``: as
        :class:`Change` has it.
        """
        document_key = event.field_bytes("documentKey")
        try:
            key = key_of(document_key or b"")
        except ValueError:
            return "its document key has no _id"
        kind, document = event.operation_type, None
        if kind != "delete":
            document = event.field_bytes("fullDocument")
            if document is None and kind != "update":
                return "it has no document: the scope's pipeline removes it"
        self.keys.append(key)
        if document is not None or kind == "delete":
            self.changes.append(Change(index, key, document, only_if))
        return ""
