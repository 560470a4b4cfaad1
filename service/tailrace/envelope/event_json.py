"""Change events as Extended JSON, with what all of them share written without decoding.

The usual event is a document with a few fields around it, whose places the layout knows. They take
as long to decode and encode as a document of 500 bytes. Other events are converted as a whole, to
the same JSON.
"""

from collections.abc import Sequence

from tailrace.envelope.identity import event_id, key_of, token_data
from tailrace.event import ChangeEvent
from tailrace.event.bson import OBJECT_ID
from tailrace.event.document_key import id_alone
from tailrace.event.extended_json import LAST_MS, date_text, written
from tailrace.event.json_lines import CANONICAL, RELAXED, Form, json_texts
from tailrace.event.memo import Memo

_OBJECT_ID_KEY = b"\x16\0\0\0%c_id\0" % OBJECT_ID
_OBJECT_ID_KEY_BYTES = len(_OBJECT_ID_KEY) + 12 + 1


EventText = tuple[bytes, str, bytes | None]
"""An event as Extended JSON, its id, and ``_id`` of its document as canonical Extended JSON."""

Frame = tuple[bytes, bytes, int, int, bytes, bool, bytes, bytes, bytes, bool]
"""Token, operation, cluster time, wall time, whether there is a document, namespace, document key,
its ``_id`` in canonical form, and whether there is an update description."""

_USUAL = (
    b'{"_id":{"_data":"%b"},"operationType":"%b","clusterTime":{"$timestamp":{"t":%d,"i":%d}}%b,'
    b'%b"ns":%b,"documentKey":%b%b}'
)


def event_texts(events: Sequence[ChangeEvent], form: Form) -> list[EventText]:
    """Each event as :func:`json_texts` makes it of its BSON. Raises the same."""
    documents = list[bytes]()
    frames = [_frame(event, form, documents) for event in events]
    texts = iter(json_texts(documents, form))
    made: list[EventText] = []
    for event, frame in zip(events, frames, strict=True):
        if frame is None:
            made.append((next(texts), event_id(event), key_of(event)))
            continue
        token, operation, seconds, increment, wall, has_image, namespace, shown, key, updated = (
            frame
        )
        image = b'"fullDocument":%b,' % next(texts) if has_image else b""
        update = b',"updateDescription":%b' % next(texts) if updated else b""
        around = (token, operation, seconds, increment, wall, image, namespace, shown, update)
        made.append((_USUAL % around, token.decode(), key))
    return made


def _frame(event: ChangeEvent, form: Form, documents: list[bytes]) -> Frame | None:
    """Appends what is to be converted: the documents in the event, or the event as a whole.

    ``None`` for a whole one: it has other fields, another order or another kind of id.
    """
    (
        end, token, token_end, operation, seconds, increment, wall_time, image, image_end,
        namespace, key, key_end, update, update_end, before_change, _, others,
    ) = event.parts  # fmt: skip
    between = event.between
    usual = form is RELAXED and end >= 0 and before_change < 0 and image < key and not others
    data = token_data(between(token, token_end)) if usual else None
    if data is None or (wall_time and not 0 <= wall_time <= LAST_MS):
        documents.append(event.raw)
        return None
    if image >= 0:
        documents.append(between(image, image_end))
    if update >= 0:
        documents.append(between(update, update_end))
    wall = b"" if wall_time is None else b',"wallTime":{"$date":"%b"}' % time_text(wall_time)
    shown, canonical = _key(between(key, key_end))
    name = _namespaces[namespace]
    return (
        data, operation, seconds, increment, wall, image >= 0, name, shown, canonical, update >= 0
    )  # fmt: skip


def time_text(ms: int) -> bytes:
    """Milliseconds from 1970 to 9999 as RFC 3339."""
    seconds, ms = divmod(ms, 1000)
    return b"%b.%03dZ" % (_seconds[seconds], ms) if ms else b"%bZ" % _seconds[seconds]


def _key(key: bytes) -> tuple[bytes, bytes]:
    """A document key as relaxed Extended JSON, and its ``_id`` alone as canonical."""
    if len(key) == _OBJECT_ID_KEY_BYTES and key.startswith(_OBJECT_ID_KEY):
        text = b'{"_id":{"$oid":"%b"}}' % key[-13:-1].hex().encode()
        return text, text
    canonical = written(id_alone(key), CANONICAL.writers)
    return written(key, RELAXED.writers).encode(), canonical.encode()


# Events that follow one another are mostly of the same second and collection.
_seconds: Memo[int, bytes] = Memo(lambda seconds: date_text(seconds * 1000)[:-1].encode())
_namespaces: Memo[bytes, bytes] = Memo(lambda ns: json_texts([ns], RELAXED)[0])
