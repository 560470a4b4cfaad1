"""The type ``mongodb``: a mirror of collections, or an outbox of events, in another cluster."""

import re
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import model_validator

from tailrace.destination import (
    BatchHandlerSettings,
    NameTemplate,
    Opening,
    SecretUri,
    Template,
    destination_type,
    require_apart,
)
from tailrace.destination.settings import CollectionName, DatabaseName
from tailrace.destinations.mongodb.names import Names, shared
from tailrace.errors import ConfigurationError, Problem, Unavailable

if TYPE_CHECKING:
    from tailrace.destinations.mongodb.destination import MongodbDestination

MOST_BYTES = 64 * 1024 * 1024
"""Of events in a transaction, which must end within 60 s (transactionLifetimeLimitSeconds)."""
LONGEST_NAME = 63
"""The bytes of the name of a database."""

_URI = re.compile(r"mongodb(\+srv)?://[^\s/?]+\S*")
_NOT_IN_NAMES = re.compile(r'[/\\. "$\0]|\A(admin|config|local)\Z')
_PLACEHOLDER = re.compile(r"\{(database|collection|scope)\}")


class MongodbHandlerSettings(BatchHandlerSettings):
    """Mirrors collections to another MongoDB cluster, or keeps an outbox of events there, with each
    change applied once."""

    type: Literal["mongodb"]
    """Selects this handler."""

    uri: SecretUri
    """The connection string of the other cluster: `mongodb://…` or `mongodb+srv://…`, or
    `{file: PATH}`, a file with it, which is read again after each failure. It must be a replica set
    or a sharded cluster. Writes wait for a majority unless it has `w=`."""

    database: NameTemplate
    """The database of a collection's copy, such as `copy` or `{database}_copy`."""

    collection: NameTemplate = Template("{collection}")
    """The name of a collection's copy, such as `{database}_{collection}`."""

    outbox: CollectionName | None = None
    """The collection that gets a document for each event, instead of a mirror."""

    state_database: DatabaseName | None = None
    """The database of `tailrace_positions` and the other collections of Tailrace. By default it is
    `database`, if that has no placeholder."""

    ddl: Literal["follow", "keep", "refuse"] = "follow"
    """What to do when a collection is dropped or renamed: the same with its copy, nothing, or
    stop."""

    maps_fields: ClassVar[bool] = True

    @property
    def needs_documents(self) -> bool:
        """A mirror needs whole documents; an outbox takes events as they are."""
        return self.outbox is None or super().needs_documents

    @property
    def names(self) -> Names:
        """The names of copies."""
        return Names(self.database, Template(self.outbox) if self.outbox else self.collection)

    @property
    def state(self) -> str:
        """The database of Tailrace's own collections."""
        return self.state_database or self.database.text

    @model_validator(mode="after")
    def _require_names(self) -> Self:
        if self.outbox is not None and self.collection.text != "{collection}":
            raise ValueError("collection belongs to a mirror; an outbox has one name")
        if "{prefix}" in self.database.text + self.collection.text:
            raise ValueError("names may hold {database}, {collection} and {scope}, not {prefix}")
        literal = _PLACEHOLDER.sub("", self.database.text)
        if _NOT_IN_NAMES.search(literal) or len(literal.encode()) > LONGEST_NAME:
            raise ValueError(
                'database cannot be admin, config or local, cannot hold / \\ . " $ or a space, and '
                f"has at most {LONGEST_NAME} bytes"
            )
        if _PLACEHOLDER.search(self.database.text):
            if self.outbox is not None:
                raise ValueError("an outbox is in one database: name it without a placeholder")
            if self.state_database is None:
                raise ValueError(
                    "database has a placeholder, so name the database of Tailrace's own "
                    "collections: set state_database"
                )
        if self.batch_bytes > MOST_BYTES:
            raise ValueError(
                f"batch_bytes can be at most {MOST_BYTES} (64 MiB): a batch is one transaction, "
                "which the server aborts after 60 s"
            )
        return self


def _check(name: str, settings: MongodbHandlerSettings) -> None:
    from pymongo.errors import PyMongoError
    from pymongo.uri_parser import parse_uri

    try:
        uri = settings.uri.read()
    except Unavailable:
        return  # its file is being replaced
    path = f"handlers.{name}.uri"
    if not _URI.fullmatch(uri):
        message = "must be a connection string: mongodb://… or mongodb+srv://…, no spaces"
        raise ConfigurationError(Problem(path, message))
    if uri.startswith("mongodb+srv"):
        return  # only a name server can tell
    try:
        parse_uri(uri, validate=True, warn=False)
    except (PyMongoError, OSError, TypeError, ValueError) as error:
        # With a login, the error may quote a part of the password.
        message = "name and password must be percent-encoded"
        if "@" not in uri:
            message = str(error).partition(". Hint:")[0]
        message = f"is not a usable connection string: {message}"
        raise ConfigurationError(Problem(path, message)) from None


def mongodb(opening: Opening, settings: MongodbHandlerSettings) -> "MongodbDestination":
    """The destination of a handler. Raises :class:`ConfigurationError` for names that collide."""
    from tailrace.destinations.mongodb.destination import MongodbDestination

    if settings.outbox is None:
        path = f"handlers.{opening.name}.collection"
        require_apart(path, opening.follows, settings.names.of, shared)
    return MongodbDestination(opening, settings)


MONGODB = destination_type(
    MongodbHandlerSettings, mongodb, _check, is_comparable=lambda settings: settings.outbox is None
)
