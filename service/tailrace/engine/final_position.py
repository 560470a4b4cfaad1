"""Determines, to the single event, what is handled when a run ends: a clean stop repeats nothing.

The watermark moves by whole places. At the end each lane tells which events of its opened places
are not handled. The final position is after the last event with nothing unhandled before it. What
single handlers have handled beyond it is noted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from bson.timestamp import Timestamp

from tailrace.engine.handle.lane import Lane
from tailrace.engine.position.watermark import Place, Watermark, after_event
from tailrace.model import Position, Progress, ResumeToken

MOST_NOTED = 250_000
"""The most single events that a checkpoint notes; handled events beyond this number come again. A
record of so many has 3 MB; MongoDB accepts 16."""


def final_position(watermark: Watermark, lanes: Sequence[Lane]) -> Position:
    """The position to save when a run ends. With whole transactions it is never inside a place."""
    places = [place for place in watermark.places if place.events]
    parts = {lane.delivery.name: _Part(lane) for lane in lanes}
    position = watermark.position
    if (
        places
        and not places[0].rows
        and not any(lane.delivery.handler.whole_transactions for lane in lanes)
    ):
        position = _inside(position, places[0], parts.values())
    sink_digests, room = dict(position.sink_digests), MOST_NOTED
    beyond: dict[str, Progress] = {}
    for name, part in parts.items():
        part.walk(places, room)
        room -= len(part.rows)
        progress = part.progress(position.progress, watermark.position.beyond.get(name))
        if progress is not None:
            beyond[name] = progress
            room = max(room - len(progress.handled), 0)
        for place in part.reached:
            if name in place.sink_digests:
                sink_digests[name] = place.sink_digests[name]
    snapshot = position.snapshot
    for place in watermark.places:
        if place.snapshot is not None and not place.events:
            snapshot = place.snapshot.ordered(snapshot)
    if snapshot is not position.snapshot:
        position = replace(position, snapshot=snapshot)
    if snapshot is not None and not snapshot.over:
        handled = {name: frozenset(part.rows) for name, part in parts.items() if part.rows}
        if handled != snapshot.handled:
            position = replace(position, snapshot=replace(snapshot, handled=handled))
    same = (sink_digests, beyond) == (position.sink_digests, position.beyond)
    return position if same else replace(position, sink_digests=sink_digests, beyond=beyond)


def reached_position(watermark: Watermark, lanes: Sequence[Lane]) -> Position:
    """The position to save during a run: inside the first place, if slow handlers need long for it.

    Only where no more than a position has to be stored: not for rows, for whole transactions, or
    for handlers that own their positions.
    """
    place = next((place for place in watermark.places if place.events), None)
    handlers = [lane.delivery.handler for lane in lanes]
    if place is None or place.rows or any(h.whole_transactions or h.position for h in handlers):
        return watermark.position
    return _inside(watermark.position, place, [_Part(lane) for lane in lanes])


def _inside(position: Position, place: Place, parts: Collection[_Part]) -> Position:
    """The position inside the first place, after the leading events that every handler has."""
    count = 0
    for token, _ in _events(place):
        if not all(part.has(place, token) for part in parts):
            break
        count += 1
    if not count or place.slice is None:
        return position
    event = place.slice.part(0, count).last()
    if count < place.events:
        return after_event(position, event, {})
    return after_event(position, event, {}, place.token, invalidated=place.invalidated)


class _Part:
    """What one handler has of the unfinished places: all events up to one, and single events."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._unhandled = lane.unhandled()
        self._last: tuple[ResumeToken | None, Timestamp | None] | None = None
        self._handled: dict[str, Timestamp | None] = {}
        self.reached: list[Place] = []
        """Places of which it has the first events, and all events before them."""
        self.rows = set(lane.rows)
        """Digests of rows that it has and that will be read again."""

    def has(self, place: Place, token: ResumeToken) -> bool:
        if place.number > self._lane.opened:
            return False
        unhandled = self._unhandled.get(place.number, ())
        return unhandled is not None and token not in unhandled

    def walk(self, places: Sequence[Place], room: int) -> None:
        """Finds what the handler has; notes at most ``room`` single events."""
        contiguous = True
        for place in places:
            if place.number > self._lane.opened:
                return
            unhandled = self._unhandled.get(place.number, ())
            if place.rows and unhandled is not None:
                has = [token.digest for token, _ in _events(place) if token not in unhandled]
                self.rows.update(has[: max(room - len(self.rows), 0)])
            if unhandled is None or place.rows:  # rows are read again, as of a later time
                contiguous = contiguous and unhandled == ()
                continue
            if contiguous:
                self.reached.append(place)
                if place.number not in self._unhandled:
                    last = place.slice.last() if place.slice is not None else place.last
                    assert last is not None  # noqa: S101 - for the type checker
                    self._last = last.token, last.time
                    continue
            for token, time in _events(place):
                if token in unhandled:
                    contiguous = False
                elif contiguous:
                    self._last = token, time
                elif len(self._handled) < room:
                    self._handled[token.digest] = time
            contiguous = False

    def progress(self, position: Progress, known: Progress | None) -> Progress | None:
        """What the handler has beyond the position. ``known``: what it had at the start."""
        token, time = self._last or (position.token, position.cluster_time)
        if known is not None and known.covers(token, time):
            token, time = known.token, known.cluster_time
        digests, times = set(self._handled), list(self._handled.values())
        if self._lane.before is not None:
            expected, until = self._lane.before.expected
            digests |= expected
            times += [until] if expected else []
        if not digests and (token, time) == (position.token, position.cluster_time):
            return None
        dated = [each for each in times if each is not None]
        until = max(dated) if dated and len(dated) == len(times) else None
        return Progress(token, time, frozenset(digests), until)


def _events(place: Place) -> Iterator[tuple[ResumeToken, Timestamp | None]]:
    """Token and time of the place's events, up to the first unreadable one."""
    for event in place.slice.events() if place.slice is not None else ():
        try:
            token = event.token
            yield token, event.cluster_time or token.cluster_time
        except (KeyError, ValueError):
            return
