"""One scope's landing: where it stands, and the next segment. Everything here blocks.

A process begins with a segment without rows, which claims the scope: its epoch is one more than
that of the newest segment, and nobody else's, since a number is taken only once. A process that was
there before finds its next number taken by a newer epoch, and is fenced.

The newest segment is the position, so there is nothing to save beside the data. After a write whose
outcome is unknown (a connection that broke, a directory that could not be synced), as after any
error, the newest segment is looked up again: it says whether the write was done.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

import structlog
from bson.timestamp import Timestamp

from tailrace.engine import Owner
from tailrace.errors import (
    CheckpointError,
    CheckpointFenced,
    DestinationUnavailable,
    ScopeHalted,
    advice,
)
from tailrace.event.bson_walk import TIMESTAMP, UINT64, document_at, elements
from tailrace.handlers.parquet.segment_writer import SegmentWriter
from tailrace.lake.lake import Lake
from tailrace.lake.segment import Documents, Footer, segment_name
from tailrace.model import ResumeToken, SinkPosition
from tailrace.model.cluster import ClusterIdentity
from tailrace.model.gap import Gap


class Landing:
    """Lands one scope. Call :meth:`begin` first, and again for each run of its watcher.

    An error makes what was taken in void, until the next :meth:`begin`.
    """

    def __init__(self, lake: Lake, scope: str, documents: Documents) -> None:
        self._lake = lake
        self._scope = scope
        self._documents = documents
        self._writer = uuid.uuid4().hex
        self._epoch = 0
        self._next = 0
        self._ordinal = 0
        self._token: ResumeToken | None = None
        self._time: Timestamp | None = None
        self._fingerprint = ""
        self._owner = Owner(scope, "", "", 0)
        self._segment: SegmentWriter | None = None
        self._begun = False
        self._log = structlog.get_logger().bind(scope=scope)

    def begin(self, owner: Owner) -> SinkPosition | None:
        """Looks for the newest segment, and claims the scope where this process has not yet.

        What a crash left unfinished is removed behind the claim, whose number it wanted at most.
        Raises :class:`tailrace.errors.SegmentUnreadable`, :class:`CheckpointFenced` and
        :class:`ScopeHalted` where a person must look, and :class:`CheckpointError` for what may
        pass.
        """
        self._owner = owner
        self._give_up()
        newest = self._newest()
        if newest is not None:
            self._require_cluster(newest)
            if 0 < self._epoch < newest.epoch:
                raise self._fenced(newest)
        self._go_on_behind(newest)
        if not self._epoch:
            self._claim(newest)
        with self._storage("what a crash left unfinished could not be removed"):
            self._lake.storage.tidy(self._scope)
        self._begun = True
        if self._token is None:
            return None
        return SinkPosition(self._token, self._time, self._fingerprint)

    def _newest(self) -> Footer | None:
        with self._storage("the newest segment could not be looked up"):
            self._lake.require_identity()
            numbers = self._lake.segments(self._scope)
            return self._lake.footer(self._scope, numbers[-1]) if numbers else None

    def _go_on_behind(self, newest: Footer | None) -> None:
        self._next = newest.segment + 1 if newest else 0
        self._ordinal = newest.last_ordinal + 1 if newest else 0
        self._token = newest.token if newest else None
        self._time = newest.cluster_time if newest else None
        self._fingerprint = newest.fingerprint if newest else ""

    def _claim(self, newest: Footer | None) -> None:
        epoch = newest.epoch + 1 if newest else 1
        claim = self._without_rows(epoch)
        try:
            self._finish(self._new_segment(), claim)
        except CheckpointFenced as error:
            raise CheckpointError(
                f"scope {self._scope!r}: another process wrote segment {claim.segment} just now: "
                "looking again"
            ) from error
        self._epoch = epoch

    @property
    def held(self) -> int:
        """Bytes in memory of what was taken in."""
        return self._segment.held if self._segment is not None else 0

    def take(self, events: Iterable[bytes]) -> None:
        """Takes events in for the next segment.

        Raises :class:`ScopeHalted` for an event that is none, and :class:`CheckpointError` for what
        may pass, also where something failed since :meth:`begin`: else what was taken in before
        would be skipped.
        """
        with self._whole():
            if self._segment is None:
                self._segment = self._new_segment()
            with self._writing():
                self._segment.add(events)

    def commit(self) -> None:
        """Writes the segment of all that was taken in.

        Raises as :meth:`take` does, and :class:`CheckpointFenced`.
        """
        with self._whole():
            if self._segment is None:
                return
            token, time = _last(self._segment.last)
            self._finish(self._segment, self._footer(len(self._segment), token, time))
            self._token, self._time, self._fingerprint = token, time, self._owner.fingerprint
            self._segment = None

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """An error leaves nothing taken in, and says what is no event."""
        if not self._begun:
            raise CheckpointError(
                f"lake {self._lake.path}: scope {self._scope!r}: what was taken in before an error "
                "is void: it is read again. What was landed is intact"
            )
        whole = False
        try:
            yield
            whole = True
        except ValueError as error:
            raise ScopeHalted(
                f"scope {self._scope!r}: an event behind token "
                f"{self._token.digest if self._token else 'none'} cannot be landed: {error}"
            ) from error
        finally:
            if not whole:
                self._give_up()

    def record(self, gap: Gap) -> None:
        """Writes a segment without rows that says what was skipped before the next one."""
        self._finish(self._new_segment(), self._without_rows(self._epoch, gap))

    def _new_segment(self) -> SegmentWriter:
        draft = self._lake.storage.create(f"{self._scope}/{segment_name(self._next)}")
        return SegmentWriter(draft, self._scope, self._next, self._ordinal, self._documents)

    def _give_up(self) -> None:
        """What was taken in is void."""
        segment, self._segment, self._begun = self._segment, None, False
        if segment is not None:
            segment.discard()

    def _without_rows(self, epoch: int, gap: Gap | None = None) -> Footer:
        """Its token stays that of the last landed event, and so does what the token belongs to."""
        return replace(
            self._footer(0, self._token, self._time),
            epoch=epoch,
            fingerprint=self._fingerprint if self._token else self._owner.fingerprint,
            gap=gap.to_document() if gap else None,
        )

    def _footer(self, rows: int, token: ResumeToken | None, time: Timestamp | None) -> Footer:
        return Footer(
            lake=self._lake.id,
            scope=self._scope,
            segment=self._next,
            rows=rows,
            first_ordinal=self._ordinal,
            last_ordinal=self._ordinal + rows - 1,
            token=token,
            cluster_time=time,
            cluster=self._owner.cluster,
            fingerprint=self._owner.fingerprint,
            epoch=self._epoch,
            documents=self._documents,
            writer=self._writer,
        )

    def _finish(self, segment: SegmentWriter, footer: Footer) -> None:
        with self._writing():
            try:
                segment.finish(footer)
            except FileExistsError as error:
                taken = self._lake.footer(self._scope, footer.segment)
                if taken != footer:
                    raise self._fenced(taken) from error
                self._lake.storage.tidy(self._scope)
            finally:
                segment.discard()
        self._next += 1
        self._ordinal += footer.rows
        self._log.debug(
            "segment.landed", segment=footer.segment, rows=footer.rows, bytes=segment.size
        )

    def _writing(self) -> AbstractContextManager[None]:
        return self._storage(f"segment {self._next} could not be written")

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
    def _storage(self, what: str) -> Iterator[None]:
        """The storage's errors are no event's fault, and may pass."""
        try:
            yield
        except OSError as error:
            reason = error.strerror or str(error)
            help_ = advice(error) or "it is tried again"
            raise DestinationUnavailable(
                f"lake {self._lake.path}: scope {self._scope!r}: {what}: {reason}: {help_}. What "
                "was landed is intact"
            ) from error


def _last(event: bytes) -> tuple[ResumeToken, Timestamp | None]:
    """Token and time of an event. Raises ``ValueError`` where it is no BSON or has no token."""
    fields = elements(event, 0)
    if b"_id" not in fields:
        raise ValueError("it has no resume token")
    token = ResumeToken(document_at(event, fields[b"_id"][1]))
    kind, at = fields.get(b"clusterTime", (0, 0))
    if kind != TIMESTAMP:
        return token, None
    time = UINT64(event, at)[0]
    return token, Timestamp(time >> 32, time & 0xFFFFFFFF)
