"""The port to the store that keeps leases and members."""

from collections.abc import Collection
from typing import Protocol

from tailrace.model.lease import Lease, LeaseTable, Member


class LeaseStore(Protocol):
    """Keeps leases, which are never deleted, and members. Times are by the store's clock.

    No method may block the event loop. A failure is :class:`tailrace.errors.LeaseError`. The
    command may have taken effect nevertheless: read the store before anything else.
    """

    async def prepare(self, scopes: Collection[str]) -> None:
        """Creates a free lease with epoch 0 for each scope without one; removes dead members."""

    async def read(self) -> LeaseTable:
        """All leases, and the members whose last heartbeat is recent enough. Reads only what
        cannot be rolled back. Writes nothing; a store that was never prepared has no leases.
        """

    async def acquire(self, seen: Lease, owner: str, epoch: int, seconds: float) -> bool:
        """Acquires the lease for ``seconds``, with a greater ``epoch``; returns True on success.

        It succeeds if the lease still has the epoch of ``seen``, and is free or already the
        owner's.
        """

    async def renew(
        self, owner: str, scopes: Collection[str], seconds: float, heartbeat: Member | None = None
    ) -> int:
        """Renews the owner's leases of these scopes for ``seconds``, and a member's heartbeat.

        Returns how many leases were renewed. An expired lease, or another owner's, is not renewed.
        """

    async def release(self, scope: str, owner: str, epoch: int) -> None:
        """Frees the lease, if it has this owner and this epoch."""

    async def free(self, seen: Lease, epoch: int) -> bool:
        """Takes the lease from its owner, alive or not, and frees it with a greater ``epoch``.

        It succeeds if the lease still has the owner and the epoch of ``seen``.
        """

    async def request(self, seen: Lease, member: str) -> None:
        """Requests that the owner in ``seen`` hands the scope over to a member."""

    async def leave(self, member: str) -> None:
        """Removes the member."""
