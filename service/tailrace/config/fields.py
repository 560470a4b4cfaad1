"""The kinds of values that settings have, each with the message for what it is not.

Strict: a quoted number is text and ``true`` is no number. Only what came from the environment is
read as the kind that the field wants, for the environment knows nothing but text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    SecretStr,
    Strict,
    WithJsonSchema,
    model_validator,
)

from tailrace.config.interpolation import Interpolated
from tailrace.config.scalars import resolve, time, utc

DAY = 86_400


class Section(BaseModel):
    """A mapping of the file: frozen, strict, and without unknown keys."""

    model_config = ConfigDict(
        strict=True,
        frozen=True,
        extra="forbid",
        defer_build=True,
        hide_input_in_errors=True,
        validate_default=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:
        """A key without a value (all below it commented out, say) is a key left out."""
        if not isinstance(data, dict):
            return data
        known = {info.alias or name for name, info in cls.model_fields.items()}
        return {key: value for key, value in data.items() if value is not None or key not in known}


# --- numbers and booleans ------------------------------------------------------------------


def from_environment(value: Any) -> Any:
    """What a variable that is the whole value stands for, where no text is wanted."""
    if isinstance(value, Interpolated) and value.whole:
        return resolve(value)
    return value


def empty_is_none(value: Any) -> Any:
    """An optional text that the environment leaves empty is left out."""
    return None if isinstance(value, Interpolated) and value.whole and value == "" else value


_Read = BeforeValidator(from_environment)
_Optional = BeforeValidator(empty_is_none)

Flag = Annotated[bool, _Read]
OptionalFlag = Annotated[bool | None, _Read]
Count = Annotated[int, Field(gt=0, le=2**31 - 1), _Read]
OptionalCount = Annotated[Annotated[int, Field(gt=0, le=2**31 - 1)] | None, _Read]
Bytes = Annotated[int, Field(gt=0), _Read]
Port = Annotated[int, Field(ge=0, le=65_535), _Read]
Seconds = Annotated[float, Field(gt=0, le=DAY, allow_inf_nan=False), _Read]
OptionalSeconds = Annotated[
    Annotated[float, Field(gt=0, le=DAY, allow_inf_nan=False)] | None, _Read
]
Ratio = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False), _Read]
SecondsOrZero = Annotated[float, Field(ge=0, le=DAY, allow_inf_nan=False), _Read]


# --- text ----------------------------------------------------------------------------------

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}\Z")
_TARGET = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*\Z")
_URI = re.compile(r"mongodb(\+srv)?://[^\s/?]+\S*\Z")
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]{16,512}=*\Z")  # RFC 6750, 2.1


def _text(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be empty")
    if "\0" in value:
        raise ValueError("must not hold a NUL character")
    return value


def _name(value: str) -> str:
    if not _NAME.match(value):
        raise ValueError(
            "must begin with a letter or digit, hold only letters, digits, '_', '.' and '-', "
            "and be at most 100 characters long (it labels metrics and keys checkpoints)"
        )
    return value


def _database(value: str) -> str:
    _text(value)
    if "." in value:
        raise ValueError("a database's name has no '.'; the collection has a key of its own")
    if bad := sorted(set(value) & set('/\\ "$')):
        raise ValueError(f"a database's name cannot hold {bad[0]!r}")
    if len(value.encode("utf-8", "replace")) > 63:
        raise ValueError("a database's name has at most 63 bytes")
    return value


def _collection(value: str) -> str:
    _text(value)
    if value.startswith("system."):
        raise ValueError("the server opens no change stream on system collections")
    return value


def _target(value: str) -> str:
    if not _TARGET.match(value):
        raise ValueError("must be written package.module:coroutine")
    return value


def _namespace(value: str) -> str:
    database, dot, collection = value.partition(".")
    if not (database and dot and collection):
        raise ValueError(
            "must be written database.collection, with * for any part, as in shop.* or *.orders"
        )
    return value


def _uri(value: SecretStr) -> SecretStr:
    if not _URI.match(value.get_secret_value()):
        raise ValueError("must be a connection string: mongodb://… or mongodb+srv://…, no spaces")
    return value


def _token(value: SecretStr) -> SecretStr:
    if not _TOKEN.match(value.get_secret_value()):
        raise ValueError(
            "must be 16 to 512 letters, digits and '-._~+/', as 'openssl rand -hex 32' makes them"
        )
    return value


Text = Annotated[str, AfterValidator(_text)]
OptionalText = Annotated[Text | None, _Optional]
Name = Annotated[str, AfterValidator(_name)]
DatabaseName = Annotated[str, AfterValidator(_database)]
CollectionName = Annotated[str, AfterValidator(_collection)]
OptionalDatabase = Annotated[DatabaseName | None, _Optional]
OptionalCollection = Annotated[CollectionName | None, _Optional]
Target = Annotated[str, AfterValidator(_target)]
NamespacePattern = Annotated[str, AfterValidator(_namespace)]
Uri = Annotated[SecretStr, AfterValidator(_uri)]
Token = Annotated[SecretStr, AfterValidator(_token)]
OptionalToken = Annotated[Token | None, _Optional]


# --- times, stages, and what the server alone understands ----------------------------------

_FIRST, _LAST = 0, 2**32 - 1  # a BSON timestamp has 32 bits of seconds


def _start(value: Any) -> datetime | Literal["now"]:
    if value == "now":
        return "now"
    if isinstance(value, str):
        try:
            value = time(value)
        except ValueError:
            raise ValueError(
                "must be now, or an ISO 8601 time such as 2024-05-01T00:00:00Z"
            ) from None
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise ValueError(
            "needs a time with an offset, such as 2024-05-01T00:00:00Z or …+02:00, or now"
        )
    moment = utc(value)
    if not _FIRST <= moment.timestamp() <= _LAST:
        raise ValueError("must lie between 1970 and 2106, the range of a BSON timestamp")
    return moment


StartAt = Annotated[
    Literal["now"] | datetime,
    PlainValidator(_start),
    WithJsonSchema({"type": "string", "examples": ["now", "2024-05-01T00:00:00Z"]}),
]


def plain(value: Any) -> Any:
    """The value with every variable read as YAML would have read it in the variable's place."""
    if isinstance(value, Interpolated):
        return resolve(value) if value.whole and value.plain else str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def _stage(stage: dict[str, Any]) -> dict[str, Any]:
    """A stage's form only: what it says is the server's to judge (field notes, 10)."""
    names = list(stage)
    if len(names) != 1 or not names[0].startswith("$"):
        raise ValueError("a stage is a mapping with one key, such as $match")
    if names[0] == "$changeStream":
        raise ValueError("$changeStream is put in front by Tailrace; its options are the scope's")
    return stage


Opaque = Annotated[Any, BeforeValidator(plain)]
OpaqueMapping = Annotated[dict[str, Any] | None, BeforeValidator(plain), _Optional]
Stages = Annotated[
    tuple[Annotated[dict[str, Any], AfterValidator(_stage)], ...],
    Strict(False),
    BeforeValidator(plain),
]
