"""A mapping whose kind is told by one of its keys (``type: jsonl``, ``store: sqlite``).

Pydantic has discriminated unions, but none that has a default kind, and none whose errors keep
the path of the file. Here the part of the location that names the kind begins with :data:`MARK`,
which no key of a file can.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

MARK = "\0"


def kinds(union: Any, key: str) -> dict[str, type[BaseModel]]:
    """The classes of a union by the word that chooses them."""
    classes = get_args(union) or (union,)
    return {get_args(cls.model_fields[key].annotation)[0]: cls for cls in classes}


@dataclass(frozen=True, slots=True)
class OneOf:
    """Annotates a union of sections: ``key`` tells which one, ``default`` where it is left out."""

    key: str
    default: str | None = None

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        choices = {
            MARK + word: handler.generate_schema(cls)
            for word, cls in kinds(source, self.key).items()
        }
        return core_schema.tagged_union_schema(
            {**choices},
            discriminator=self._tag,
            custom_error_type="one_of",
            custom_error_message="unknown kind",
            custom_error_context={"key": self.key, "known": " ".join(kinds(source, self.key))},
        )

    def _tag(self, value: Any) -> str | None:
        if isinstance(value, BaseModel):
            return MARK + str(getattr(value, self.key))
        if not isinstance(value, dict):
            return None
        word = value.get(self.key)
        word = self.default if word is None else word
        return MARK + word if isinstance(word, str) else None
