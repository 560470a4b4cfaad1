"""What the leases ask of a store."""

from collections.abc import Collection
from typing import Protocol

from tailrace.model.lease import Lease, Member, Sharing


class LeaseStore(Protocol):
    """Leases, which are never deleted, and the members. Times are by the store's clock.

    A lease's name is that of a scope, or :func:`tailrace.model.lease.replay_lease` of one.

    No method may block the event loop. A failure is :class:`tailrace.errors.LeaseError`; whether it
    took effect is not known then: read before anything else.
    """

    async def prepare(self, scopes: Collection[str]) -> None:
        """Makes a free lease of epoch 0 for each scope that has none; forgets dead members."""

    async def read(self) -> Sharing:
        """All leases, and the members whose last heartbeat still counts; nothing that may yet be
        taken back. Writes nothing; a store that was never prepared has no leases.
        """

    async def acquire(self, seen: Lease, owner: str, epoch: int, seconds: float) -> bool:
        """Takes the lease for so long, with a greater ``epoch``; says whether it was to be had.

        It is if its epoch is still that of ``seen`` and it is free, or the owner's already.
        """

    async def renew(
        self, owner: str, scopes: Collection[str], seconds: float, heartbeat: Member | None = None
    ) -> int:
        """So many seconds more for the owner's leases of these scopes, and for a member.

        Returns how many leases were renewed: none that has run out is, nor another owner's.
        """

    async def release(self, scope: str, owner: str, epoch: int) -> None:
        """Frees the lease, if it is the owner's with that epoch."""

    async def ask(self, seen: Lease, member: str) -> None:
        """Asks the owner that was seen to hand the scope over to a member."""

    async def leave(self, member: str) -> None:
        """Forgets the member."""
