"""CloudEvents 1.0: the structured mode of its JSON format, and the attributes for the binary mode.

Sources: https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/spec.md and
https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md
"""

from collections.abc import Sequence
from json.encoder import encode_basestring as quote
from urllib.parse import quote as percent_encoded

from tailrace.envelope.event_json import EventText, event_texts, time_text
from tailrace.envelope.message import Message
from tailrace.event import ChangeEvent
from tailrace.event.extended_json import LAST_MS
from tailrace.event.json_lines import Form
from tailrace.event.layout import SECONDS, WALL_TIME
from tailrace.event.memo import Memo
from tailrace.event.trace_context import TraceContext

TYPE = "com.mongodb.change"
"""The first part of ``type``: the operation follows, such as ``com.mongodb.change.insert``."""

_VERSION, _CONTENT_TYPE = ("specversion", "1.0"), ("datacontenttype", "application/json")


def cloudevents_messages(events: Sequence[ChangeEvent], scope: str, form: Form) -> list[Message]:
    """Each event in the structured mode; its data is the whole event as Extended JSON."""
    texts = event_texts(events, form)
    return [_message(event, scope, text) for event, text in zip(events, texts, strict=True)]


def _message(event: ChangeEvent, scope: str, converted: EventText) -> Message:
    data, identity, key = converted
    source, kind, source_and_kind = _kinds[scope, event.operation_type]
    time = _time(event)
    headers = [_VERSION, ("id", identity), source, kind]
    text = f'{{"specversion":"1.0","id":{quote(identity)}{source_and_kind}'
    if time is not None:
        headers.append(("time", time))
        text += f',"time":"{time}"'
    if key is not None:
        subject = key.decode()
        headers.append(("subject", subject))
        text += f',"subject":{quote(subject)}'
    headers.append(_CONTENT_TYPE)
    before = f'{text},"datacontenttype":"application/json","data":'.encode()
    return Message(key, b"%b%b}" % (before, data), identity, headers, len(before))


def with_extension(message: Message, trace: TraceContext) -> Message:
    """The message with the extension for distributed tracing.

    https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/extensions/distributed-tracing.md
    """
    attributes = trace.headers
    text = ",".join(f"{quote(name)}:{quote(value)}" for name, value in attributes)
    first = f"{{{text},".encode()
    return message._replace(
        value=first + (message.value or b"{}")[1:],
        headers=[*message.headers, *attributes],
        data_at=message.data_at + len(first) - 1,
    )


def _time(event: ChangeEvent) -> str | None:
    """When the change happened: the server's clock, else the oplog time, as RFC 3339."""
    parts = event.parts
    wall_time: int | None = parts[WALL_TIME]
    if wall_time is not None and 0 <= wall_time <= LAST_MS:
        return time_text(wall_time).decode()
    seconds: int | None = parts[SECONDS]
    return None if seconds is None else time_text(seconds * 1000).decode()


def _kind(of: tuple[str, str]) -> tuple[tuple[str, str], tuple[str, str], str]:
    """Source and type as headers, and both as JSON, of an operation's events in a scope."""
    scope, operation = of
    source = f"/tailrace/{percent_encoded(scope, safe='')}"
    kind = f"{TYPE}.{operation}" if operation else TYPE
    text = f',"source":"{source}","type":{quote(kind)}'
    return ("source", source), ("type", kind), text


_kinds = Memo(_kind)
