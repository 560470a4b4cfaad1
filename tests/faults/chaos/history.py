"""What was written, what each handler got, and in which process: the material of an account.

Pure: it knows neither server nor service. What must be true of it all is in ``account``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple


class Change(NamedTuple):
    """A change to a document; each, deletes included, adds one to its counter."""

    operation: str
    number: int


class Arrival(NamedTuple):
    """A change as a handler got it. A delete does not say its ``number``.

    Tokens sort as the stream does, those of changes and those of positions without one alike.
    """

    token: str
    document: int
    operation: str
    number: int | None


class Position(NamedTuple):
    """A checkpoint as it was seen in the store."""

    epoch: int
    sequence: int
    cluster_time: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Recipient:
    """A handler. In ``sequence``: it gets the stream's order, else each document's.

    One that ``owns`` its position stores it together with what it got.
    """

    name: str
    sequence: bool
    owns: bool = False


@dataclass(frozen=True, slots=True)
class Process:
    """What one process of the service handed to each handler, and what it left behind.

    ``checkpoint`` is the token of the stored position. ``starts`` says how often a watcher began
    in it, ``clean`` that it ended by itself when asked to, and every position was saved.
    """

    arrivals: Mapping[str, Sequence[Arrival]]
    checkpoint: str | None
    starts: int
    clean: bool = False


def regressions(seen: Iterable[Position]) -> list[str]:
    """Where a checkpoint was followed by an older one."""
    problems = []
    for before, after in pairwise(seen):
        if after[:2] < before[:2]:
            problems.append(f"the checkpoint went back from {before[:2]} to {after[:2]}")
        elif after.cluster_time < before.cluster_time:
            problems.append(
                f"the cluster time went back from {before.cluster_time} to {after.cluster_time}"
            )
    return problems


def differences(
    derived: Mapping[int, Mapping[str, Any]], expected: Mapping[int, Mapping[str, Any]]
) -> list[str]:
    """Where the collection that the events lead to is not the one that is there."""
    return [
        f"document {key}: the events lead to {derived.get(key)}, there is {expected.get(key)}"
        for key in sorted({*derived, *expected})
        if derived.get(key) != expected.get(key)
    ]


def derived(events: Iterable[Mapping[str, Any]]) -> dict[int, dict[str, Any]]:
    """The collection that change events lead to, applied one after another."""
    documents: dict[int, dict[str, Any]] = {}
    for event in events:
        key = event["documentKey"]["_id"]
        match event["operationType"]:
            case "insert" | "replace":
                documents[key] = dict(event["fullDocument"])
            case "update":
                documents.setdefault(key, {}).update(event["updateDescription"]["updatedFields"])
            case "delete":
                documents.pop(key, None)
    return documents
