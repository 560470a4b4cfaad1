"""What ``tailrace checkpoints`` does with an open store: list, show, set and reset positions.

Each function returns the text to print. What the operator got wrong is a
:class:`tailrace.errors.ConfigurationError`; a store that fails raises its own errors.

A position that is set keeps the cluster identity and the fingerprint of the record that it
replaces. Where there is none, both are empty, and **an empty one means: unknown, accept what is
found and fill it in**; the daemon neither reports a change of cluster nor of pipeline then.

``set`` and ``reset`` take the next epoch, so a daemon that is running is fenced and cannot write
its position over what the operator wants. After ``reset`` a record without a position keeps that
epoch; it is shown nowhere. Both leave the gaps: they are history.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NoReturn

from bson.timestamp import Timestamp

from tailrace.cli.checkpoint_text import details, history, table
from tailrace.engine.ports import CheckpointStore
from tailrace.errors import CheckpointCorrupt, CheckpointFenced, ConfigurationError, Problem
from tailrace.model import Checkpoint, CheckpointKind, ResumeToken
from tailrace.model.checkpoint import CHOSEN
from tailrace.model.record_fields import LARGEST

_HEX = re.compile(r"(?:[0-9A-Fa-f]{2})+\Z")
_NO_POSITION = "  scope:        {}\n  (no checkpoint: the scope starts at its start_at)\n"
_DRY_RUN = "Dry run: nothing was written.\n"
_FENCED = (
    "A daemon that follows it now halts the scope at its next save: restart it, or the scope.\n"
)


@dataclass(frozen=True, slots=True)
class Position:
    """Where an operator wants a scope to go on: behind a token, or at a time."""

    token: ResumeToken | None = None
    time: Timestamp | None = None
    after_invalidate: bool = False


def read_position(
    *,
    token: str | None = None,
    token_data: str | None = None,
    at: str | None = None,
    after_invalidate: bool = False,
) -> Position:
    """The position that the options of ``set`` name; exactly one of the first three is given.

    ``token`` is a resume token in Extended JSON, ``token_data`` the hexadecimal ``_data`` of one,
    ``at`` an ISO 8601 time with its zone: everything from that second on is handled again.
    ``after_invalidate`` says that the token is that of an invalidate event.

    Raises :class:`ConfigurationError` that names the option.
    """
    if sum(option is not None for option in (token, token_data, at)) != 1:
        _refuse("", "give exactly one of --token, --token-data and --at")
    if at is not None:
        if after_invalidate:
            _refuse("--after-invalidate", "needs the token of the invalidate event, not a time")
        return Position(time=_timestamp(at))
    if token is not None:
        return Position(token=_token(token), after_invalidate=after_invalidate)
    data = (token_data or "").strip()
    if not _HEX.match(data):
        _refuse("--token-data", "is not hexadecimal; give a token of another form with --token")
    return Position(token=ResumeToken.of({"_data": data}), after_invalidate=after_invalidate)


async def list_positions(store: CheckpointStore, *, now: datetime) -> str:
    """A table of every stored position, by scope name, with the number of its gaps."""
    known = [each for each in await store.list() if not each.is_reset]
    found = [(each, len(await store.gaps(each.scope))) for each in known]
    return table(found, now) if found else "No checkpoints are stored.\n"


async def show_position(
    store: CheckpointStore, scope: str, *, now: datetime, as_json: bool = False
) -> str:
    """Every field of a scope's checkpoint, tokens whole, and the scope's gaps.

    As JSON it is the record as stored and the gaps as stored under ``gaps``. Where there are gaps
    but no checkpoint (it was reset, perhaps), the scope's name stands in for the record.
    """
    (checkpoint, _), gaps = await _load(store, scope), await store.gaps(scope)
    if checkpoint is None and not gaps:
        _refuse_unknown(scope)
    if as_json:
        record = checkpoint.to_document() if checkpoint else {"scope": scope}
        return json.dumps(record | {"gaps": [gap.to_document() for gap in gaps]}, indent=2) + "\n"
    position = details(checkpoint, now) if checkpoint else _NO_POSITION.format(scope)
    return position + history(gaps)


async def set_position(
    store: CheckpointStore,
    scope: str,
    position: Position,
    *,
    now: datetime,
    dry_run: bool = False,
) -> str:
    """Makes the scope go on from ``position``; shows what was stored and what is stored now.

    A record that cannot be read is replaced: this is how one is repaired.
    """
    try:
        before, epoch = await _load(store, scope)
        text = details(before, now) if before else "(nothing)\n"
        advice = "Look at it again, and repeat"
    except CheckpointCorrupt as error:
        before, text = None, f"(unreadable) {error}\n"
        epoch = _ahead(now)
        advice = "Remove it first with 'tailrace checkpoints reset', then set it"
    if epoch > LARGEST:
        _refuse(f"scope {scope!r}", "its epoch is the greatest there is; reset it, then set it")
    after = _checkpoint(scope, position, before, epoch, now)
    if not dry_run:
        try:
            await store.save(after)
        except CheckpointFenced as error:
            raise ConfigurationError(
                Problem(f"scope {scope!r}", f"nothing was set: {error}. {advice}")
            ) from error
    end = _DRY_RUN if dry_run else f"Stored. {_FENCED}"
    return f"Before:\n{text}\nAfter:\n{details(after, now)}\n{end}"


async def reset_position(
    store: CheckpointStore, scope: str, *, now: datetime, dry_run: bool = False
) -> str:
    """Forgets the scope's checkpoint, so that it starts at its ``start_at``; shows what it was.

    A record that cannot be read is removed too.
    """
    readable = True
    try:
        before, epoch = await _load(store, scope)
        if before is None:
            _refuse_unknown(scope)
        text = details(before, now)
    except CheckpointCorrupt as error:
        text, epoch, readable = f"(unreadable) {error}\n", _ahead(now), False
    if dry_run:
        return f"Before:\n{text}\n{_DRY_RUN}"
    if not readable or epoch > LARGEST:
        await store.reset(scope)
        epoch = _ahead(now)
    try:
        await store.save(_nowhere(scope, epoch, now))
    except CheckpointFenced as error:
        raise ConfigurationError(
            Problem(f"scope {scope!r}", f"nothing was reset: {error}. Look at it again, and repeat")
        ) from error
    return f"Before:\n{text}\nForgotten: the scope starts at its start_at the next time. {_FENCED}"


async def _load(store: CheckpointStore, scope: str) -> tuple[Checkpoint | None, int]:
    """The scope's checkpoint, and the epoch that fences whoever follows the scope now."""
    found = await store.load(scope)
    if found is None:
        return None, 2  # 1 is that of a daemon that has not saved anything yet
    return None if found.is_reset else found, found.epoch + 1


def _ahead(now: datetime) -> int:
    """For a record whose epoch is unknown: they count owners, so seconds since 1970 are ahead."""
    return int(now.timestamp())


def _nowhere(scope: str, epoch: int, now: datetime) -> Checkpoint:
    return Checkpoint(
        scope=scope,
        kind=CheckpointKind.RESET,
        event_token=None,
        high_water=None,
        cluster_time=None,
        cluster="",
        fingerprint="",
        epoch=epoch,
        sequence=1,
        saved_at=now,
    )


def _checkpoint(
    scope: str, position: Position, before: Checkpoint | None, epoch: int, now: datetime
) -> Checkpoint:
    # Any other token may be an event's or a post-batch one; only of the invalidate is it known.
    kind = CheckpointKind.INVALIDATE if position.after_invalidate else CheckpointKind.IDLE
    return Checkpoint(
        scope=scope,
        kind=kind,
        event_token=position.token if position.after_invalidate else None,
        high_water=position.token,
        cluster_time=position.token.cluster_time if position.token else position.time,
        cluster=before.cluster if before else "",
        fingerprint=before.fingerprint if before else "",
        epoch=epoch,
        sequence=1,
        saved_at=now,
        owned={CHOSEN: ""},
    )


def _token(text: str) -> ResumeToken:
    try:
        token = ResumeToken.from_json(text)
    except ValueError as error:
        _refuse("--token", f'{error}. Give a document, as {{"_data": "8265..."}}')
    if not token.document:
        _refuse("--token", "is an empty document")
    return token


def _timestamp(text: str) -> Timestamp:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        _refuse("--at", f"{text!r} is not an ISO 8601 time, as 2026-11-30T12:00:00Z ({error})")
    if moment.tzinfo is None:
        _refuse("--at", f"{text!r} has no time zone: write Z for UTC, or an offset as +02:00")
    try:
        # Whole seconds, downwards: rather a change twice than one lost. 1 is the first increment.
        return Timestamp(int(moment.astimezone(UTC).timestamp()), 1)
    except (ValueError, OverflowError) as error:
        _refuse("--at", f"{text!r} is no time that MongoDB can have ({error})")


def _refuse(where: str, message: str) -> NoReturn:
    raise ConfigurationError(Problem(where, message))


def _refuse_unknown(scope: str) -> NoReturn:
    _refuse(
        f"scope {scope!r}",
        "has no checkpoint; 'tailrace checkpoints list' shows those that are stored",
    )
