"""Finds the position that an operator means, tries it, and says what it would repeat or skip."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bson.timestamp import Timestamp

from tailrace.control.desired_state import subject_text
from tailrace.control.outcome import ActionRefused
from tailrace.control.seek_target import SeekTarget, shown
from tailrace.control.server_positions import ServerPositions
from tailrace.engine import CheckpointStore, DesiredStateStore
from tailrace.engine.seek import furthest
from tailrace.errors import CheckpointError, describe
from tailrace.model import Checkpoint, Position, PositionKind, ResumeToken
from tailrace.model.desired_state import DesiredState
from tailrace.model.subscription import Subscription
from tailrace.stream import fingerprint


@dataclass(frozen=True, slots=True)
class Seeking:
    """One scope, as it is followed. ``handlers``: the names of those that are to move. ``alone``:
    the only one, if not all are meant."""

    server: ServerPositions
    handlers: Sequence[str]
    checkpoints: CheckpointStore
    desired_states: DesiredStateStore
    now: Callable[[str | None], tuple[Position, Timestamp | None] | None] = lambda handler: None
    """See :meth:`tailrace.engine.status.status.Status.reached`: later than what is saved."""
    alone: str | None = None

    async def find(
        self,
        *,
        at: str | None = None,
        token: str | Mapping[str, Any] | None = None,
        undo: bool = False,
    ) -> SeekTarget:
        """The position that is meant, by one of the three. Raises :class:`ActionRefused`."""
        if (at is not None) + (token is not None) + undo != 1:
            raise ActionRefused(400, "give exactly one of at, token and undo")
        name = self.server.scope.name
        try:
            stored = await self.checkpoints.load(name)
            records = await self.desired_states.positions(name)
            desired = await self.desired_states.load(name)
        except CheckpointError as error:
            raise ActionRefused(503, f"nothing was changed: {describe(error)}") from error
        stored = None if stored is not None and stored.is_reset else stored
        before, former = self._before(stored), self._former(records)
        current = fingerprint(self.server.scope, self.server.options)
        if undo:
            observed = before.observed_generation if before is not None else 0
            if desired is not None and self._seek_generation(desired) > observed:  # not moved yet
                subscription = before
            else:
                subscription = next(
                    (at for at in former if at.observed_generation < observed), None
                )
            if subscription is None:
                message = f"{self} was not moved by a seek that is kept: there is none to undo"
                raise ActionRefused(409, f"{message}; choose a position with at or token")
            position, of = subscription.position, subscription.fingerprint
        elif token is not None:
            meant = read_token(token)
            known = next((each for each in former if each.position.token == meant), None)
            position = known.position if known else _after(meant)
            of = known.fingerprint if known else current
        else:
            position, of = await self.server.at(at or ""), current
        if of != current:
            if position.cluster_time is None:
                message = "that position is of another pipeline, and its time is not known"
                raise ActionRefused(422, f"{self}: {message}: choose a time with at")
            position = Position(PositionKind.IDLE, None, None, position.cluster_time)
        await self.server.require(position)
        target = self._target(position, current, stored, records)
        if self.alone is not None:
            return target
        moves = dict[tuple[object, ...], SeekTarget]()
        for handler in self.handlers:
            one = replace(self, alone=handler, handlers=[handler])
            move = one._target(position, current, stored, records)
            same = moves.get(move.course)
            handlers = [*(same.handlers if same is not None else []), handler]
            moves[move.course] = replace(move, handlers=handlers)
        return replace(target, moves=list(moves.values())) if len(moves) > 1 else target

    def _target(
        self,
        position: Position,
        current: str,
        stored: Checkpoint | None,
        records: Sequence[Checkpoint],
    ) -> SeekTarget:
        before, former, now = self._before(stored), self._former(records), self.now(self.alone)
        reached = furthest("", before.last, former).cluster_time if before is not None else None
        in_flight = now[1] if now is not None else None
        name = self.server.scope.name
        return SeekTarget(name, position, current, before, reached, self.handlers, in_flight)

    def __str__(self) -> str:
        return subject_text(self.server.scope.name, self.alone)

    def _meant(self, checkpoint: Checkpoint | None) -> Checkpoint | None:
        """What it says of the handlers that are to move."""
        if checkpoint is None or self.alone is None:
            return checkpoint
        return checkpoint.alone(self.alone)

    def _before(self, stored: Checkpoint | None) -> Checkpoint | None:
        before, now = self._meant(stored), self.now(self.alone)
        # A position moves while no change comes, too: then it counts as where it is saved.
        if before is not None and now is not None and _moved(before.position, now[0]):
            return replace(before, position=now[0])
        return before

    def _former(self, records: Sequence[Checkpoint]) -> Sequence[Checkpoint]:
        meant = [self._meant(each) for each in records]
        return [each for each in meant if each is not None]

    def _seek_generation(self, desired: DesiredState) -> int:
        """The generation since which they are wanted elsewhere."""
        own = desired if self.alone is None else desired.of(self.alone)
        return own.seek_generation

    async def applied(self, target: SeekTarget, generation: int) -> SeekTarget:
        """The same, from where the scope was when it applied this generation."""
        try:
            records = await self.desired_states.positions(target.scope)
        except CheckpointError:
            return target
        if target.moves:
            parts = [(replace(self, alone=move.handlers[0]), move) for move in target.moves]
            return replace(
                target, moves=[one._applied(move, generation, records) for one, move in parts]
            )
        return self._applied(target, generation, records)

    def _applied(
        self, target: SeekTarget, generation: int, records: Sequence[Checkpoint]
    ) -> SeekTarget:
        former = self._former(records)
        left = next(
            (i for i, each in enumerate(former) if each.observed_generation < generation), None
        )
        if left is None or target.before is None:
            return target
        if target.in_flight is None or not _moved(target.before.position, former[left].position):
            return replace(target, in_flight=None)
        reached = furthest("", former[left].last, former[left:]).cluster_time
        return replace(target, before=former[left], reached=reached, in_flight=None)


async def positions_of(
    scope: str,
    checkpoints: CheckpointStore,
    states: DesiredStateStore,
    handler: str | None = None,
) -> Mapping[str, Any]:
    """The current positions of a scope's handlers, and former ones, in JSON types.

    Handlers that stand together have one. With ``handler``, only those of this one.
    """
    try:
        now, former = await checkpoints.load(scope), await states.positions(scope)
    except CheckpointError as error:
        raise ActionRefused(503, describe(error)) from error
    known = [now] if now is not None and not now.is_reset else []
    positions = list[Mapping[str, Any]]()
    for checkpoint in [*known, *former]:
        for names, of in _together(checkpoint, handler):
            shows = {"handlers": names, **shown(of.position), "kind": of.position.kind.value}
            if handler is not None and positions and shows.items() <= positions[-1].items():
                continue  # the others have moved
            saved = {"saved_at": checkpoint.saved_at.isoformat(), "epoch": checkpoint.epoch}
            positions.append({**shows, **saved, "current": checkpoint is now})
    unreadable = sorted(now.damaged) if now is not None else []
    return {"scope": scope, "positions": positions, "unreadable": unreadable}


def _together(
    checkpoint: Checkpoint, handler: str | None
) -> Sequence[tuple[Sequence[str], Subscription]]:
    """The handlers that stand together and where, those that stand last first."""
    if handler is not None:
        known = checkpoint.of(handler)
        return [] if known is None else [([handler], known)]
    groups = [([name for name in checkpoint.handlers if name], checkpoint.last)]
    for name, subscription in checkpoint.apart.items():
        same = next((names for names, of in groups if of.position == subscription.position), None)
        if same is None:
            groups.append(([name], subscription))
        else:
            same.append(name)
    return groups


def _moved(before: Position, now: Position) -> bool:
    """Whether changes came between two positions."""
    last = now.event_token
    return last is not None and before.progress.covers(last, last.cluster_time) is False


def read_token(written: str | Mapping[str, Any]) -> ResumeToken:
    """The token in a document, its Extended JSON, or the hexadecimal text of its ``_data``."""
    message = 'token: it is not a resume token: give a document, as {"_data": "8265..."}'
    try:
        if isinstance(written, str) and not written.lstrip().startswith("{"):
            bytes.fromhex(written)
            token = ResumeToken.of({"_data": written.strip()}) if written.strip() else None
        else:
            text = written if isinstance(written, str) else json.dumps(written)
            token = ResumeToken.from_json(text)
    except (ValueError, OverflowError) as error:
        raise ActionRefused(400, message) from error
    if token is None or not token.document:
        raise ActionRefused(400, message)
    return token


def _after(token: ResumeToken) -> Position:
    """After a token that may be an invalidate event's: ``startAfter`` accepts any."""
    return Position(PositionKind.INVALIDATE, token, token, token.cluster_time)
