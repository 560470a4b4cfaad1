"""The requests of events: bodies and headers, by envelope."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tailrace.destination import MessageMaker
from tailrace.destinations.http.endpoint import EndpointRequest
from tailrace.destinations.http.settings import HttpHandlerSettings
from tailrace.destinations.http.signature import batch_id, header_value, webhook_id
from tailrace.envelope import Message
from tailrace.event import ChangeEvent
from tailrace.model import Scope

_JSON, _LINES = {"content-type": "application/json"}, {"content-type": "application/x-ndjson"}
_EVENT = {"content-type": "application/cloudevents+json; charset=UTF-8"}
_EVENTS = {"content-type": "application/cloudevents-batch+json; charset=UTF-8"}


class Requests:
    """Makes requests of events, as the settings want them."""

    def __init__(self, settings: HttpHandlerSettings, scope: Scope | None = None) -> None:
        self._envelope = settings.envelope
        self._messages = MessageMaker(settings, scope=scope)
        self._binary = settings.content_mode == "binary"
        self._lines = settings.batch_format == "lines"
        self._keyed = settings.envelope in ("document", "debezium")

    def of_event(self, event: ChangeEvent, scope: str) -> EndpointRequest | None:
        """The request of one event; ``None`` if the envelope has no form for it."""
        (message,) = self._messages.of([event], scope)
        if message.is_empty:
            return None
        identity = webhook_id(message.id)
        if self._binary:
            attributes = {**_attributes(message), **dict(message.trace_headers)}
            return EndpointRequest(identity, message.data or b"", attributes)
        headers = _EVENT if self._envelope == "cloudevents" else _JSON
        headers = {**headers, **dict(message.trace_headers)}
        if self._keyed and message.key is not None:
            headers = {**headers, "tailrace-key": header_value(message.key.decode())}
        return EndpointRequest(identity, message.value or b"null", headers)

    def of_batch(self, events: Sequence[ChangeEvent], scope: str) -> "BatchRequest | None":
        """The request of several events; ``None`` if the envelope has no form for any of them."""
        made = self._messages.of(events, scope)
        parts = [self._part(message) for message in made]
        sent: Sequence[int] = range(len(parts))
        if self._keyed:  # the other envelopes have a form for every event
            sent = [index for index, message in enumerate(made) if not message.is_empty]
            parts = [parts[index] for index in sent]
        if not parts:
            return None
        ids = [event.field_bytes("_id") or b"" for event in events]
        identity = batch_id([ids[index] for index in sent])
        if self._lines:
            body, headers = b"%b\n" % b"\n".join(parts), _LINES
        else:
            body = b"[%b]" % b",".join(parts)
            headers = _EVENTS if self._envelope == "cloudevents" else _JSON
        if len({made[index].trace for index in sent}) == 1:
            headers = {**headers, **dict(made[sent[0]].trace_headers)}
        return BatchRequest(EndpointRequest(identity, body, headers, len(parts)), sent)

    def _part(self, message: Message) -> bytes:
        if not self._keyed:
            return message.value or b"null"
        return b'{"key":%b,"value":%b}' % (message.key or b"null", message.value or b"null")


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """A request of several events. ``sent``: the index in the batch of each event in it."""

    request: EndpointRequest
    sent: Sequence[int] = field(repr=False)


def _attributes(message: Message) -> dict[str, str]:
    """The headers of CloudEvents' binary mode (HTTP binding, 3.1)."""
    found = {f"ce-{name}": header_value(text) for name, text in message.headers}
    found["content-type"] = found.pop("ce-datacontenttype")
    return found
