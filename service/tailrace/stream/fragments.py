"""Joins the fragments of split events.

With ``$changeStreamSplitLargeEvent`` as the last stage, the server splits an event above 16 MB by
its top-level fields into fragments, each with its own ``_id`` and ``splitEvent: {fragment, of}``.
The fragments may span replies and resumes. The joined event has the last fragment's token.
"""

from collections.abc import Sequence

from tailrace.errors import StreamBeganInMidEvent, StreamError
from tailrace.event.batch import Slice, join
from tailrace.event.bson import DOCUMENT, INT32, INT32_TYPE, document_at, elements, encoded, spans
from tailrace.model import ResumeToken

_Fragment = tuple[int, int]
"""``fragment`` (from 1) and ``of``."""


class Joiner:
    """Holds the fragments of an incomplete event until the last one comes."""

    def __init__(self, scope: str) -> None:
        self._scope = scope
        self._parts: list[bytes] = []
        self._of = 0

    @property
    def holds_part(self) -> bool:
        """Whether an event is incomplete: no position may be saved now."""
        return bool(self._parts)

    def join(self, buffer: bytes, bounds: Sequence[int]) -> tuple[bytes, list[int]]:
        """Buffer and bounds of a reply's whole events; raises if a fragment is missing."""
        whole: list[bytes] = []
        for raw in Slice(buffer, bounds).raw():
            fragment = _fragment(raw)
            if fragment is None:
                if self._parts:
                    raise StreamError(
                        f"scope {self._scope!r}: a split event ended after fragment "
                        f"{len(self._parts)} of {self._of}"
                    )
                whole.append(raw)
            elif self._add(raw, fragment):
                whole.append(_merged(self._parts))
                self._parts = []
        return join(whole)

    def _add(self, raw: bytes, fragment: _Fragment) -> bool:
        """Adds a fragment; returns True if it was the last one of its event."""
        number, of = fragment
        if number == 1:
            self._parts = []  # after a resume the server may send the event again
            self._of = of
        elif not self._parts:
            token = ResumeToken(document_at(raw, elements(raw, 0)[b"_id"][1]))
            raise StreamBeganInMidEvent(
                f"scope {self._scope!r}: the stream begins with fragment {number} of {of}: it has "
                "to begin before that event",
                token.cluster_time,
            )
        elif fragment != (len(self._parts) + 1, self._of):
            raise StreamError(
                f"scope {self._scope!r}: after fragment {len(self._parts)} of {self._of} of a "
                f"split event came fragment {number} of {of}"
            )
        self._parts.append(raw)
        return number == of


def _fragment(raw: bytes) -> _Fragment | None:
    """Which fragment this is; ``None`` if ``splitEvent`` is missing or not of the server's form."""
    kind, at = elements(raw, 0).get(b"splitEvent", (0, 0))
    if kind != DOCUMENT:
        return None
    fields = elements(raw, at)
    (kind, number), (other, of) = (fields.get(name, (0, 0)) for name in (b"fragment", b"of"))
    if kind != INT32_TYPE or other != INT32_TYPE:
        return None
    return int(INT32(raw, number)[0]), int(INT32(raw, of)[0])


def _merged(parts: list[bytes]) -> bytes:
    """One event with all fields and the last token, without ``splitEvent``."""
    fields: dict[bytes, bytes] = {}
    for raw in parts:
        for name, (_, begin, end) in spans(raw, 0).items():
            if name != b"splitEvent":
                fields[name] = raw[begin:end]
    return encoded(b"".join(fields.values()))
