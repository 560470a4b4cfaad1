"""Determines, to the single event, what is handled when a run ends: a clean stop repeats nothing.

The watermark moves by whole places. At the end a lane tells which events of its opened places are
not handled. The final position is after the last event with nothing unhandled before it. Single
events that are handled beyond it are noted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice, takewhile

from bson.timestamp import Timestamp

from tailrace.engine.handle.lane import Lane
from tailrace.engine.position.place import Place
from tailrace.engine.position.watermark import Watermark, after_event
from tailrace.model import Position, ResumeToken

MOST_NOTED = 250_000
"""The most single events that a checkpoint notes; handled events beyond this number come again. A
record of so many has 3 MB; MongoDB accepts 16."""


def final_position(watermark: Watermark, lane: Lane, room: int = MOST_NOTED) -> Position:
    """The position to save when a handler's part in a run ends; it notes at most ``room`` events.

    With whole transactions it is never inside a place.
    """
    places, handled = [place for place in watermark.places if place.events], _Handled(lane)
    position, leading = watermark.position, 0
    if places and not (places[0].rows or lane.delivery.handler.whole_transactions):
        leading = handled.leading(places[0])
        position = _inside(position, places[0], leading)
    if places and places[0].stored and not places[0].rows and handled.tells(places[0]):
        position = replace(position, stored=places[0].stored)
    snapshot = position.snapshot
    for place in watermark.places:
        if place.snapshot is not None and not place.events:
            snapshot = place.snapshot.requested(snapshot)
    rows, changes = handled.walk(places, leading, room)
    if snapshot is not None and not snapshot.over and rows != snapshot.handled:
        snapshot = replace(snapshot, handled=rows)
    digests, times = set(changes), list(changes.values())
    if lane.before is not None:
        expected, until = lane.before.expected
        digests |= expected
        times += [until] if expected else []
    dated = [each for each in times if each is not None]
    until = max(dated) if dated and len(dated) == len(times) else None
    final = replace(position, snapshot=snapshot, handled=frozenset(digests), until=until)
    return position if final == position else final


def reached_position(watermark: Watermark, lane: Lane) -> Position:
    """The position to save during a run: inside the first place, if its handler needs long for it.

    Only where no more than a position has to be stored: not for rows, for whole transactions, or
    for a handler that owns its position.
    """
    place = next((place for place in watermark.places if place.events), None)
    handler = lane.delivery.handler
    if place is None or place.rows or handler.whole_transactions or handler.position:
        return watermark.position
    return _inside(watermark.position, place, _Handled(lane).leading(place))


def _inside(position: Position, place: Place, count: int) -> Position:
    """The position inside the first place, after so many leading events."""
    if not count or place.slice is None:
        return position
    event = place.slice.part(0, count).last()
    if position.progress.covers(event.token, event.time):
        return position  # the run began further back than the handler
    if count < place.events:
        return after_event(position, event)
    return after_event(position, event, "", place.token, invalidated=place.invalidated)


class _Handled:
    """What a handler has of the unfinished places."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._unhandled = lane.unhandled()

    def has(self, place: Place, token: ResumeToken) -> bool:
        return self.tells(place) and token not in (self._unhandled.get(place.number) or ())

    def tells(self, place: Place) -> bool:
        """Whether it is known which of the place's events it has: not of accepted ones."""
        opened = place.number <= self._lane.opened
        return opened and self._unhandled.get(place.number, ()) is not None

    def leading(self, place: Place) -> int:
        """How many of the place's first events it has, without one missing."""
        has = (self.has(place, token) for token, _ in _events(place))
        return sum(1 for _ in takewhile(bool, has))

    def walk(
        self, places: list[Place], leading: int, room: int
    ) -> tuple[frozenset[str], dict[str, Timestamp | None]]:
        """The digests of rows that it has and that will be read again, and of the changes that it
        has after the ``leading`` ones, with their times: at most ``room`` of each."""
        rows, changes = set(self._lane.rows), dict[str, Timestamp | None]()
        for place in places:
            if place.number > self._lane.opened:
                break
            for token, time in islice(_events(place), leading, None):
                if not self.has(place, token):
                    continue
                if place.rows and len(rows) < room:
                    rows.add(token.digest)
                elif not place.rows and len(changes) < room:
                    changes[token.digest] = time
            leading = 0
        return frozenset(rows), changes


def _events(place: Place) -> Iterator[tuple[ResumeToken, Timestamp | None]]:
    """Token and time of the place's events, up to the first unreadable one."""
    for event in place.slice.events() if place.slice is not None else ():
        try:
            token = event.token
            yield token, event.cluster_time or token.cluster_time
        except (KeyError, ValueError):
            return
