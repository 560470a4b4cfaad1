"""Change events as Extended JSON, with what all of them share written without decoding.

The usual event is a document with a few fields around it, whose places the layout knows. They take
as long to decode and encode as a document of 500 bytes. Other events are converted as a whole, to
the same JSON.
"""

from collections.abc import Sequence

from tailrace.event import ChangeEvent
from tailrace.event.bson import INT32, OBJECT_ID
from tailrace.event.extended_json import LAST_MS, date_text, written
from tailrace.event.json_lines import RELAXED, Form, json_texts
from tailrace.event.memo import Memo

_DATA = b"\x02_data\0"
_DATA_AT = 4 + len(_DATA) + 4
_OBJECT_ID_KEY = b"\x16\0\0\0%c_id\0" % OBJECT_ID
_OBJECT_ID_KEY_BYTES = len(_OBJECT_ID_KEY) + 12 + 1

Frame = tuple[bytes, bytes, bool]
"""What stands before and after the document, and whether an update description follows."""


def event_texts(events: Sequence[ChangeEvent], form: Form) -> list[bytes]:
    """Each event as Extended JSON, as :func:`json_texts` makes it of its BSON. Raises the same."""
    if form is not RELAXED:
        return json_texts([event.raw for event in events], form)
    documents = list[bytes]()
    frames = [_frame(event, documents) for event in events]
    texts = iter(json_texts(documents, form))
    return [
        next(texts)
        if frame is None
        else b'%b%b%b,"updateDescription":%b}' % (frame[0], next(texts), frame[1], next(texts))
        if frame[2]
        else b"%b%b%b}" % (frame[0], next(texts), frame[1])
        for frame in frames
    ]


def _frame(event: ChangeEvent, documents: list[bytes]) -> Frame | None:
    """Appends what is to be converted: the documents in the event, or the event as a whole.

    ``None`` for an event that has other fields, another order or another kind of id.
    """
    (
        end, token, token_end, operation, seconds, increment, wall_time, image, image_end,
        namespace, key, key_end, update, update_end, before_change, _, others,
    ) = event.parts  # fmt: skip
    between = event.between
    data = token_data(between(token, token_end))
    usual = end >= 0 and not others and before_change < 0 and 0 <= image < key
    if data is None or not usual or (wall_time and not 0 <= wall_time <= LAST_MS):
        documents.append(event.raw)
        return None
    documents.append(between(image, image_end))
    if update >= 0:
        documents.append(between(update, update_end))
    wall = b"" if wall_time is None else b',"wallTime":{"$date":"%b"}' % time_text(wall_time)
    before = (
        b'{"_id":{"_data":"%b"},"operationType":"%b",'
        b'"clusterTime":{"$timestamp":{"t":%d,"i":%d}}%b,"fullDocument":'
    ) % (data, operation, seconds, increment, wall)
    return before, _places[namespace] % _key(between(key, key_end)), update >= 0


def token_data(token: bytes) -> bytes | None:
    """The text of a resume token; ``None`` for an id of another form."""
    if token.startswith(_DATA, 4) and _DATA_AT + INT32(token, _DATA_AT - 4)[0] + 1 == len(token):
        data = token[_DATA_AT:-2]
        return data if data.isalnum() else None
    return None


def time_text(ms: int) -> bytes:
    """Milliseconds from 1970 to 9999 as RFC 3339."""
    seconds, ms = divmod(ms, 1000)
    return b"%b.%03dZ" % (_seconds[seconds], ms) if ms else b"%bZ" % _seconds[seconds]


def _key(key: bytes) -> bytes:
    if len(key) == _OBJECT_ID_KEY_BYTES and key.startswith(_OBJECT_ID_KEY):
        return b'{"_id":{"$oid":"%b"}}' % key[-13:-1].hex().encode()
    return written(key, RELAXED.writers).encode()


# Events that follow one another are mostly of the same second and collection.
_seconds: Memo[int, bytes] = Memo(lambda seconds: date_text(seconds * 1000)[:-1].encode())
_places: Memo[bytes, bytes] = Memo(
    lambda ns: b',"ns":%b,"documentKey":%%b' % json_texts([ns], RELAXED)[0].replace(b"%", b"%%")
)
