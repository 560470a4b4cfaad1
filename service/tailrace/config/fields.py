"""The types of the settings, each with the message for a wrong value.

Types are strict: a quoted number is text, and ``true`` is not a number. A value from the
environment is read as the type of its field.
"""

import re
from datetime import UTC, date, datetime, time
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    SecretStr,
    Strict,
    WithJsonSchema,
    model_validator,
)
from pydantic.fields import FieldInfo

from tailrace.config.interpolation import Interpolated
from tailrace.database_names import require_database, require_followed
from tailrace.masking import mask_uri

DAY = 86_400


class Section(BaseModel):
    """A mapping in the file: frozen, strict, and without unknown keys."""

    model_config = ConfigDict(
        strict=True,
        frozen=True,
        extra="forbid",
        defer_build=True,
        hide_input_in_errors=True,
        use_attribute_docstrings=True,
        validate_default=True,
    )

    @classmethod
    def by_key(cls) -> dict[str, FieldInfo]:
        """The fields by their keys in the file."""
        return {field.alias or name: field for name, field in cls.model_fields.items()}

    @model_validator(mode="before")
    @classmethod
    def _leave_out_what_is_empty(cls, data: Any) -> Any:
        """Treats a key without a value, or with an empty variable, as left out."""
        if not isinstance(data, dict):
            return data
        known = cls.by_key()
        return {k: v for k, v in data.items() if empty_is_none(v) is not None or k not in known}


def empty_is_none(value: Any) -> Any:
    """The value, or ``None`` if it comes from variables that are all empty."""
    return None if isinstance(value, Interpolated) and not value else value


def from_environment(value: Any) -> Any:
    """The number or boolean if the environment gives one; else the value itself.

    Text stays :class:`Interpolated`, so that no message shows it.
    """
    read = isinstance(value, Interpolated) and not isinstance(value.value, str)
    return value.value if read else value


_Read = BeforeValidator(from_environment)

Flag = Annotated[bool, _Read]
Count = Annotated[int, Field(gt=0, le=2**31 - 1), _Read]
Bytes = Annotated[int, Field(gt=0), _Read]
Port = Annotated[int, Field(ge=0, le=65_535), _Read]
Seconds = Annotated[float, Field(gt=0, le=DAY, allow_inf_nan=False), _Read]
SecondsOrZero = Annotated[float, Field(ge=0, le=DAY, allow_inf_nan=False), _Read]
Ratio = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False), _Read]


T = TypeVar("T")
Items = Annotated[tuple[T, ...], Strict(False)]
"""A list in the file. Pydantic's strict mode alone would accept only a tuple."""
OneOrMore = Annotated[Items[T], Field(min_length=1)]


def like(pattern: str, message: str) -> AfterValidator:
    """Requires text, secret or not, that the pattern matches as a whole."""
    compiled = re.compile(rf"(?:{pattern})\Z")

    def check(value: str | SecretStr) -> str | SecretStr:
        text = value if isinstance(value, str) else value.get_secret_value()
        if not compiled.match(text):
            raise ValueError(message)
        return value

    return AfterValidator(check)


HEADER_NAME = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
"""The name of a header as a pattern (RFC 9110, 5.6.2)."""


def http_url(text: str, example: str) -> str:
    """The URL of a server of HTTP, such as the ``example``. Raises ``ValueError`` for another
    text."""
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable or any(character.isspace() for character in text):
        raise ValueError(f"must be a URL with a host, such as {example}")
    return text


def _sendable(value: Any) -> Any:
    """Requires a value that a command can carry: the server gets it only while the scope runs."""
    import bson  # here: it takes long, and commands that only ask a daemon do not need it
    from bson.errors import BSONError

    try:
        bson.encode({"": value})
    except (ValueError, ArithmeticError, BSONError) as error:
        raise ValueError(f"holds a value that BSON cannot store: {error}") from None
    return value


_Sendable = AfterValidator(_sendable)

Text = Annotated[
    str, like(r"(?=\s*\S)[^\0]*", "must not be empty, and must not hold a NUL character")
]
DatabaseName = Annotated[Text, AfterValidator(require_database), _Sendable]
FollowedDatabase = Annotated[DatabaseName, AfterValidator(require_followed)]
CollectionName = Annotated[
    Text,
    like(r"(?!system\.)(.|\n)*", "the server opens no change stream on system collections"),
    _Sendable,
]
Name = Annotated[
    str,
    like(
        r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}",
        "must begin with a letter or digit, hold only letters, digits, '_', '.' and '-', "
        "and be at most 100 characters long (it labels metrics and keys checkpoints)",
    ),
]
Target = Annotated[
    str,
    like(
        r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*",
        "must be written package.module:name",
    ),
]
ExceptionName = Annotated[
    str,
    like(r"[^\W\d]\w*(\.[^\W\d]\w*)+", "must be written package.module.Name"),
]
FieldPath = Annotated[
    str,
    like(
        r"(?!_id(\.|\Z))[^.\0$][^.\0]*(\.[^.\0$][^.\0]*)*",
        "must be the path of a field, as in customer.name. _id always stays as it is",
    ),
]
AnyFieldPath = Annotated[
    str,
    like(
        r"[^.\0$][^.\0]*(\.[^.\0$][^.\0]*)*",
        "must be the path of a field, as in customer.name, or _id",
    ),
]
FieldName = Annotated[
    str, like(r"(?!_id\Z)[^.\0$][^.\0]*", "must be the name of a field, without dots")
]
NamespacePattern = Annotated[
    str,
    like(
        r"[^.]+\.(.|\n)+",
        "must be written database.collection, with * for any part, as in shop.* or *.orders",
    ),
]
Uri = Annotated[
    SecretStr,
    like(
        r"mongodb(\+srv)?://[^\s/?]+\S*",
        "must be a connection string: mongodb://… or mongodb+srv://…, no spaces",
    ),
    PlainSerializer(lambda uri: mask_uri(uri.get_secret_value())),
]
Token = Annotated[
    SecretStr,
    like(
        r"[A-Za-z0-9._~+/-]{16,512}=*",  # RFC 6750, 2.1
        "must be 16 to 512 letters, digits and '-._~+/', as 'openssl rand -hex 32' makes them",
    ),
    PlainSerializer(lambda _: "***"),
]


def _start(value: Any) -> datetime | Literal["now"]:
    value = from_environment(value)
    if value == "now":
        return "now"
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value.strip().upper())
        except ValueError:
            raise ValueError(
                "must be now, or an ISO 8601 time such as 2024-05-01T00:00:00Z"
            ) from None
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise ValueError(
            "needs a time with an offset, such as 2024-05-01T00:00:00Z or …+02:00, or now"
        )
    if not 0 <= value.timestamp() < 2**32:  # a BSON timestamp has 32 bits of seconds
        raise ValueError("must lie between 1970 and 2106, the range of a BSON timestamp")
    return value.astimezone(UTC)


StartAt = Annotated[
    Literal["now"] | datetime,
    PlainValidator(_start),
    PlainSerializer(lambda start: start if start == "now" else start.isoformat()),
    WithJsonSchema({"type": "string", "examples": ["now", "2024-05-01T00:00:00Z"]}),
]


def _plain(value: Any) -> Any:
    """The value as the server gets it.

    Unquoted variables are read as YAML would read them, and quoted ones as text. Dates become BSON
    dates: a day begins at midnight, and a time without a zone is in UTC, as YAML 1.1 defines.
    """
    if isinstance(value, Interpolated):
        return str(value) if value.quoted else _plain(value.value)
    if isinstance(value, date):
        moment = value if isinstance(value, datetime) else datetime.combine(value, time())
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _stage(stage: dict[str, Any]) -> dict[str, Any]:
    """Checks only the form: the server checks the content of the stage."""
    names = list(stage)
    if len(names) != 1 or not names[0].startswith("$"):
        raise ValueError("a stage is a mapping with one key, such as $match")
    if names[0] == "$changeStream":
        raise ValueError("$changeStream is put in front by Tailrace; its options are the scope's")
    return stage


Opaque = Annotated[Any, BeforeValidator(_plain), _Sendable]
OpaqueMapping = Annotated[dict[str, Any], BeforeValidator(_plain), _Sendable]
Stage = Annotated[dict[str, Any], AfterValidator(_stage), _Sendable]
Stages = Annotated[Items[Stage], BeforeValidator(_plain)]
