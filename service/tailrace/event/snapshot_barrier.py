"""What the barriers of a snapshot tell: its collections, and which documents are gone."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from bson.timestamp import Timestamp

from tailrace.event.change_event import ChangeEvent
from tailrace.event.namespace import Namespace

DONE, REFUSED = "done", "refused"


@dataclass(frozen=True, slots=True)
class SnapshotBarrier:
    """The snapshot of a ``snapshotBegin`` or ``snapshotEnd``.

    ``states``: the states of each collection that it lists; there are several if another one took
    its place. ``chosen``: what an operator chose, by name or as ``database.collection``; empty for
    the whole scope. ``filtered``: only some documents of each collection are read.
    """

    id: str
    began: Timestamp | None
    filtered: bool
    chosen: Collection[str]
    states: Mapping[Namespace, Collection[str]]

    @classmethod
    def of(cls, event: ChangeEvent) -> SnapshotBarrier:
        """The snapshot that the event names; an unknown one is filtered, so that it says little."""
        snapshot: Any = event.document.get("snapshot") or {}
        states: dict[Namespace, set[str]] = {}
        for each in snapshot.get("collections", ()):
            states.setdefault(Namespace(each["db"], each["coll"]), set()).add(each["state"])
        filtered = snapshot.get("filter") != ""
        chosen = snapshot.get("chosen") or ()
        return cls(str(snapshot.get("id", "")), snapshot.get("began"), filtered, chosen, states)

    def reads(self, source: Namespace) -> bool:
        """Whether it reads a collection of its scope."""
        return not self.chosen or source.coll in self.chosen or str(source) in self.chosen

    def is_complete(self, source: Namespace, *, dropped: bool = True) -> bool:
        """Whether documents of a collection are gone if neither a row nor a later event named them.

        To be asked at ``snapshotEnd`` (docs/snapshots.md). ``dropped``: whether those of a
        collection that is not there any more count as gone, too.
        """
        if self.filtered:
            return False
        if source in self.states:
            return DONE in self.states[source]
        return dropped and not self.chosen
