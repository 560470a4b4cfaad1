"""The type ``redis``: entries of streams, or keys. Its client is an extra, imported when needed."""

import re
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from tailrace.destination import (
    MessageHandlerSettings,
    Namespace,
    NameTemplate,
    Opening,
    SecretUri,
    Template,
    destination_type,
)
from tailrace.destination.names import require_targets_apart
from tailrace.destination.settings import Count, Seconds, Text
from tailrace.errors import how_to_install

KEY = "{key}"
URL = re.compile(r"(rediss?://[^\s/]|unix://)\S*")


class RedisHandlerSettings(MessageHandlerSettings):
    """Adds events to Redis streams, or keeps each document as a key. Needs the extra `redis`."""

    type: Literal["redis"]
    """Selects this handler."""

    url: SecretUri
    """The server, `redis://[user:password@]host:port/db`, `rediss://…` for TLS or `unix://…`; or
    `{file: PATH}`, which is read at each connection. Options such as `?ssl_ca_certs=PATH` are those
    of redis-py. Redis Cluster and Sentinel are not supported."""

    stream: NameTemplate | None = None
    """The stream that gets an entry for each event, with `{database}`, `{collection}` and
    `{scope}`, such as `{database}.{collection}`. Either this or `key`."""

    max_length: Count | None = Field(None)
    """About how many entries a stream keeps (`MAXLEN ~`). Without it, all."""

    key: Text | None = None
    """The key that holds a document as JSON, and ends with `{key}`, `_id` as canonical
    Extended JSON: such as `{database}.{collection}:{key}`. Keys of this form belong to the
    handler: it deletes those of documents that are gone."""

    expire_seconds: Count | None = None
    """After how many seconds without a change a `key` expires. Without it, never."""

    answer_seconds: Seconds = 10.0
    """How long the server may take to accept a connection or to answer. After that it counts as
    down."""

    @property
    def needs_documents(self) -> bool:
        return self.key is not None or super().needs_documents

    def own_key(self, what: str, handler: str, scope: str) -> str:
        """A key of Tailrace's own; handlers with other streams or keys have others."""
        form = self.key if self.stream is None else self.stream.text
        return f"tailrace:{what}:{handler}:{scope}:{form}"

    @property
    def prefix(self) -> Template:
        """What precedes the document key in a ``key``."""
        return Template((self.key or "").removesuffix(KEY))

    @model_validator(mode="after")
    def _require_a_form(self) -> Self:
        if (self.stream is None) == (self.key is None):
            raise ValueError("needs one of stream and key")
        if self.stream is None and self.max_length is not None:
            raise ValueError("max_length belongs to stream")
        if self.key is None and self.expire_seconds is not None:
            raise ValueError("expire_seconds belongs to key")
        return self

    @model_validator(mode="after")
    def _require_names(self) -> Self:
        if "{prefix}" in (self.stream.text if self.stream is not None else self.key or ""):
            raise ValueError("{prefix} has no meaning here: write the prefix itself")
        if self.key is None:
            return self
        try:
            self.prefix.name("d", "c", scope="s")
        except (ValueError, LookupError):
            text = ""
        else:
            text = self.prefix.text
        if not (self.key.endswith(KEY) and text and '{"' not in text):
            raise ValueError(
                "key must be {database}, {collection} or {scope} and other characters, and end "
                "with {key}, as in {database}.{collection}:{key}"
            )
        if "envelope" in self.model_fields_set and self.envelope != "document":
            raise ValueError("with key, the value is the document: leave envelope out")
        return self

    @model_validator(mode="after")
    def _require_url(self) -> Self:
        if self.url.file is None and URL.fullmatch(self.url.text) is None:
            raise ValueError("url must be redis://host:port/db, rediss://… or unix://path")
        return self


def _create(opening: Opening, settings: RedisHandlerSettings) -> Any:
    from tailrace.destinations.redis.keys import RedisKeys
    from tailrace.destinations.redis.streams import RedisStreams

    if settings.key is None:
        return RedisStreams(opening, settings)

    def prefix(scope: str, source: Namespace) -> str:
        return settings.prefix.name(source.db, source.coll or "", scope=scope)

    require_targets_apart(f"handlers.{opening.name}.key", opening.follows, prefix, _shared)
    return RedisKeys(opening, settings)


def _shared(prefix: str, former: Namespace, source: Namespace) -> str:
    """That two collections would have the same keys, and what to do."""
    return (
        f"{former} and {source} would share the keys {prefix}…, so that each would lose its own: "
        "use {database} and {collection} in it"
    )


REDIS = destination_type(
    RedisHandlerSettings,
    _create,
    needs=("redis", "hiredis"),
    install=how_to_install("redis"),
    is_comparable=lambda settings: settings.key is not None,
)
