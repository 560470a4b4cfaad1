"""The store of verifications. The adapters are in :mod:`tailrace.stores`."""

from collections.abc import Sequence
from typing import Protocol

from tailrace.model.verification import Verification


class VerificationStore(Protocol):
    """Remembers the last verification of each handler of a scope.

    A temporary failure raises :class:`tailrace.errors.CheckpointError`. A record that cannot be
    read counts as none: another verification replaces it.
    """

    async def load(self, scope: str) -> Sequence[Verification]:
        """Those of a scope, by the names of the handlers."""

    async def save(self, verification: Verification) -> None:
        """Stores it in place of the last one of its handler.

        Raises :class:`tailrace.errors.CheckpointFenced` if that is of a greater epoch.
        """
