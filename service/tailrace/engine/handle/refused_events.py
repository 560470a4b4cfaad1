"""Which events of a batch are set aside if its destination refuses some of them."""

from collections.abc import Iterator, Mapping, Sequence

from tailrace.event import ChangeEvent


def divided(
    events: Sequence[ChangeEvent], reasons: Mapping[int, str]
) -> tuple[list[ChangeEvent], list[tuple[ChangeEvent, str]]]:
    """The events to handle, and those to set aside: refused ones, and later ones of their keys.

    ``reasons``: why events are refused, by index; the later ones have none.
    """
    keys = set[bytes | None]()
    others, aside = list[ChangeEvent](), list[tuple[ChangeEvent, str]]()
    for index, event in enumerate(events):
        if index in reasons or (event.key is not None and event.key in keys):
            aside.append((event, reasons.get(index, "")))
            keys.add(event.key)
        else:
            others.append(event)
    return others, aside


def parts(
    units: Sequence[Sequence[ChangeEvent]], reasons: Mapping[int, str]
) -> Iterator[tuple[list[ChangeEvent], list[tuple[ChangeEvent, str]]]]:
    """In order: events to handle, and the refused ones of the unit after them, with the reasons.

    The other events of that unit are among the next ones to handle. ``reasons``: as for
    :func:`divided`, by index in all events.
    """
    others, begin = list[ChangeEvent](), 0
    for unit in units:
        refused, left = list[tuple[ChangeEvent, str]](), list[ChangeEvent]()
        for index, event in enumerate(unit, begin):
            if reason := reasons.get(index):
                refused.append((event, reason))
            else:
                left.append(event)
        begin += len(unit)
        if refused:
            yield others, refused
            others = []
        others += left
    yield others, []
