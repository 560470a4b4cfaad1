"""Which events of a batch are set aside if its destination refuses some of them."""

from collections.abc import Mapping, Sequence

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
