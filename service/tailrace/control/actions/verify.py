"""Compares the rows of a handler's destination with the source, and shows how far that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from anyio import to_thread
from pydantic import Field

from tailrace.control.action import Action
from tailrace.control.bodies import HandlerQuery, Metavar
from tailrace.control.outcome import ActionRefused, Done

if TYPE_CHECKING:
    from tailrace.control.control import Control
    from tailrace.control.subject import Subject
    from tailrace.engine import Routed
    from tailrace.model.verification import Difference, Verification, VerificationRequest


_MOST_REASONS = 16
"""Of so many verifications it is remembered why rows differ."""


class VerifyBody(HandlerQuery):
    """Compares the rows of a destination with the documents of the source, beside the stream."""

    action: Literal["start", "pause", "resume", "cancel", "repair"] = "start"
    """What to do with the verification. `repair` brings that handler alone the keys again that the
    last one found to differ: their documents, or a delete."""
    collections: Annotated[list[str], Metavar("NAME")] = Field(default=[], max_length=1000)
    """`start`: only these collections (`name` or `database.name`); without any, all."""
    filter: Annotated[str, Metavar("JSON")] = ""
    """`start`: only documents that match this filter, in Extended JSON. Rows without a document
    are not looked for then."""
    keys: Annotated[list[str], Metavar("JSON")] = Field(default=[], max_length=1000)
    """`start`: only the documents with these `_id`s, each as Extended JSON."""
    sample: Annotated[float, Metavar("SHARE")] = Field(default=1.0, gt=0, le=1)
    """`start`: only this share of the documents, above 0 and up to 1, chosen at random."""
    documents_per_second: Annotated[float, Metavar("N")] = Field(default=0.0, ge=0)
    """`start`: compare at most so many documents a second; 0: no limit."""
    values: bool = False
    """`start`: tell the values that differ, too. They are stored with the result."""
    from_beginning: bool = False
    """`start`: read the topics of a `kafka` handler from their beginning to the last committed
    message, and compare the last message of each key. Without it such handlers are left out."""
    dry_run: bool = False
    """`repair`: only say what would come again."""


class LastVerificationQuery(HandlerQuery):
    """How far the last verification is, and what it has found: of a handler, or of all that
    `POST` without a handler compares."""

    keys: bool = True
    """`false`: without the list of the rows that differ, which may be long."""


async def _verify(control: Control, scope: str, body: VerifyBody, by: str) -> Done:
    """Begins, pauses, resumes or cancels verifications, or repairs what they have found."""
    from tailrace.control.follower import require_adopted, require_here

    subject = control.subject(scope, body.handler)
    require_here(subject.watcher)
    async with control.verifications.locks[scope]:
        await control.verifications.adopt(subject.watcher)
        require_adopted(subject.watcher, control.verifications)
        if body.action == "repair":
            from tailrace.control.actions.repair import repair

            return await repair(control, subject, by, dry_run=body.dry_run)
        if body.action != "start":
            return await _change(control, subject, body.action)
        return await _start(control, subject, body, by)


async def _change(control: Control, subject: Subject, action: str) -> Done:
    from tailrace.errors import CheckpointError, describe
    from tailrace.model.verification import VerificationState

    states = {
        "pause": (VerificationState.RUNNING, VerificationState.PAUSED),
        "resume": (VerificationState.PAUSED, VerificationState.RUNNING),
    }
    before, after = states.get(action, (None, VerificationState.CANCELLED))
    runs = [
        run
        for name in subject.handlers
        if (run := control.verifications.running(subject.watcher.name, name)) is not None
        and before in (None, run.record.state)
        and not run.record.is_over
    ]
    if not runs:
        what = f"that is {before.value}" if before is not None else "to cancel"
        raise ActionRefused(409, f"{subject} has no verification {what}")
    for run in runs:
        try:
            await control.verifications.change(run, after)
        except CheckpointError as error:
            raise ActionRefused(503, f"{describe(error)}: try again when it answers") from error
    names = [run.record.handler for run in runs]
    message = f"{subject}: its verification is {after.value}"
    return Done(
        message, (before or VerificationState.RUNNING).value, after.value, {"handlers": names}
    )


async def _start(control: Control, subject: Subject, body: VerifyBody, by: str) -> Done:
    from tailrace.errors import CheckpointError, describe

    watcher, chosen = subject.watcher, comparable_of(subject, from_beginning=body.from_beginning)
    for routed in chosen:
        run = control.verifications.running(watcher.name, routed.name)
        if run is not None and (run.record.is_over or not run.record.is_round):
            message = f"handler {routed.name!r} is being verified: wait for its end, or cancel it"
            raise ActionRefused(409, message)
    if watcher.plan.options.pipeline:
        message = f"scope {watcher.name!r} has a pipeline, so its rows are not whole documents"
        raise ActionRefused(422, f"{message}: they cannot be compared with the source")
    request = _request(body)
    await _require_no_repair(control, subject, [routed.name for routed in chosen])
    records = [await _prepared(control, subject, request, routed, by) for routed in chosen]
    for record in records:
        try:
            await control.verifications.start(record)
        except CheckpointError as error:
            raise ActionRefused(503, describe(error)) from error
    names = [routed.name for routed in chosen]
    message = f"scope {watcher.name!r}: the rows of {', '.join(names)} are compared"
    message += f"; GET /scopes/{watcher.name}/verify shows how far that is"
    return Done(message, "", "running", {"handlers": names})


async def _require_no_repair(control: Control, subject: Subject, handlers: Sequence[str]) -> None:
    """Refuses to replace a verification whose differences a snapshot still brings."""
    from tailrace.control.actions.repair import GOING_ON, repair_state
    from tailrace.control.subject import Subject

    watcher = subject.watcher
    for record in await control.verifications.last(watcher.name, handlers):
        state = repair_state(Subject(watcher, record.handler or None), record)
        if state is not None and state["state"] in GOING_ON:
            what = f"handler {record.handler!r} is being repaired by snapshot {record.repair}"
            cancel = f"'tailrace snapshot cancel {watcher.name} --handler {record.handler}' ends it"
            raise ActionRefused(
                409, f"{what}, which is {state['state']}: wait for its end; {cancel}"
            )


def comparable_of(subject: Subject, *, from_beginning: bool = False) -> Sequence[Routed]:
    """The handlers that are meant, and can be asked. Raises :class:`ActionRefused`."""
    meant = _meant(subject)
    chosen = [each for each in meant if from_beginning or not each.handler.from_beginning]
    reads_topics = any(each.handler.from_beginning for each in chosen)
    if reads_topics:
        _require_documents(subject)
    if from_beginning and not reads_topics:
        message = f"{subject}: --from-beginning (from_beginning) is for a handler with topics"
        raise ActionRefused(422, f"{message}: name one of type kafka with --handler")
    if chosen:
        return chosen
    who = f"{subject}" if subject.handler is not None else f"no handler of {subject}"
    verb = "cannot" if subject.handler is not None else "can"
    why = "it can be of types that hold a row of each document, as docs/verify.md lists them"
    if meant:
        why = "--from-beginning (from_beginning: true) reads its topics from their beginning"
    raise ActionRefused(422, f"{who} {verb} be asked for its rows: {why}")


def _require_documents(subject: Subject) -> None:
    """Raises :class:`ActionRefused` if the messages of updates have no documents."""
    from tailrace.config.scopes import WHOLE_DOCUMENTS

    watcher = subject.watcher
    if watcher.plan.options.full_document not in WHOLE_DOCUMENTS:
        raise ActionRefused(
            422,
            f"scope {watcher.name!r} has no full_document, so the messages of its updates have no "
            f"documents that could be compared: set it to one of {', '.join(WHOLE_DOCUMENTS)}",
        )


def _meant(subject: Subject) -> Sequence[Routed]:
    """The handlers that are meant, and can be compared in some way."""
    meant = [routed for routed in subject.watcher.plan.routed if routed.name in subject.handlers]
    comparable = [routed for routed in meant if routed.handler.comparison is not None]
    if subject.handler is not None:
        return comparable
    # A log is read as a whole, and may have begun late: only if it is meant.
    tables = [
        each for each in comparable if not (each.handler.is_log or each.handler.from_beginning)
    ]
    return tables or comparable


def _request(body: VerifyBody) -> VerificationRequest:
    from tailrace.event.key import read_key
    from tailrace.model.verification import VerificationRequest
    from tailrace.snapshot.filter import canonical

    if body.keys and (body.filter or body.sample < 1):
        raise ActionRefused(400, "keys cannot be combined with filter or sample: name one of them")
    try:
        for key in body.keys:
            read_key(key)
        matching = canonical(body.filter)
    except ValueError as error:
        raise ActionRefused(400, str(error)) from error
    return VerificationRequest(
        tuple(body.collections),
        matching,
        tuple(body.keys),
        body.sample,
        body.documents_per_second,
        body.values,
        body.from_beginning,
    )


async def _prepared(
    control: Control, subject: Subject, request: VerificationRequest, routed: Routed, by: str
) -> Verification:
    from tailrace.errors import CommandFailed, DriverError, ScopeHalted, describe
    from tailrace.snapshot.error_codes import is_refusal
    from tailrace.snapshot.plan import NothingToRead
    from tailrace.verify.planning import none_readable

    try:
        record = await control.verifications.prepare(subject.watcher, routed, request, by)
    except (NothingToRead, ScopeHalted) as error:
        raise ActionRefused(409, str(error)) from error
    except DriverError as error:
        final = isinstance(error, CommandFailed) and is_refusal(error)
        raise ActionRefused(400 if final else 503, describe(error)) from error
    if reason := none_readable(record.collections.values(), routed.name):
        raise ActionRefused(409, reason)
    return record


async def _last(
    control: Control, scope: str, query: LastVerificationQuery, by: str
) -> Mapping[str, Any]:
    from tailrace.control.actions.repair import repair_state
    from tailrace.control.subject import Subject
    from tailrace.errors import CheckpointError, describe
    from tailrace.verify.progress import scope_document, verification_document

    subject, verifications = control.subject(scope, query.handler), control.verifications
    try:
        meant = [routed.name for routed in _meant(subject)]
        records = await verifications.last(scope, meant or subject.handlers)
    except CheckpointError as error:
        raise ActionRefused(503, describe(error)) from error
    parts = []
    for record in records if query.keys else [replace(each, keys=()) for each in records]:
        run = verifications.running(scope, record.handler)
        followed = verifications.followed(scope, record.handler)
        trouble = run.trouble if run is not None else ""
        repair = repair_state(Subject(subject.watcher, record.handler or None), record)
        why = await _reasons(control, subject, record) if query.keys else {}
        parts.append((record, trouble, followed.snapshot, repair, why))

    def told() -> Mapping[str, Any] | None:
        return scope_document([verification_document(*each) for each in parts])

    return {"scope": scope, "verification": await to_thread.run_sync(told)}


async def _reasons(
    control: Control, subject: Subject, record: Verification
) -> Mapping[Difference, str]:
    """Why rows differ, by a verification that is over: it is asked for once."""
    from tailrace.errors import CheckpointError, DeadLetterError
    from tailrace.why.differences import reasons
    from tailrace.why.followed import followed

    scope = subject.watcher.name
    if not (record.is_over and record.keys and scope in control.inquiries):
        return {}
    if record.id not in control.reasons:
        inquiry = replace(control.inquiries[scope], followed=followed(subject.watcher))
        try:
            told = await reasons(inquiry, record.handler, record.keys)
        except (CheckpointError, DeadLetterError):
            return {}
        while len(control.reasons) >= _MOST_REASONS:
            del control.reasons[next(iter(control.reasons))]
        control.reasons[record.id] = told
    return control.reasons[record.id]


VERIFY = Action("POST", "/scopes/{name}/verify", VerifyBody, _verify)
LAST_VERIFICATION = Action("GET", "/scopes/{name}/verify", LastVerificationQuery, _last)
