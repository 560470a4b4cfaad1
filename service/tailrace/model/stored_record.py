"""The common base of checkpoints and gaps as records of a store."""

from typing import Any, ClassVar, Self

from tailrace.errors import CheckpointCorrupt
from tailrace.model.record_codec import document, instance

FORMAT = 1
"""The version of the stored records. A store never guesses the meaning of another version."""


class StoredRecord:
    """A frozen dataclass that stores keep for a scope."""

    __slots__ = ()
    scope: str
    NAME: ClassVar[str]
    REMEDY: ClassVar[str]
    """What to do about an unreadable record if there is no backup."""

    def to_document(self) -> dict[str, Any]:
        """The record to store. :meth:`from_document` reads it."""
        return {"format": FORMAT, **document(self)}

    @classmethod
    def from_document(cls, document: Any, *, where: str) -> Self:
        """Reads what :meth:`to_document` wrote; raises :class:`CheckpointCorrupt` for others."""
        try:
            record = instance(cls, document, FORMAT)
            record.check()
        except ValueError as error:
            raise cls.unreadable(where, str(error)) from error
        return record

    def check(self) -> None:
        """Raises ``ValueError`` for what the fields only show together."""

    @classmethod
    def unreadable(cls, where: str, reason: str) -> CheckpointCorrupt:
        """The error for a record that is damaged or belongs to another scope."""
        return CheckpointCorrupt(
            f"{where}: the {cls.NAME} cannot be read: {reason}. Nothing was changed. Restore the "
            f"store from a backup, or {cls.REMEDY}"
        )
