"""Writes one scope to segments. The newest segment is the scope's position; nothing else is saved.

A new owner of the scope first writes a segment without rows, which claims the scope: its epoch is
one more than the newest segment's. Each segment number can be used only once, so no other process
gets the same epoch. The previous owner then finds its next number used by a newer epoch, and is
fenced. It may write again after it owns the scope again, which can happen with replicas.

After an error the newest segment is looked up again: it shows whether the write succeeded.
"""

import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import structlog

from tailrace.destination import RunIdentity
from tailrace.errors import (
    CheckpointError,
    CheckpointFenced,
    ScopeHalted,
    Unavailable,
    advice,
)
from tailrace.event import ChangeEvent
from tailrace.lake.segment import Documents, Footer, segment_name
from tailrace.lake.segment_writer import SegmentWriter
from tailrace.lake.writable_lake import WritableLake
from tailrace.model import SinkPosition
from tailrace.model.cluster import ClusterIdentity
from tailrace.model.gap import Gap


class Landing:
    """Writes one scope to the lake. Every method blocks.

    Call :meth:`begin` at the start of each run of the scope, and after an error: an error discards
    all appended events.
    """

    def __init__(self, lake: WritableLake, scope: str, documents: Documents) -> None:
        self._lake = lake
        self._scope = scope
        self._before_all = Footer(
            lake=lake.id,
            scope=scope,
            segment=-1,
            rows=0,
            first_ordinal=0,
            last_ordinal=-1,
            token=None,
            cluster_time=None,
            cluster="",
            fingerprint="",
            epoch=0,
            documents=documents,
            writer=uuid.uuid4().hex,
        )
        self._newest = self._before_all
        self._epoch = 0
        self._owner = RunIdentity(scope, "", "", 0)
        self._segment: SegmentWriter | None = None
        self._begun = False

    def begin(self, owner: RunIdentity) -> SinkPosition | None:
        """Looks up the newest segment, and claims the scope if the owner has not done so yet.

        Removes files that a crash left unfinished. Raises :class:`SegmentUnreadable`,
        :class:`CheckpointFenced` or :class:`ScopeHalted` if manual intervention is required, and
        :class:`CheckpointError` if a retry may succeed.
        """
        if owner.epoch > self._owner.epoch:
            self._epoch = 0  # another process may have owned the scope meanwhile
        self._owner = owner
        self._discard()
        newest = self._look_up()
        if newest.segment >= 0:
            self._require_cluster(newest)
        if 0 < self._epoch < newest.epoch:
            raise self._fenced(newest)
        self._newest = newest
        if not self._epoch:
            self._claim()
        with self._storage("what a crash left unfinished could not be removed"):
            self._lake.storage.tidy(self._scope)
        self._begun = True
        if newest.token is None and newest.snapshot is None:
            return None
        return SinkPosition(newest.token, newest.cluster_time, newest.fingerprint, newest.snapshot)

    def probe_begin(self, owner: RunIdentity) -> int:
        """Checks what :meth:`begin` needs, and claims nothing.

        Returns the number of the newest segment, -1 if there is none. Raises as :meth:`begin`.
        """
        self._owner = owner
        newest = self._newest = self._look_up()
        if newest.segment >= 0:
            self._require_cluster(newest)
            name = f"{self._scope}/{segment_name(newest.segment + 1)}"
            with self._storage():
                draft = self._lake.storage.create(name)
                try:
                    draft.write(b"tried")
                finally:
                    draft.discard()
        return newest.segment

    @property
    def held(self) -> int:
        """The size in bytes of the appended events that are in memory."""
        return self._segment.held if self._segment is not None else 0

    def append(self, events: Iterable[bytes]) -> None:
        """Appends events to the next segment. Raises :class:`ScopeHalted` if one is not an event.

        After an error every call raises until :meth:`begin`, or events would be skipped.
        """
        with self._all_or_nothing():
            if self._segment is None:
                self._segment = self._new_segment()
            with self._storage():
                self._segment.add(events)

    def commit(self) -> None:
        """Writes the appended events as a segment."""
        with self._all_or_nothing():
            if self._segment is None:
                return
            footer, rows = self._next(), len(self._segment)
            footer = replace(footer, rows=rows, last_ordinal=footer.last_ordinal + rows)
            if stored := self._segment.rows.stored():
                footer = replace(footer, snapshot=stored.merged(footer.snapshot))
            if self._segment.last:
                last = ChangeEvent(self._segment.last)
                footer = replace(
                    footer,
                    token=last.token,
                    cluster_time=last.cluster_time,
                    fingerprint=self._owner.fingerprint,
                )
            self._finish(self._segment, footer)
            self._segment = None

    def record(self, gap: Gap) -> None:
        """Writes a segment without rows that records the changes skipped here."""
        self._finish(self._new_segment(), replace(self._next(), gap=gap.to_document()))

    def _look_up(self) -> Footer:
        with self._storage("the newest segment could not be looked up"):
            self._lake.require_identity()
            numbers = self._lake.segments(self._scope)
            return self._lake.footer(self._scope, numbers[-1]) if numbers else self._before_all

    def _claim(self) -> None:
        claim = replace(self._next(), epoch=self._newest.epoch + 1)
        try:
            self._finish(self._new_segment(), claim)
        except CheckpointFenced as error:
            raise CheckpointError(
                f"scope {self._scope!r}: another process wrote segment {claim.segment} just now: "
                "looking again"
            ) from error
        self._epoch = claim.epoch

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Discards all appended events on an error."""
        if not self._begun:
            raise CheckpointError(
                f"lake {self._lake.path}: scope {self._scope!r}: the events before an error were "
                "discarded and are read again. What was landed is intact"
            )
        try:
            yield
        except BaseException as error:
            self._discard()
            if not isinstance(error, ValueError):
                raise
            token = self._newest.token
            raise ScopeHalted(
                f"scope {self._scope!r}: an event after token {token.digest if token else 'none'} "
                f"cannot be landed: {error}"
            ) from error

    def _discard(self) -> None:
        segment, self._segment, self._begun = self._segment, None, False
        if segment is not None:
            segment.discard()

    def _new_segment(self) -> SegmentWriter:
        footer = self._next()
        name = f"{self._scope}/{segment_name(footer.segment)}"
        return SegmentWriter(self._lake.storage.create(name), footer)

    def _next(self) -> Footer:
        """The footer of the next segment, without rows: it keeps the token of the newest one."""
        newest, ours = self._newest, self._before_all
        return replace(
            newest,
            segment=newest.segment + 1,
            rows=0,
            first_ordinal=newest.last_ordinal + 1,
            cluster=self._owner.cluster,
            fingerprint=newest.fingerprint if newest.token else self._owner.fingerprint,
            epoch=self._epoch,
            documents=ours.documents,
            gap=None,
            writer=ours.writer,
            owner_epoch=self._owner.epoch,
        )

    def _finish(self, segment: SegmentWriter, footer: Footer) -> None:
        with self._storage():
            try:
                segment.finish(footer)
            except FileExistsError as error:
                stored = self._lake.footer(self._scope, footer.segment)
                if stored != footer:
                    raise self._fenced(stored) from error
                self._lake.storage.tidy(self._scope)
            finally:
                segment.discard()
        self._newest = footer
        structlog.get_logger().debug(
            "segment.landed", scope=self._scope, segment=footer.segment, rows=footer.rows
        )

    def _require_cluster(self, newest: Footer) -> None:
        theirs, ours = map(ClusterIdentity.parse, (newest.cluster, self._owner.cluster))
        if not theirs.may_be(ours):
            raise ScopeHalted(
                f"scope {self._scope!r}: {self._where(newest)} was landed from the cluster "
                f"{theirs}, and mongodb.uri leads to {ours}. A token of another cluster can skip "
                "changes silently. Correct the URI, or choose another path for the lake"
            )

    def _fenced(self, other: Footer) -> CheckpointFenced:
        return CheckpointFenced(
            f"scope {self._scope!r}: {self._where(other)} was written by another process (its "
            f"epoch is {other.epoch}, ours {self._epoch}), which lands this scope now. Nothing was "
            "written twice. Stop one of the two; restart this one to let it land again"
        )

    def _where(self, footer: Footer) -> str:
        return self._lake.where(self._scope, footer.segment)

    @contextmanager
    def _storage(self, failed: str = "") -> Iterator[None]:
        """Raises errors of the storage as ``Unavailable``: no event is at fault."""
        try:
            yield
        except OSError as error:
            what = failed or f"segment {self._newest.segment + 1} could not be written"
            reason = error.strerror or str(error)
            help_ = advice(error) or "it is tried again"
            raise Unavailable(
                f"lake {self._lake.path}: scope {self._scope!r}: {what}: {reason}: {help_}. What "
                "was landed is intact"
            ) from error
