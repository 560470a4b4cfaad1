"""What ``tailrace checkpoints`` does with an open store: list, show, set and reset positions.

Each function returns the text to print, and raises :class:`ConfigurationError` for a mistake of the
operator; errors of the store pass through.

A position that is set keeps the cluster identity and the fingerprint of the record that it
replaces. Empty ones are unknown: the daemon accepts what it finds and fills them in.

``set`` and ``reset`` take the next epoch, so the store refuses further saves of a running daemon.
``reset`` leaves a record without a position, which only keeps that epoch. Gaps stay.
"""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import NoReturn

from bson.timestamp import Timestamp

from tailrace.cli.checkpoint_text import details, history, table
from tailrace.cli.reading import refuse
from tailrace.engine.ports import CheckpointStore
from tailrace.errors import CheckpointCorrupt, CheckpointFenced, ConfigurationError, Problem
from tailrace.model import Checkpoint, CheckpointKind, ResumeToken
from tailrace.model.checkpoint import CHOSEN
from tailrace.model.record_codec import LARGEST

_HEX = re.compile(r"(?:[0-9A-Fa-f]{2})+\Z")
_NO_POSITION = "  scope:        {}\n  (no checkpoint: the scope starts at its start_at)\n"
_DRY_RUN = "Dry run: nothing was written.\n"
_FENCED = (
    "A daemon that follows it now halts the scope at its next save: restart it, or the scope.\n"
)


def read_position(
    token: str | None = None,
    token_data: str | None = None,
    at: str | None = None,
    after_invalidate: bool = False,
) -> Checkpoint:
    """The position that the options of ``set`` name, as a record of no scope and no owner.

    ``token`` is a resume token in Extended JSON, ``token_data`` the hexadecimal ``_data`` of one,
    ``at`` an ISO 8601 time with its zone: everything from that second on is handled again.
    ``after_invalidate`` says that the token is an invalidate event's.
    """
    if sum(option is not None for option in (token, token_data, at)) != 1:
        refuse("", "give exactly one of --token, --token-data and --at")
    nowhere = Checkpoint.nowhere("")
    if at is not None:
        if after_invalidate:
            refuse("--after-invalidate", "needs the token of the invalidate event, not a time")
        return replace(nowhere, kind=CheckpointKind.IDLE, cluster_time=_timestamp(at))
    chosen = _token(token) if token is not None else _token_of_data(token_data or "")
    return replace(
        nowhere,
        # Any other token may be an event's or a post-batch one.
        kind=CheckpointKind.INVALIDATE if after_invalidate else CheckpointKind.IDLE,
        event_token=chosen if after_invalidate else None,
        high_water=chosen,
        cluster_time=chosen.cluster_time,
    )


async def list_positions(store: CheckpointStore, *, now: datetime) -> str:
    """A table of every stored position, by scope name, with the number of its gaps."""
    known = [each for each in await store.list() if not each.is_reset]
    found = [(each, len(await store.gaps(each.scope))) for each in known]
    return table(found, now) if found else "No checkpoints are stored.\n"


async def show_position(
    store: CheckpointStore, scope: str, *, now: datetime, as_json: bool = False
) -> str:
    """Every field of a scope's checkpoint, tokens whole, and the scope's gaps.

    As JSON it is the record as stored, with the gaps under ``gaps``. A scope may have gaps and no
    checkpoint, as after a reset; its name then stands in for the record.
    """
    checkpoint, gaps = await store.load(scope), await store.gaps(scope)
    if checkpoint is not None and checkpoint.is_reset:
        checkpoint = None
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
    position: Checkpoint,
    *,
    now: datetime,
    dry_run: bool = False,
) -> str:
    """Makes the scope resume at ``position``; shows the record before and after.

    It also replaces, and so repairs, a record that cannot be read.
    """
    before, text, epoch = await _before(store, scope, now)
    if epoch is not None and epoch > LARGEST:
        refuse(f"scope {scope!r}", "its epoch is the greatest there is; reset it, then set it")
    after = replace(
        position,
        scope=scope,
        cluster=before.cluster if before else "",
        fingerprint=before.fingerprint if before else "",
        epoch=_seconds(now) if epoch is None else epoch,
        sequence=1,
        saved_at=now,
        owned={CHOSEN: ""},
    )
    if not dry_run:
        advice = "Look at it again, and repeat"
        if epoch is None:
            advice = "Remove it first with 'tailrace checkpoints reset', then set it"
        await _save(store, after, f"nothing was set: {{}}. {advice}")
    end = _DRY_RUN if dry_run else f"Stored. {_FENCED}"
    return f"Before:\n{text}\nAfter:\n{details(after, now)}\n{end}"


async def reset_position(
    store: CheckpointStore, scope: str, *, now: datetime, dry_run: bool = False
) -> str:
    """Removes the scope's checkpoint, readable or not, so that it starts at its ``start_at``."""
    before, text, epoch = await _before(store, scope, now)
    if before is None and epoch is not None:
        _refuse_unknown(scope)
    if dry_run:
        return f"Before:\n{text}\n{_DRY_RUN}"
    if epoch is None or epoch > LARGEST:
        await store.reset(scope)
        epoch = _seconds(now)
    after = replace(Checkpoint.nowhere(scope), epoch=epoch, sequence=1, saved_at=now)
    await _save(store, after, "nothing was reset: {}. Look at it again, and repeat")
    return f"Before:\n{text}\nForgotten: the scope starts at its start_at the next time. {_FENCED}"


async def _before(
    store: CheckpointStore, scope: str, now: datetime
) -> tuple[Checkpoint | None, str, int | None]:
    """The scope's checkpoint, its text, and the epoch that fences the scope's present owner.

    The epoch is ``None`` where the record cannot be read.
    """
    try:
        found = await store.load(scope)
    except CheckpointCorrupt as error:
        return None, f"(unreadable) {error}\n", None
    if found is None or found.is_reset:
        # 1 is the epoch of a daemon that has not saved anything yet.
        return None, "(nothing)\n", found.epoch + 1 if found else 2
    return found, details(found, now), found.epoch + 1


async def _save(store: CheckpointStore, checkpoint: Checkpoint, refusal: str) -> None:
    try:
        await store.save(checkpoint)
    except CheckpointFenced as error:
        problem = Problem(f"scope {checkpoint.scope!r}", refusal.format(error))
        raise ConfigurationError(problem) from error


def _seconds(now: datetime) -> int:
    """An epoch above any that a daemon counted up to."""
    return int(now.timestamp())


def _token(text: str) -> ResumeToken:
    try:
        token = ResumeToken.from_json(text)
    except ValueError as error:
        refuse("--token", f'{error}. Give a document, as {{"_data": "8265..."}}')
    if not token.document:
        refuse("--token", "is an empty document")
    return token


def _token_of_data(data: str) -> ResumeToken:
    if not _HEX.match(data.strip()):
        refuse("--token-data", "is not hexadecimal; give a token of another form with --token")
    return ResumeToken.of({"_data": data.strip()})


def _timestamp(text: str) -> Timestamp:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        refuse("--at", f"{text!r} is not an ISO 8601 time, as 2026-11-30T12:00:00Z ({error})")
    if moment.tzinfo is None:
        refuse("--at", f"{text!r} has no time zone: write Z for UTC, or an offset as +02:00")
    try:
        # Whole seconds, rounded down, so that no change is lost. 1 is the first increment.
        return Timestamp(int(moment.astimezone(UTC).timestamp()), 1)
    except (ValueError, OverflowError) as error:
        refuse("--at", f"{text!r} is no time that MongoDB can have ({error})")


def _refuse_unknown(scope: str) -> NoReturn:
    refuse(
        f"scope {scope!r}",
        "has no checkpoint; 'tailrace checkpoints list' shows those that are stored",
    )
