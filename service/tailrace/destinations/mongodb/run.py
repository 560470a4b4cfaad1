"""What one scope writes with: a session, and transactions with the position in them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import anyio
from pymongo import ReadPreference
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.errors import DocumentTooLarge
from pymongo.read_concern import ReadConcern

from tailrace.destination import Batch
from tailrace.destinations.mongodb.cluster import CLOSING_SECONDS, CODEC, Cluster
from tailrace.destinations.mongodb.outcomes import TOO_LARGE, Rejected
from tailrace.destinations.mongodb.state import Copies, PositionDocument
from tailrace.destinations.mongodb.statements import BulkWrite
from tailrace.destinations.mongodb.sweep import Unseen
from tailrace.event import Namespace


@dataclass(slots=True, eq=False)
class DestinationRun:
    """What one scope writes with, from one ``begin`` to the next."""

    cluster: Cluster
    session: AsyncClientSession
    position: PositionDocument
    unseen: Unseen
    source: str
    """The cluster that the scope follows."""
    copies: dict[Namespace, Namespace] = field(default_factory=dict)
    """The copies that were registered, by source."""

    @property
    def registry(self) -> Copies:
        """Which copies there are."""
        return Copies(self.cluster, self.position.database)

    @property
    def sweeps(self) -> bool:
        """Whether documents that rows and changes name leave the list of unseen ones."""
        snapshot = self.position.snapshot
        return snapshot is not None and bool(snapshot["unseen"])

    async def transact(self, plan: Iterable[BulkWrite], batch: Batch | None = None) -> None:
        """Runs the commands in a transaction, with the batch's position if there is a batch."""
        session = self.session
        await session.start_transaction(
            ReadConcern("local"), self.cluster.concern, ReadPreference.PRIMARY
        )
        try:
            if batch is None:
                await self.position.require(session)
            else:
                await self.position.move(session, batch.former, batch.position, batch[0])
            for command in plan:
                await self._send(command)
            await session.commit_transaction()
        except BaseException:
            with anyio.move_on_after(CLOSING_SECONDS, shield=True):
                if session.in_transaction:
                    await session.abort_transaction()
            raise
        if batch is not None:
            self.position.text = batch.position

    async def _send(self, command: BulkWrite) -> None:
        """Runs one command in the transaction. Raises :class:`Rejected` for a statement."""
        target = command.target
        try:
            database = self.cluster.database(target.db)
            reply: dict[str, Any] = await database.command(
                command.body, session=self.session, codec_options=CODEC
            )
        except DocumentTooLarge as error:
            index = command.indices[0] if len(command.indices) == 1 else -1
            raise Rejected(str(target), index, {"code": TOO_LARGE, "errmsg": str(error)}) from error
        for write_error in reply.get("writeErrors", ()):
            raise Rejected(str(target), command.indices[write_error["index"]], write_error)
