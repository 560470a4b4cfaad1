"""The rules for the fields of documents that a handler gets."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import Field, PlainSerializer, PlainValidator, WithJsonSchema, model_validator

from tailrace.config.fields import (
    AnyFieldPath,
    Count,
    FieldName,
    FieldPath,
    Items,
    Opaque,
    Section,
    Text,
)
from tailrace.config.interpolation import Unresolved
from tailrace.destination.secret import SecretText
from tailrace.event.field_mapping import FieldMapping
from tailrace.event.field_protection import FieldProtection
from tailrace.event.flattening import Flattening
from tailrace.event.value_change import Change, hashed, last_kept, masked


@dataclass(frozen=True, slots=True)
class Mask:
    """What is stored instead of a value: a text, after it the last characters of the value."""

    keep_last: int = 0
    text: str = "***"

    def change(self) -> Change:
        """What does it."""
        return last_kept(self.keep_last, self.text) if self.keep_last else masked(self.text)


def _mask(value: Any) -> Mask:
    """The mask that a value of the file gives. Raises ``ValueError``."""
    match value:
        case {"keep_last": int(count)} if len(value) == 1 and 0 < count < 100 and count is not True:
            return Mask(count)
        case str() if value.strip() and not isinstance(value, Unresolved):
            return Mask(0, str(value))
    raise ValueError("must be a text that is not empty, or {keep_last: N} with 1 to 99 characters")


AnyMask = Annotated[
    Mask,
    PlainValidator(_mask),
    PlainSerializer(lambda m: {"keep_last": m.keep_last} if m.keep_last else m.text),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "minLength": 1},
                {
                    "type": "object",
                    "properties": {"keep_last": {"type": "integer", "minimum": 1, "maximum": 99}},
                    "required": ["keep_last"],
                    "additionalProperties": False,
                },
            ]
        }
    ),
]


class FlattenSettings(Section):
    """How fields of documents become fields of the documents around them."""

    depth: Count | None = None
    """How many levels of documents are flattened. Without it, all. Arrays stay as they are."""

    separator: Text = "_"
    """What stands between the names: `customer.name` becomes `customer_name`."""


class FieldSettings(Section):
    """Which fields of documents a handler gets, and in which form. `_id` is always there. The rules
    are applied in the order of these keys."""

    hash_key: SecretText | None = None
    """The key for `hash`, and for the ids of events whose document key has a rule: `{file: PATH}`,
    or a text. Another key gives other hashes."""

    hash: Items[AnyFieldPath] = ()
    """Fields of which the handler gets the HMAC-SHA-256 instead of the value, as dotted paths. With
    `_id`, documents are hashed by it everywhere."""

    mask: Mapping[FieldPath, AnyMask] = Field(default_factory=dict)
    """Dotted paths to the text that stands in place of a value, such as `customer.phone: "***"`, or
    `{keep_last: 4}` for `***` and the last four characters."""

    take: Items[FieldPath] = ()
    """Only these fields, as dotted paths such as `customer.name`. Without it, all."""

    leave_out: Items[FieldPath] = ()
    """Fields to leave out, as dotted paths."""

    rename: Mapping[FieldPath, FieldName] = Field(default_factory=dict)
    """New names of fields: dotted path to the name in its place, such as `customer.name: buyer`."""

    flatten: FlattenSettings | None = None
    """Makes fields of documents fields of the documents around them. Events have no
    `updateDescription` then."""

    constants: Mapping[FieldName, Opaque] = Field(default_factory=dict, alias="set")
    """Fields that every document has, with their values, such as `region: eu`."""

    @model_validator(mode="after")
    def _require_effect(self) -> Self:
        if self.hash and self.hash_key is None:
            raise ValueError("hash needs a key: add hash_key: {file: PATH}")
        self.mapping()
        FieldProtection(self._changes(b"-"))
        return self

    def mapping(self) -> FieldMapping | None:
        """What selects and names fields; ``None`` if documents stay as they are."""
        flatten = self.flatten
        if not (self.take or self.leave_out or self.rename or flatten or self.constants):
            return None
        how = None if flatten is None else Flattening(flatten.depth, flatten.separator)
        return FieldMapping(self.take, self.leave_out, self.rename, how, self.constants)

    def protection(self) -> FieldProtection | None:
        """What hashes and masks; ``None`` if nothing is. Reads the key, and blocks for a moment.

        Raises :class:`tailrace.errors.Unavailable` if the key's file cannot be read or is empty.
        """
        if not (self.hash or self.mask):
            return None
        key = self.hash_key.read().encode() if self.hash_key is not None else b""
        return FieldProtection(self._changes(key), hashed(key))

    def _changes(self, key: bytes) -> dict[str, Change]:
        changes = dict.fromkeys(self.hash, hashed(key))
        if both := changes.keys() & self.mask.keys():
            raise ValueError(f"{min(both)!r} is both hashed and masked")
        return changes | {path: mask.change() for path, mask in self.mask.items()}
