"""What is compared, and what a repair reads again."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace as Named
from typing import Any

import anyio
import bson
import pytest
from bson.timestamp import Timestamp

from tailrace.control.actions.repair import RepairPlan, repair_plan, repair_state
from tailrace.control.actions.verify import VERIFY, VerifyBody, comparable_of
from tailrace.control.outcome import ActionRefused
from tailrace.control.subject import Subject
from tailrace.engine import Routed, WatcherState
from tailrace.errors import CheckpointError
from tailrace.event import ChangeEvent
from tailrace.event.document_key import key_text
from tailrace.model import Scope, SnapshotProgress
from tailrace.model.snapshot import DocumentId, SnapshotMode, SnapshotState
from tailrace.model.verification import (
    ComparedCollection,
    Counts,
    Difference,
    Kind,
    Verification,
    VerificationRequest,
)
from tailrace.stores.memory import MemoryDeadLetters, MemoryDesiredStates, MemoryVerifications
from tailrace.verify.verifications import Verifications
from tests.guards import against_hanging
from tests.handlers import handler
from tests.unit.control.controlling import ask, control_of, no_server
from tests.unit.engine.changes import checkpoint
from tests.unit.engine.scripted_driver import ScriptedDriver
from tests.unit.engine.stores import ScriptedStore
from tests.unit.engine.watching import Watching, supervisor_of

NONE = MemoryDesiredStates()


def record(*differences: Difference, more: int = 0) -> Verification:
    found = Verification("orders", "copy", "1", 1, VerificationRequest(), "ann", datetime.now(UTC))
    for name in ("orders", "users"):
        kinds = [each.kind for each in differences if each.collection == f"shop.{name}"]
        counts = Counts().plus(equal=5, missing=more if name == "orders" else 0)
        for kind in kinds:
            counts = counts.plus(**{kind.value: 1})
        of = ComparedCollection("00" * 16, "shop", name, counts=counts)
        found = found.with_collection(of)
    return replace(found, keys=differences)


def difference(kind: Kind, id: Any, collection: str = "shop.orders") -> Difference:
    raw = bson.encode({"_id": id})
    text = key_text(raw).removeprefix('{"_id":').removesuffix("}")
    return Difference(collection, text, kind, (), Timestamp(1, 1), DocumentId(raw))


async def nothing(event: ChangeEvent) -> None: ...


def test_each_key_that_a_document_can_have_comes_alone() -> None:
    found = record(
        difference(Kind.MISSING, 1),
        difference(Kind.TOO_MANY, bson.Regex("a")),
        difference(Kind.DIFFERENT, "a", "shop.users"),
        replace(difference(Kind.TOO_MANY, 2), id=None, key="b'?'"),
    )
    assert repair_plan(found) == RepairPlan("copy", "1", 3, (), ("shop.orders b'?'",))


def test_a_collection_with_differences_that_are_not_listed_is_read_as_a_whole() -> None:
    users = difference(Kind.DIFFERENT, "a", "shop.users")
    plan = repair_plan(record(difference(Kind.MISSING, 1), users, more=1))
    assert plan == RepairPlan("copy", "1", 1, ("shop.orders",), ())
    assert plan.filter == "", "its end shows which documents are gone"


def test_nothing_is_repaired_where_nothing_differs() -> None:
    assert repair_plan(record()) is None


async def test_a_repair_is_not_replaced_while_its_scope_is_starting() -> None:
    """As after a reload: nothing is known of its snapshot before the run has begun."""
    snapshot = SnapshotProgress("5f3a", SnapshotMode.REQUESTED, SnapshotState.READING)
    before = replace(checkpoint(3).position, snapshot=snapshot)
    one = Watching(
        ScriptedDriver(),
        Routed(handler("copy", nothing), None),
        store=ScriptedStore(checkpoint(3, position=before)),
    )
    repaired, states = replace(record(), repair="5f3a"), []
    subject = Subject(one.watcher, "copy")
    for load in (None, one.watcher.claim.load(one.store), one.watcher.scope.desired.load(NONE)):
        if load is not None:
            await load
        states.append((repair_state(subject, repaired) or {})["state"])
    assert states == ["waiting", "reading", "reading"]
    assert repair_state(subject, replace(repaired, repair="5f3b")) == {
        "snapshot": "5f3b",
        "state": "replaced",
        "reason": "it has not begun, or another one has taken its place: verify again",
    }


async def test_a_request_of_one_scope_waits_for_no_request_of_another() -> None:
    """The store does not answer about that one: a record may be locked by somebody's shell."""

    class Silent(MemoryVerifications):
        async def load(self, scope: str) -> Sequence[Verification]:
            while scope == "orders":
                await anyio.sleep_forever()
            return await super().load(scope)

    watching = [
        Watching(
            ScriptedDriver(),
            Routed(handler("copy", nothing), None),
            scope=Scope(name, "shop", name),
            store=ScriptedStore(checkpoint(3)),
        )
        for name in ("orders", "users")
    ]
    for one in watching:
        await one.watcher.claim.load(one.store)
        one.watcher.status.enter(WatcherState.CAUGHT_UP)
    supervisor = supervisor_of(*watching)
    verifications = Verifications(
        lambda: supervisor.watchers, no_server, Silent(), MemoryDeadLetters()
    )
    control = replace(control_of(watching[0]), supervisor=supervisor, verifications=verifications)
    cancel = VerifyBody(action="cancel")
    async with anyio.create_task_group() as requests:
        requests.start_soon(ask, control, VERIFY, "orders", cancel)
        await anyio.wait_all_tasks_blocked()
        with against_hanging(), pytest.raises(ActionRefused, match="no verification to cancel"):
            await ask(control, VERIFY, "users", cancel)
        requests.cancel_scope.cancel()


def test_routes_that_take_no_rows_are_named() -> None:
    routed = Routed(handler("copy", nothing), lambda event: event.operation_type == "delete")
    plan = repair_plan(record(difference(Kind.MISSING, 1)), routed)
    assert plan is not None
    assert plan.text.endswith("take no 'read', so no documents come")


@pytest.mark.parametrize(
    ("handlers", "chosen", "compared"),
    [
        ("table log none", None, "table"),
        ("log other_log none", None, "log other_log"),
        ("table log", "log", "log"),
        ("none", None, ""),
        ("none table", "none", ""),
        ("topic", None, ""),
        ("topic", "topic", ""),
        ("topic log", None, "log"),
        ("topic table", None, "table"),
    ],
)
def test_a_log_is_compared_if_it_is_named_or_nothing_else_can_be(
    handlers: str, chosen: str | None, compared: str
) -> None:
    routed = [
        Named(
            name=name,
            handler=Named(
                comparison=name != "none" or None,
                is_log="log" in name,
                from_beginning=name == "topic",
            ),
        )
        for name in handlers.split()
    ]
    names = [chosen] if chosen else handlers.split()
    subject: Any = Named(watcher=Named(plan=Named(routed=routed)), handlers=names, handler=chosen)
    if not compared:
        with pytest.raises(ActionRefused, match="be asked for its rows"):
            comparable_of(subject)
    else:
        assert [each.name for each in comparable_of(subject)] == compared.split()


@pytest.mark.parametrize(
    ("handler", "full_document", "refused"),
    [
        ("topic", "updateLookup", ""),
        ("topic", None, "has no full_document"),
        ("table", "updateLookup", "name one of type kafka with --handler"),
        (None, "updateLookup", "name one of type kafka with --handler"),
    ],
)
def test_topics_are_read_from_their_beginning_if_that_is_asked_for(
    handler: str | None, full_document: str | None, refused: str
) -> None:
    routed = [
        Named(name=name, handler=Named(comparison=1, is_log=0, from_beginning=name == "topic"))
        for name in ("topic", "table")
    ]
    plan = Named(routed=routed, options=Named(full_document=full_document))
    names = [handler] if handler else ["topic", "table"]
    subject: Any = Named(watcher=Named(plan=plan, name="orders"), handlers=names, handler=handler)
    if refused:
        with pytest.raises(ActionRefused, match=refused):
            comparable_of(subject, from_beginning=True)
    else:
        assert [each.name for each in comparable_of(subject, from_beginning=True)] == [handler]


@pytest.mark.parametrize("action", ["start", "cancel", "pause", "repair"])
async def test_nothing_is_said_of_verifications_that_cannot_be_read(action: Any) -> None:
    """There may be one that goes on here as soon as the store answers."""

    class Away(MemoryVerifications):
        async def load(self, scope: str) -> Sequence[Verification]:
            raise CheckpointError("no primary")

    one = Watching(
        ScriptedDriver(), Routed(handler("copy", nothing), None), store=ScriptedStore(checkpoint(3))
    )
    await one.watcher.claim.load(one.store)
    one.watcher.status.enter(WatcherState.CAUGHT_UP)
    control = control_of(one)
    control.verifications.store = Away()
    with pytest.raises(ActionRefused, match=r"scope 'orders'.* try again") as refused:
        await ask(control, VERIFY, "orders", VerifyBody(action=action))
    assert refused.value.status == 503
