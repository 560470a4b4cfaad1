"""The settings of ``type: http``."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    WithJsonSchema,
    model_validator,
)

from tailrace.destination import MessageHandlerSettings, Secret, SecretText, SecretUri
from tailrace.destination.secret import SCHEMA
from tailrace.destination.settings import Bytes, Count, Flag, Items, Seconds, Text, http_url
from tailrace.destinations.http.headers import masked, request_headers
from tailrace.destinations.http.signature import signing_key

REFUSED_STATUSES = (
    400,  # Bad Request: RFC 9110, 15.5.1
    413,  # Content Too Large: 15.5.14
    422,  # Unprocessable Content: 15.5.21
    431,  # Request Header Fields Too Large: RFC 6585, 5
)
"""About what is in a request. The others are about the endpoint: where it is (3xx, 404, 405, 410,
414, 501), who may use it (401, 403, 407, 511), the form in which everything is sent (406, 411, 415,
505), how it is (409, 423, 425, 5xx) or how much it takes (402, 408, 429, 507)."""
CONCURRENCY = 16
"""How many requests at once, unless the settings say otherwise."""
WAITING = 64
"""So many events may wait for a request of theirs besides: events that fail hold no request."""


def endpoint(text: str) -> str:
    """The URL of an endpoint. Raises ``ValueError`` for another text."""
    return http_url(text, "https://example.com/changes")


def _endpoint(given: Secret) -> Secret:
    endpoint(given.read())
    return given


def _signing(given: Secret) -> Secret:
    signing_key(given.read())
    return given


def _listed(value: Any) -> Any:
    return value if isinstance(value, list | tuple) else [value]


Url = Annotated[SecretUri, AfterValidator(_endpoint)]
SigningSecret = Annotated[SecretText, AfterValidator(_signing)]
SigningSecrets = Annotated[
    Items[SigningSecret],
    Field(max_length=2),
    BeforeValidator(_listed),
    WithJsonSchema({"anyOf": [SCHEMA, {"type": "array", "items": SCHEMA, "maxItems": 2}]}),
]
Headers = Annotated[
    Mapping[str, Secret],
    PlainValidator(request_headers),
    PlainSerializer(masked),
    WithJsonSchema({"type": "object", "additionalProperties": SCHEMA}),
]
RefusedStatus = Annotated[int, Field(ge=400, le=499)]


class HttpHandlerSettings(MessageHandlerSettings):
    """Sends events to an HTTP endpoint, one or several a request. Needs the extra `http`."""

    type: Literal["http"]
    """Selects this handler."""

    url: Url
    """The endpoint: `http://` or `https://`, a host, and any path. A user and password in it are
    sent as basic authentication."""

    secret: SigningSecrets = ()
    """The secret of the signatures after Standard Webhooks: `whsec_` and base64. Two in a list sign
    together while a secret is replaced. Without it, requests are not signed."""

    method: Literal["POST", "PUT"] = "POST"
    """The method of requests."""

    headers: Headers = Field(default_factory=dict)
    """More headers of each request, such as `authorization`, or another `content-type`. A value is
    a text or `{file: PATH}`."""

    content_mode: Literal["structured", "binary"] = "structured"
    """How a CloudEvent is sent: `structured` as one JSON document, `binary` with its attributes as
    headers. `binary` is for `envelope: cloudevents` with `batch_size: 1`."""

    batch_size: Count = 1
    """The largest number of events in a request. With 1, a body is one message, and several
    requests are sent at once. With more, a body is a list of messages."""

    batch_bytes: Bytes = 2**20
    """The largest size of the events in a request, as the server sent them. A larger event is sent
    alone. Lower it if the endpoint answers 413."""

    batch_format: Literal["array", "lines"] = "array"
    """The body of a request with several events: a JSON `array`, or one message per line
    (`application/x-ndjson`). CloudEvents are always an array."""

    concurrency: Count | None = None
    """The largest number of requests of a scope at once, each about other documents: 16 with
    `batch_size: 1`. With a larger batch it is 1, in the stream's order; with more, each document
    keeps its order, which `transactions: grouped` excludes. `delivery.lanes` limits it."""

    timeout_seconds: Seconds = 30.0
    """The time limit of a request and its answer. A request without an answer is an outage, not a
    failed attempt."""

    refused_statuses: Items[RefusedStatus] = REFUSED_STATUSES
    """The statuses with which the endpoint refuses an event for good. Every other status from 300
    on is an outage, unless the event fails alone (`lone_failures`)."""

    lone_failures: Count = 6
    """How often the endpoint may fail an event alone, by a status that is an outage, a closed
    connection or no answer in time, while it accepts others. Then the event counts as refused.
    While the endpoint accepts nothing, and if it sends 429 or `Retry-After`, it is an outage."""

    proxy: Url | None = None
    """The proxy for all requests, such as `http://user:password@proxy:3128`."""

    proxy_from_environment: Flag = False
    """Takes the proxy from `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`."""

    ca_file: Text | None = None
    """The certificate authorities to trust, as PEM, instead of the system's."""

    certificate_file: Text | None = None
    """The client certificate with its chain, as PEM. It may hold the key."""

    key_file: Text | None = None
    """The key of the client certificate, as PEM without a passphrase."""

    @property
    def attempt_seconds(self) -> float | None:
        """Requests have their own limit: one that ends is an outage, and no attempt."""
        return None

    @property
    def at_once(self) -> int:
        """How many requests of a scope may be sent at once."""
        return self.concurrency or (CONCURRENCY if self.batch_size == 1 else 1)

    @model_validator(mode="after")
    def _require_fitting_keys(self) -> Self:
        if self.content_mode == "binary" and not (
            self.envelope == "cloudevents" and self.batch_size == 1
        ):
            raise ValueError("content_mode: binary needs envelope: cloudevents and batch_size: 1")
        if self.batch_format == "lines" and (
            self.envelope == "cloudevents" or self.batch_size == 1
        ):
            raise ValueError(
                "batch_format: lines needs a batch_size above 1 and another envelope than "
                "cloudevents"
            )
        if self.proxy is not None and self.proxy_from_environment:
            raise ValueError("proxy and proxy_from_environment exclude each other")
        if self.key_file is not None and self.certificate_file is None:
            raise ValueError("key_file needs certificate_file")
        if urlsplit(self.url.read()).username is not None and "authorization" in self.headers:
            raise ValueError("url has a user, and headers an authorization: keep one of them")
        return self
