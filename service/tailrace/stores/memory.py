"""A store in memory, lost at exit: for tests, and for ``store: {type: memory}``."""

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice

from tailrace.model import Checkpoint
from tailrace.model.dead_letter import DeadLetter, DiscardedLetter, How, LetterHead
from tailrace.model.desired_state import DesiredState, DesiredStateTable
from tailrace.model.gap import Gap
from tailrace.model.verification import Verification
from tailrace.stores import Store
from tailrace.stores.former_positions import FormerPosition, superfluous
from tailrace.stores.indexed_letters import IndexedLetters, Key
from tailrace.stores.memory_leases import MemoryLeases
from tailrace.stores.records import claim_first, fenced, letter_fenced, verification_fenced

_Version = tuple[int, int]
"""Of a former position."""


@asynccontextmanager
async def open_store() -> AsyncIterator[Store]:
    """A store that lasts as long as the process."""
    yield Store(
        MemoryCheckpoints(),
        MemoryDeadLetters(),
        MemoryLeases(),
        MemoryDesiredStates(),
        MemoryVerifications(),
    )


class MemoryCheckpoints:
    """A :class:`tailrace.engine.ports.CheckpointStore`."""

    def __init__(self, records: dict[str, Checkpoint] | None = None) -> None:
        self._records = {} if records is None else records
        self._gaps: set[Gap] = set()

    async def load(self, scope: str) -> Checkpoint | None:
        return self._records.get(scope)

    async def save(self, checkpoint: Checkpoint) -> None:
        stored = self._records.get(checkpoint.scope)
        if stored is not None and checkpoint.version <= stored.version:
            raise fenced(checkpoint, stored.version, where=f"memory, scope {checkpoint.scope!r}")
        self._records[checkpoint.scope] = checkpoint

    async def claim(self, scope: str, epoch: int) -> Checkpoint:
        found = self._records.get(scope)
        if found is None or found.epoch >= epoch:
            return await claim_first(self, scope, epoch, where=f"memory, scope {scope!r}")
        claimed = self._records[scope] = replace(found, epoch=epoch, sequence=0)
        return claimed

    async def list(self) -> Sequence[Checkpoint]:
        return [self._records[scope] for scope in sorted(self._records)]

    async def reset(self, scope: str) -> bool:
        return self._records.pop(scope, None) is not None

    async def record_gap(self, gap: Gap) -> None:
        self._gaps.add(gap)

    async def gaps(self, scope: str) -> Sequence[Gap]:
        found = (gap for gap in self._gaps if gap.scope == scope)
        return sorted(found, key=lambda gap: gap.sort_key)


class MemoryDesiredStates:
    """A :class:`tailrace.engine.ports.DesiredStateStore`."""

    def __init__(self) -> None:
        self._states: dict[str, DesiredState] = {}
        self._positions: dict[str, dict[_Version, tuple[Checkpoint, FormerPosition[_Version]]]] = {}

    async def load(self, scope: str) -> DesiredState | None:
        return self._states.get(scope)

    async def list(self) -> DesiredStateTable:
        return DesiredStateTable([self._states[scope] for scope in sorted(self._states)], {})

    async def write(self, desired: DesiredState) -> bool:
        stored = self._states.get(desired.scope)
        if stored is None or stored.generation + 1 == desired.generation:
            self._states[desired.scope] = desired
        return self._states[desired.scope] == desired

    async def note(self, former: Checkpoint) -> None:
        positions = self._positions.setdefault(former.scope, {})
        version = former.version
        positions[version] = former, FormerPosition.of(version, former.to_document())
        latest_first = sorted(positions, reverse=True)
        for version in superfluous([positions[version][1] for version in latest_first]):
            del positions[version]

    async def positions(self, scope: str) -> Sequence[Checkpoint]:
        positions = self._positions.get(scope, {})
        return [positions[version][0] for version in sorted(positions, reverse=True)]


class MemoryVerifications:
    """A :class:`tailrace.verify.ports.VerificationStore`."""

    def __init__(self) -> None:
        self._records: dict[tuple[str, str], Verification] = {}

    async def load(self, scope: str) -> Sequence[Verification]:
        return [self._records[key] for key in sorted(self._records) if key[0] == scope]

    async def save(self, verification: Verification) -> None:
        key = verification.scope, verification.handler
        stored = self._records.get(key)
        if stored is not None and stored.epoch > verification.epoch:
            raise verification_fenced(verification, where="memory")
        self._records[key] = verification


class MemoryDeadLetters(IndexedLetters):
    """A :class:`tailrace.engine.ports.DeadLetterStore`."""

    def __init__(self, *letters: DeadLetter) -> None:
        super().__init__()
        self._letters = {letter.identity: letter for letter in letters}
        self._arrivals = {identity: n for n, identity in enumerate(self._letters, 1)}
        self._arrived = len(self._letters)
        self._epochs = dict[str, int]()
        """By scope, the greatest epoch that has claimed it."""
        self._discarded = dict[tuple[str, str], dict[bytes | None, DiscardedLetter]]()

    async def count(self) -> Mapping[tuple[str, str], int]:
        return Counter((scope, handler) for scope, handler, _ in self._letters)

    async def heads(
        self,
        scope: str | None = None,
        handler: str | None = None,
        *,
        after: str = "",
        limit: int = 1000,
    ) -> Sequence[LetterHead]:
        behind = int(after or 0)
        heads = (
            self._head(letter)
            for letter in self._letters.values()
            if scope in (None, letter.scope)
            and handler in (None, letter.handler)
            and self._arrivals[letter.identity] > behind
        )
        return list(islice(heads, limit))

    async def queue(self, queue: Key) -> Sequence[LetterHead]:
        return [self._head(each) for each in self._letters.values() if _key_of(each) == queue]

    async def read(self, head: LetterHead) -> DeadLetter | None:
        return self._letters.get(head.identity)

    def _head(self, letter: DeadLetter) -> LetterHead:
        named = (letter.scope, letter.handler, letter.id, letter.key, letter.error)
        arrival = f"{self._arrivals[letter.identity]:019}"
        return LetterHead(*named, letter.attempts, letter.at, arrival)

    async def discarded(self, scope: str, handler: str) -> Mapping[bytes | None, DiscardedLetter]:
        return self._discarded.get((scope, handler), {})

    async def resolve(self, letter: DeadLetter | LetterHead, how: How) -> bool:
        if (found := self._letters.pop(letter.identity, None)) is None:
            return False
        if how == "discarded":
            of_handler = self._discarded.setdefault((found.scope, found.handler), {})
            of_handler[found.key] = DiscardedLetter(found.id, found.error, datetime.now(UTC))
        return True

    async def _claim(self, scope: str, epoch: int) -> None:
        self._require(scope, epoch)
        self._epochs[scope] = epoch

    def _require(self, scope: str, epoch: int) -> None:
        if (claimed := self._epochs.get(scope, 0)) > epoch:
            raise letter_fenced(scope, epoch, claimed, where="memory")

    async def _insert(self, letter: DeadLetter, epoch: int) -> None:
        self._require(letter.scope, epoch)
        if letter.identity not in self._letters:
            self._arrived += 1
            self._letters[letter.identity] = letter
            self._arrivals[letter.identity] = self._arrived

    async def _find(self, key: Key) -> bool:
        return key in await self._keys(key[0])

    async def _keys(self, scope: str) -> list[Key]:
        return [_key_of(letter) for letter in self._letters.values() if letter.scope == scope]


def _key_of(letter: DeadLetter) -> Key:
    return letter.scope, letter.handler, letter.key
