"""A snapshot of documents in place of their dead letters.

A handler that stores its own position takes no earlier change again: that would set the position
back. The rows of a snapshot come in the stream, and bring the documents as they are.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import anyio
from bson import json_util

from tailrace.control.desired_state import apply_change
from tailrace.control.outcome import ActionRefused
from tailrace.control.snapshots import require_handled, rows_begun, start_of
from tailrace.control.subject import Subject
from tailrace.engine import Watcher
from tailrace.engine.handle.letter_queues import Report, event_of, in_order
from tailrace.engine.ports import DeadLetterStore, DesiredStateStore
from tailrace.event import ChangeEvent
from tailrace.model.dead_letter import LetterHead, LetterQueue, LetterUnreadable
from tailrace.model.snapshot import SnapshotRequest

BY_SNAPSHOT = (
    "would be discarded for a snapshot of their documents, which the scope's handlers get: this "
    "handler stores its own position, and takes no earlier change"
)
_MOST_DOCUMENTS = 500
"""So many documents a snapshot: each checkpoint holds its filter until it is over."""
_RESUME_SECONDS = 2.0
"""How long a request that fails, or is ended by a stop, tries to let its snapshot begin."""
_NO_DOCUMENT = "failed: its event names no document: apply it by hand, then discard the dead letter"
_DELETED = (
    "failed: its document was deleted, and a snapshot has no row of it: remove it from the "
    "destination by hand, then discard the dead letter"
)


@dataclass(frozen=True, slots=True)
class LetterSnapshot:
    """For the dead letters of one scope, which ``watcher`` follows."""

    watcher: Watcher
    store: DeadLetterStore
    desired_states: DesiredStateStore
    by: str
    lock: anyio.Lock
    """Held while a request is made of what is under way, and stored."""

    async def instead(self, queues: Sequence[LetterQueue], report: Report) -> None:
        """Discards the dead letters of these queues for a snapshot of their documents.

        The request is stored before a letter is discarded, paused, and begins after that: a row of
        a document whose letters wait would become a letter behind them. Whatever ends the process,
        the letters still wait or the snapshot is still there. If not all can be discarded, it
        begins nevertheless: it has the documents of those that were. Raises
        :class:`ActionRefused`, and the errors of the store.
        """
        letters, ids, collections = list[LetterHead](), list[object](), set[str]()
        for queue in queues[:_MOST_DOCUMENTS]:
            heads = await in_order(self.store, await self.store.queue(queue))
            try:
                event = await self._event(heads[-1]) if heads else None
            except LetterUnreadable as error:
                report(heads[-1], f"failed: {error}")
                continue
            key = event.document_key if event is not None else None
            if event is None or event.ns is None or not key or "_id" not in key:
                for head in heads[:1]:
                    report(head, _NO_DOCUMENT)
            elif event.operation_type == "delete":
                report(heads[-1], _DELETED)
            else:
                letters += heads
                ids.append(key["_id"])
                collections.add(str(event.ns))
        if not letters:
            return
        async with self.lock:
            wanted = self._request(tuple(sorted(collections)), ids)
            await self._apply(replace(wanted, paused=True))
        try:
            for head in letters:
                if await self.store.resolve(head, "discarded"):
                    report(head, "discarded for a snapshot of its document")
        except BaseException:
            with suppress(ActionRefused), anyio.move_on_after(_RESUME_SECONDS, shield=True):
                await self._apply(wanted)
            raise
        try:
            await self._apply(wanted)
        except ActionRefused as error:
            name = self.watcher.name
            message = f"snapshot {wanted.id} has the documents of {len(letters)} dead letters that "
            message += f"were discarded, and may still be paused: {error}. When the store answers, "
            message += f"'tailrace snapshot resume {name}' lets it begin"
            raise ActionRefused(503, f"scope {name!r}: {message}") from error

    async def _apply(self, wanted: SnapshotRequest) -> None:
        changes = {"snapshot": wanted}
        await apply_change(self.desired_states, self.watcher, self.by, changes)

    async def _event(self, head: LetterHead) -> ChangeEvent | None:
        letter = await self.store.read(head)
        return event_of(letter) if letter is not None else None

    def _request(self, collections: tuple[str, ...], ids: Sequence[object]) -> SnapshotRequest:
        text = json_util.dumps({"_id": {"$in": ids}}, json_options=json_util.CANONICAL_JSON_OPTIONS)
        subject = Subject(self.watcher)
        try:
            wanted = start_of(subject, rows_begun(subject, "start"), collections, text)
        except ValueError as error:
            raise ActionRefused(422, str(error)) from error
        if isinstance(wanted, str):
            raise ActionRefused(409, f"scope {self.watcher.name!r}: {wanted}")
        require_handled(subject)
        return wanted
