"""The type ``nats``: messages to JetStream. Its client is an extra, imported when needed."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import model_validator

from tailrace.destination import (
    MessageHandlerSettings,
    NameTemplate,
    Opening,
    SecretText,
    destination_type,
)
from tailrace.destination.settings import Flag, OneOrMore, Seconds, Text, like
from tailrace.errors import ConfigurationError, Problem, how_to_install

ServerUrl = Annotated[
    str,
    like(
        r"(nats|tls)://[^\s/@?#]+/?",
        "must be nats://host:port or tls://host:port; user, password and token have their own keys",
    ),
]
StreamName = Annotated[
    str, like(r"[^\s.*>/\\]+", "a stream's name has no spaces and none of . * > / \\")
]
_SUBJECT = re.compile(r"(?!\$)[^\s.*>]+(\.[^\s.*>]+)*")


class NatsHandlerSettings(MessageHandlerSettings):
    """Publishes a message for each event to NATS JetStream. Needs the extra `nats`."""

    type: Literal["nats"]
    """Selects this handler."""

    servers: OneOrMore[ServerUrl]
    """The servers of a cluster, such as `nats://127.0.0.1:4222`. One that answers is used."""

    subject: NameTemplate
    """The subject of each message, with `{database}`, `{collection}` and `{scope}`, such as
    `app.{database}.{collection}`. In names, all characters but ASCII letters, digits, `_`, `-` and
    `~` are percent-encoded: the collection `a.b` is the token `a%2Eb`."""

    stream: StreamName | None = None
    """The stream that must store the messages. Without it, any stream with these subjects may."""

    create_stream: Flag = False
    """Whether to create `stream` if it does not exist, with the server's defaults and the subjects
    of `subject`."""

    acknowledgement_seconds: Seconds = 10.0
    """How long to wait for the next acknowledgement of JetStream. After that, the server counts as
    down, and what was not acknowledged is published again."""

    user: SecretText | None = None
    """The user, or `{file: PATH}`."""

    password: SecretText | None = None
    """The password of `user`, or `{file: PATH}`, which is read at each connection."""

    token: SecretText | None = None
    """A token instead of a user, or `{file: PATH}`, which is read at each connection."""

    credentials_file: Text | None = None
    """A file of credentials (`.creds`: JWT and NKey seed), read at each connection."""

    ca_file: Text | None = None
    """The authorities to trust with `tls://`, as PEM, instead of the system's."""

    certificate_file: Text | None = None
    """A client certificate, as PEM."""

    key_file: Text | None = None
    """The key of `certificate_file`, as PEM, if it is not in that file."""

    @model_validator(mode="after")
    def _require_subject(self) -> Self:
        text = self.subject.text
        sample = self.subject.name("d", "c", scope="s", prefix="")
        if "{prefix}" in text or _SUBJECT.fullmatch(sample) is None:
            raise ValueError(
                "subject must be tokens between dots, with {database}, {collection} or {scope}, "
                "without spaces, '*' and '>', and must not begin with '$'"
            )
        return self

    @model_validator(mode="after")
    def _require_what_belongs_together(self) -> Self:
        if (self.password is None) != (self.user is None):
            raise ValueError("user and password belong together")
        keys = ("user", "token", "credentials_file")
        set_keys = [key for key in keys if getattr(self, key) is not None]
        if len(set_keys) > 1:
            raise ValueError(f"{' and '.join(set_keys)} exclude each other: keep one")
        if self.key_file and not self.certificate_file:
            raise ValueError("key_file needs certificate_file")
        if self.create_stream and self.stream is None:
            raise ValueError("create_stream needs stream, the name of the stream to create")
        return self


def _create(opening: Opening, settings: NatsHandlerSettings) -> Any:
    from tailrace.destinations.nats.nats_destination import NatsDestination

    return NatsDestination(opening, settings)


def _check(name: str, settings: NatsHandlerSettings) -> None:
    problems = [
        Problem(f"handlers.{name}.{key}", f"the file {path!r} does not exist")
        for key in ("credentials_file", "ca_file", "certificate_file", "key_file")
        if (path := getattr(settings, key)) is not None and not Path(path).is_file()
    ]
    if problems:
        raise ConfigurationError(*problems)
    if settings.credentials_file is not None:
        NATS.require_installed(name, "nkeys")


NATS = destination_type(
    NatsHandlerSettings,
    _create,
    _check,
    needs=("nats",),
    install=how_to_install("nats"),
    is_comparable=lambda settings: False,
)
