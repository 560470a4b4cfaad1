"""Compares what was written to each document with the messages that a destination got of it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.destinations.destination import Sent

Change = int | None
"""The number that a change gave its document; ``None`` for a delete."""


@dataclass(slots=True)
class Account:
    """``repeated`` counts messages that came again; ``problems`` names what must not be."""

    changes: int = 0
    rows: int = 0
    repeated: int = 0
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.changes} changes and {self.rows} rows, {self.repeated} came again"


def examine(
    written: Mapping[str, Sequence[Change]], sent: Iterable[Sent], *, snapshots: int, once: bool
) -> Account:
    """``written``: the changes of each document by its key; ``snapshots``: how many there were.

    Nothing may be missing or skipped. A message may repeat, and those after it again, unless
    ``once``; then neither a change nor a row of a snapshot comes twice.
    """
    account = Account()
    changes: dict[str, list[Change]] = {key: [] for key in written}
    rows: dict[str, int] = {}
    for each in sent:
        if each.key is None:
            continue
        if each.operation == "read":
            rows[each.key] = rows.get(each.key, 0) + 1
        else:
            number = None if each.operation == "delete" else (each.document or {}).get("n")
            changes.setdefault(each.key, []).append(number)
    for key, found in changes.items():
        expected = written.get(key, ())
        account.changes += len(expected)
        account.repeated += len(found) - len(expected)
        if problem := _problem(expected, found, once=once):
            account.problems.append(f"{key}: {problem}")
    account.rows = sum(rows.values())
    for key, count in rows.items():
        if once and count > snapshots:
            account.problems.append(f"{key}: {count} rows in {snapshots} snapshots")
    return account


def _problem(expected: Sequence[Change], found: Sequence[Change], *, once: bool) -> str:
    """What is wrong with the messages of one document; empty if nothing is."""
    if once:
        return "" if found == expected else f"{found} instead of {expected}"
    places = {-1}  # where it may stand: a delete has no number
    for at, change in enumerate(found):
        furthest = max(places) + 1
        places = {place for place, each in enumerate(expected[: furthest + 1]) if each == change}
        if not places:
            return f"message {at + 1}, {change}, is not change {furthest + 1} or an earlier one"
    if len(expected) - 1 not in places:
        return f"the last of {len(found)} messages is not change {len(expected)}"
    return ""
