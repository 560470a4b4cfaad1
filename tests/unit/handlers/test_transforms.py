"""A transform: which documents a handler gets, and what becomes of its failures."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from tailrace import Batch, ChangeEvent, PermanentError, Refused
from tailrace.errors import ConfigurationError
from tailrace.handlers import check_handlers
from tailrace.testing import Changes, Harness, transformed
from tests.unit.config.files import minimal, parse

Document = dict[str, Any]


def large(documents: list[Document]) -> list[Document | None]:
    """Only those of at least 10, without the ``_id``, which stays."""
    return [{"twice": 2 * each["n"]} if each["n"] >= 10 else None for each in documents]


async def large_by_one(document: Document, event: ChangeEvent) -> Document | None:
    assert event.document_key == {"_id": document["_id"]}
    return {"twice": 2 * document["n"]} if document["n"] >= 10 else None


def failing(documents: list[Document]) -> list[Document]:
    for document in documents:
        if document["n"] == 13:
            raise ValueError(f"unlucky {document}")
    return documents


def told(events: Sequence[ChangeEvent | None]) -> list[Any]:
    return [
        each and (each.operation_type, each.full_document, each.full_document_before_change)
        for each in events
    ]


@pytest.mark.parametrize("function", [large, large_by_one])
async def test_what_a_function_leaves_out_is_not_inserted_and_is_deleted_if_it_was_there(
    function: Callable[..., Any],
) -> None:
    changes = Changes(before_change=True)
    small, big = changes.insert({"_id": 1, "n": 1}), changes.insert({"_id": 2, "n": 10})
    events = [small, big, changes.update(1, {"n": 11}), changes.update(2, {"n": 2})]
    events += [changes.read(1), changes.read(2), changes.delete(1)]
    found = await transformed(function, events)
    ten, eleven = {"_id": 2, "twice": 20}, {"_id": 1, "twice": 22}
    assert told(found) == [
        None,
        ("insert", ten, None),
        ("update", eleven, None),
        ("delete", None, ten),
        ("read", eleven, None),
        ("delete", None, None),
        ("delete", None, eleven),
    ]
    for event, made in zip(events, found, strict=True):
        assert made is None or (made.key, made.token) == (event.key, event.token)
        assert made is None or made.update_description is None


ENDLESS: Document = {}
ENDLESS["a"] = ENDLESS


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (None, "returned None for 1 documents"),
        ([], "returned 0 for 1 documents"),
        ([7], "returned a int, and not a document or None"),
        ([{"a": 2**64}], "returned a document that BSON cannot store"),
        ([ENDLESS], "returned a document that BSON cannot store"),
    ],
)
async def test_an_answer_that_is_no_document_is_an_error_that_names_the_function(
    answer: Any, message: str
) -> None:
    def wrong(documents: list[Document]) -> Any:
        return answer if documents else []

    with pytest.raises(PermanentError, match=f"transform '.*wrong' {message}"):
        await transformed(wrong, [Changes().insert({"_id": 1})])


class Table:
    """Holds documents, with its position if it has ``begin``; refuses those of 20."""

    def __init__(self) -> None:
        self.rows: dict[int, Any] = {}
        self.calls: list[list[str]] = []

    async def write(self, batch: Batch) -> None:
        self.calls.append([event.operation_type for event in batch])
        documents = [event.full_document for event in batch]
        refused = [at for at, each in enumerate(documents) if each and each.get("twice") == 40]
        if refused:
            raise Refused(dict.fromkeys(refused, "twenty"))
        for event, document in zip(batch, documents, strict=True):
            assert event.document_key is not None
            self.rows[event.document_key["_id"]] = document


class Positioned(Table):
    position: str | None = None

    async def begin(self, scope: Any) -> str | None:
        return self.position

    async def write(self, batch: Batch) -> None:
        await super().write(batch)
        assert batch.former == self.position
        self.position = batch.position


@pytest.mark.parametrize("table", [Table(), Positioned()], ids=["plain", "with a position"])
async def test_events_that_are_left_out_do_not_confuse_refusals_and_positions(table: Table) -> None:
    keys: Mapping[str, Any] = {"transform": f"{__name__}:large"}
    if isinstance(table, Positioned):
        keys |= {"on_failure": "dead_letter"}
    async with Harness(lambda: table, handler=keys) as harness:
        for n in (1, 10, 2, 20, 3, 30):
            harness.changes.insert({"_id": n, "n": n})
        await harness.handled()
        letters = [(each.event.full_document, each.reason) for each in await harness.dead_letters()]
    assert [document for document, _ in letters] == [{"_id": 20, "n": 20}]
    assert "twenty" in letters[0][1]
    rows = {key: row for key, row in table.rows.items() if row is not None}
    assert rows == {10: {"_id": 10, "twice": 20}, 30: {"_id": 30, "twice": 60}}
    kinds = {kind for call in table.calls for kind in call}
    assert kinds == ({"insert", "delete"} if isinstance(table, Positioned) else {"insert"})


async def test_a_failure_is_that_of_its_event_whose_dead_letter_has_no_plain_values() -> None:
    seen: list[Any] = []

    async def write(events: Sequence[ChangeEvent]) -> None:
        seen.extend(event.full_document for event in events)

    fields = {"mask": {"ssn": "***"}, "rename": {"n": "number"}}
    keys = {"transform": f"{__name__}:failing", "fields": fields}
    async with Harness(write, handler=keys) as harness:
        for n in (12, 13, 14):
            harness.changes.insert({"_id": n, "n": n, "ssn": "123-45-6789"})
        await harness.handled()
        (letter,) = await harness.dead_letters()
    assert [each["number"] for each in seen] == [12, 14]
    assert seen[0] == {"_id": 12, "number": 12, "ssn": "***"}
    assert letter.event.full_document == {"_id": 13, "n": 13, "ssn": "***"}
    assert "unlucky {'_id': 13, 'n': 13, 'ssn': '***'}" in letter.reason


def no_parameters() -> list[Document]:
    return []


def other_parameters(rows: list[Document]) -> list[Document]:
    return rows


def returns_nothing(documents: list[Document]) -> None: ...


def forgets_to_return(documents: list[Document]) -> Any:
    documents.sort(key=str)


async def forgets_to_return_later(documents: list[Document], events: list[Any]) -> Any: ...


def changes_it_in_place(document: Document) -> Any:
    document["n"] = 1


async def changes_it_later(document: Document) -> Any:
    if document:
        return
    document["n"] = 1


def only_by_name(*, documents: list[Document]) -> Any:
    return documents


def any_number(*documents: list[Document]) -> Any:
    return documents


def exits(documents: list[Document]) -> list[Document]:
    raise SystemExit(7) if not documents else ValueError(documents)


def yields(documents: list[Document]) -> Any:
    yield from documents


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("large", ""),
        ("large_by_one", ""),
        ("missing", "cannot be imported"),
        ("Table", "is not a function"),
        ("no_parameters", "must take (documents), (documents, events), (document) or"),
        ("other_parameters", "it is other_parameters(rows: list["),
        ("returns_nothing", "returns no document: return a list with one, or None for"),
        ("forgets_to_return", "returns no document"),
        ("forgets_to_return_later", "returns no document"),
        ("changes_it_in_place", "returns no document: return one, or None for"),
        ("changes_it_later", "returns no document: return one"),
        ("only_by_name", "must take (documents)"),
        ("any_number", "must take (documents)"),
        ("exits", "returns no document"),
        ("yields", "is a generator"),
    ],
)
def test_a_target_that_cannot_be_a_transform_is_a_problem_of_the_configuration(
    target: str, message: str
) -> None:
    handler = {"type": "jsonl", "path": "x", "transform": f"{__name__}:{target}"}
    scope = {"full_document": "lookup"}
    settings = parse(minimal(handler=handler, scope=scope, route={"handlers": ["mine"]}))
    problems = check_handlers(settings.handlers, settings.scopes, settings.routes)
    if not message:
        assert problems == []
        return
    assert [each.path for each in problems] == ["handlers.mine.transform"]
    assert message in problems[0].message
    assert f"{target}'" in problems[0].message


def test_a_transform_needs_the_documents_of_updates() -> None:
    handler = {"type": "jsonl", "path": "x", "transform": f"{__name__}:large"}
    settings = parse(minimal(handler=handler, route={"handlers": ["mine"]}))
    (problem,) = check_handlers(settings.handlers, settings.scopes, settings.routes)
    assert problem.path == "scopes[0].full_document"
    assert "needs whole documents" in problem.message


async def test_a_transform_that_cannot_be_imported_stops_the_start() -> None:
    async def write(events: Sequence[ChangeEvent]) -> None: ...

    with pytest.raises(ConfigurationError, match=r"handlers\.handler\.transform"):
        async with Harness(write, handler={"transform": "missing_module:f"}):
            pass
