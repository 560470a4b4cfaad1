"""What happens to copies when collections are dropped or renamed, and around a snapshot."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from pymongo.errors import OperationFailure

from tailrace.destination import Rename, ScopeContext, SnapshotBarrier, ddl_mark
from tailrace.destinations.mongodb.outcomes import NAMESPACE_NOT_FOUND
from tailrace.destinations.mongodb.run import DestinationRun
from tailrace.destinations.mongodb.statements import Change, changes
from tailrace.errors import PermanentError
from tailrace.event import ChangeEvent, Namespace
from tailrace.event.bson import encoded
from tailrace.event.document_key import identities
from tailrace.event.snapshot_barrier import REFUSED
from tailrace.model import Scope


@dataclass(frozen=True, slots=True)
class Barriers:
    """Handles the events of one run that are not about a document, by the policy ``ddl``.

    ``copy_of`` names the copy of a collection, and ``copy`` makes it. An event may be repeated
    after a crash: the last one that was applied is noted beside the position.
    """

    run: DestinationRun
    copy_of: Callable[[Namespace], Namespace]
    policy: Literal["follow", "keep", "refuse"]
    copy: Callable[[Namespace], Awaitable[Namespace]]
    follows: Scope
    scope: ScopeContext

    async def handle(self, event: ChangeEvent) -> None:
        """Raises the driver's errors, and :class:`PermanentError` for what is refused."""
        match event.operation_type:
            case "snapshotBegin":
                await self.begin_snapshot(event)
            case "snapshotEnd":
                await self.end_snapshot(event)
            case "drop" | "rename":
                await self.change_collection(event)

    async def change_collection(self, event: ChangeEvent) -> None:
        """Drops or renames a copy. After ``dropDatabase`` nothing is left to do: each collection
        has had a ``drop`` of its own."""
        source, kind = event.ns, event.operation_type
        rename = Rename.of(event, self.follows)
        if rename is not None:
            rename.warn(self.scope)
        if self.policy == "keep" or source is None:
            return
        if self.policy == "refuse":
            raise PermanentError(
                f"the {kind} of {source} is refused (ddl: refuse). With keep its copy stays as it "
                "is, with follow the same happens to it"
            )
        position, mark = self.run.position, ddl_mark(event)
        await position.require()
        if position.ddl is not None and position.ddl >= mark:
            return  # repeated
        if rename is None or (rename.leaves and not rename.arrives):
            await self._drop(source)
        elif rename.leaves and await self._has(source):
            await self._rename(source, rename.to)
        elif rename.arrives:
            await self._drop(rename.to)  # what it replaced
        await position.note_ddl(mark)
        if rename is not None and rename.leaves:
            await self._forget(source)  # not before: the event may come again

    async def _has(self, source: Namespace) -> bool:
        return await self.run.registry.has(self.copy_of(source), source)

    async def _drop(self, source: Namespace) -> None:
        """Drops the copy of a collection, if there is one."""
        if await self._has(source):
            copy = self.copy_of(source)
            await self.run.cluster.database(copy.db).drop_collection(str(copy.coll))
            await self._forget(source)

    async def _rename(self, source: Namespace, new: Namespace) -> None:
        copy, to = map(self.copy_of, (source, new))
        if to == copy:
            return
        await self.copy(new)
        command = {"renameCollection": str(copy), "to": str(to), "dropTarget": True}
        try:
            await self.run.cluster.client.admin.command(command)
        except OperationFailure as error:
            if error.code != NAMESPACE_NOT_FOUND:
                raise
        if self.run.sweeps:
            await self.run.unseen.rename(copy, to)

    async def _forget(self, source: Namespace) -> None:
        if await self._has(source):
            await self.run.registry.forget(self.copy_of(source))
        self.run.copies.pop(source, None)

    async def begin_snapshot(self, event: ChangeEvent) -> None:
        snapshot, noted = SnapshotBarrier.of(event), self.run.position.snapshot
        if noted is not None and noted["id"] == snapshot.id:
            return  # repeated: some rows may be there already
        await self.run.position.require()
        for source, states in snapshot.states.items():
            if states != {REFUSED}:  # a view, a time series, or capped
                await self.copy(source)
        some = [] if snapshot.filtered else await self._copies_of(event.ns)
        copies = [copy for source, copy in some if snapshot.reads(source)]
        unseen = await self.run.unseen.begin(copies)
        await self.run.position.note({"id": snapshot.id, "unseen": unseen})

    async def end_snapshot(self, event: ChangeEvent) -> None:
        snapshot, noted = SnapshotBarrier.of(event), self.run.position.snapshot
        if noted is None or noted["id"] != snapshot.id:
            return  # repeated
        spared, follows = identities(self.scope.dead_letter_keys), self.policy == "follow"
        if self.run.sweeps:
            for source, copy in await self._copies_of(event.ns):
                if not snapshot.is_complete(source, dropped=follows):
                    continue
                # Rows of documents with dead letters did not come: what the copy has stays.
                held = [encoded(element) for element in spared.get(source, ())]
                await self.run.transact(self.run.unseen.named(copy, held))
                while keys := await self.run.unseen.page(copy):
                    gone = [Change(-1, key, None) for key in keys]
                    plan = [*changes(copy, gone), *self.run.unseen.named(copy, keys)]
                    await self.run.transact(plan)
        await self.run.unseen.end()
        await self.run.position.note(None)

    async def _copies_of(self, target: Namespace | None) -> list[tuple[Namespace, Namespace]]:
        """The collections of a scope's target that have copies of this handler, and the copies."""
        database, coll = target or (None, None)
        found = []
        for source, name in await self.run.registry.of(database, coll):
            copy = self.copy_of(source)
            if str(copy) == name:
                found.append((source, copy))
        return found
