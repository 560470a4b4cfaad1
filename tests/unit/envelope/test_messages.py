"""Messages of events: native, documents, and that they are made once for all handlers."""

import gc
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace import Batch, ScopeContext
from tailrace.envelope import ENVELOPES, Message, messages
from tailrace.envelope.identity import event_id
from tailrace.event import ChangeEvent
from tailrace.event.batch import Events
from tailrace.event.json_lines import json_lines
from tests.scripted.wire import in_order
from tests.unit.envelope.changes import IDS, OPERATIONS, change
from tests.unit.event.documents import batch_of, documents, quick
from tests.unit.event.events import events

SCOPE: Any = ScopeContext("orders", 1, 1, None, None)  # type: ignore[arg-type]


def message(envelope: str, event: dict[str, Any], **options: bool) -> Message:
    return messages([ChangeEvent(in_order(event))], "orders", envelope, **options)[0]


def test_an_unknown_envelope_is_refused_with_the_names_of_the_four() -> None:
    batch = Batch([], SCOPE)
    with pytest.raises(ValueError, match=r"'avro'.*native, debezium, cloudevents, document"):
        batch.messages("avro")


@pytest.mark.parametrize("canonical", [False, True], ids=["relaxed", "canonical"])
@pytest.mark.parametrize("operation", [*OPERATIONS, "drop"])
@pytest.mark.parametrize("value", IDS.values(), ids=IDS)
def test_a_native_message_is_the_line_that_jsonl_writes(
    value: Any, operation: str, canonical: bool
) -> None:
    event = ChangeEvent(in_order(change(operation, value)))
    made = messages([event], "orders", "native", canonical=canonical)[0]
    assert made.value == b"".join(json_lines([event.raw], canonical=canonical)).rstrip()
    assert made.key == (event.key_text.encode() if event.key_text else None)


def pairs(text: bytes | None) -> Any:
    """JSON with the order and repetitions of its keys."""
    return json.loads(text or b"", object_pairs_hook=list)


USUAL = st.builds(
    lambda document, described: {
        **change("insert", 7),
        "fullDocument": document,
        **({"updateDescription": described} if described else {}),
    },
    documents,
    documents,
)


@quick
@given(st.lists(events() | documents | USUAL, max_size=5))
def test_native_messages_are_lines_whatever_a_pipeline_made_of_the_events(
    some: list[dict[str, Any]],
) -> None:
    """Except for the form of a number, where a document cannot be encoded in C."""
    raw = [in_order(event) for event in some]
    made = messages([ChangeEvent(each) for each in raw], "orders", "native")
    lines = b"".join(json_lines(raw, canonical=False)).splitlines()
    assert [pairs(each.value) for each in made] == [pairs(line) for line in lines]


@pytest.mark.parametrize("operation", ["insert", "update", "replace", "read"])
def test_a_document_message_is_the_document_alone(operation: str) -> None:
    made = message("document", change(operation, 7))
    assert made[:2] == (b'{"_id":{"$numberInt":"7"}}', b'{"_id":7,"state":"new"}')
    canonical = message("document", change(operation, 7), canonical=True)
    assert canonical.value == b'{"_id":{"$numberInt":"7"},"state":"new"}'


def test_a_delete_is_a_document_message_without_a_value() -> None:
    made = message("document", change("delete", 7))
    assert made[:2] == (b'{"_id":{"$numberInt":"7"}}', None)


@pytest.mark.parametrize("operation", ["drop", "rename", "invalidate", "snapshotBegin", "new"])
def test_an_event_without_a_document_is_no_document_message(operation: str) -> None:
    assert message("document", change(operation, 7)).is_empty


@pytest.mark.parametrize("image", [{}, {"fullDocument": None}], ids=["absent", "null"])
def test_an_update_without_its_document_is_not_taken_for_a_delete(image: dict[str, Any]) -> None:
    event = {**change("update", 7), "fullDocument": 0, **image}
    assert message("document", event).is_empty


@quick
@given(st.lists(events() | documents, max_size=5), st.sampled_from([*ENVELOPES]), st.booleans())
def test_every_event_has_a_message_of_json_at_its_index(
    some: list[dict[str, Any]], envelope: str, canonical: bool
) -> None:
    """Whatever a pipeline made of it."""
    given = [ChangeEvent(in_order(event)) for event in some]
    made = messages(given, "orders", envelope, canonical=canonical)
    alone = [messages([each], "orders", envelope, canonical=canonical)[0] for each in given]
    assert [each.key for each in made] == [each.key for each in alone]
    ids = [event_id(each) for each in given]
    assert all(one.id == own or one.is_empty for one, own in zip(made, ids, strict=True))
    for one in made:
        for text in (one.key, one.value, one.data):
            assert text is None or json.loads(text) is not None
    if envelope != "debezium":  # which has the time at which it was made
        assert made == alone


def in_flight(count: int) -> Any:
    """A slice as it comes from the wire."""
    return batch_of([change("insert", number) for number in range(count)]).slices()[0]


@pytest.mark.parametrize("envelope", ENVELOPES)
def test_messages_are_made_once_however_many_handlers_want_them(envelope: str) -> None:
    slice_ = in_flight(10)
    first = Batch(Events([slice_]), SCOPE).messages(envelope)
    filtered = slice_.events()[3:7]  # another handler, whose route leaves some out, and a retry
    again = Batch([event.fresh() for event in filtered], SCOPE).messages(envelope)
    assert list(map(id, again)) == list(map(id, first[3:7]))
    assert Batch(Events([slice_]), SCOPE).messages(envelope) == first


def test_envelopes_and_forms_have_messages_of_their_own() -> None:
    slice_ = in_flight(2)
    batch = Batch(Events([slice_]), SCOPE)
    made = [batch.messages(envelope) for envelope in ENVELOPES]
    made.append(batch.messages("native", canonical=True))
    assert len({one[0].value for one in made}) == len(made)


def test_a_batch_that_is_known_in_part_makes_the_rest() -> None:
    slice_ = in_flight(6)
    some = Batch(slice_.events()[2:4], SCOPE).messages("native")
    whole = Batch(Events([slice_]), SCOPE).messages("native")
    assert [json.loads(one.value or b"")["documentKey"]["_id"] for one in whole] == [*range(6)]
    assert list(map(id, whole[2:4])) == list(map(id, some))


def test_messages_are_released_with_their_slice() -> None:
    def alive() -> int:
        gc.collect()
        return sum(type(each) is Message for each in gc.get_objects())

    before = alive()
    slice_ = in_flight(10)
    for envelope in ENVELOPES:
        Batch(Events([slice_]), SCOPE).messages(envelope)
    assert alive() >= before + 40
    del slice_
    assert alive() == before


def test_an_event_of_a_users_test_has_messages_too() -> None:
    event = ChangeEvent.from_document(change("insert", 7))
    assert Batch([event], SCOPE).messages() == Batch([event], SCOPE).messages()
