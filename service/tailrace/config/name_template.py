"""Names of topics, tables, … that are made of an event's namespace: ``{database}.{collection}``."""

from dataclasses import dataclass
from string import Formatter
from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from tailrace.config.interpolation import Unresolved

_FIELDS = ("database", "collection", "scope", "prefix")


@dataclass(frozen=True, slots=True)
class Template:
    """A text with the placeholders ``{database}``, ``{collection}``, ``{scope}``, ``{prefix}``."""

    text: str

    def name(self, database: str, collection: str, *, scope: str = "", prefix: str = "") -> str:
        """The text with its placeholders replaced."""
        return self.text.format(
            database=database, collection=collection, scope=scope, prefix=prefix
        )


def _template(value: Any) -> Template:
    if isinstance(value, Template):
        return value
    if isinstance(value, Unresolved) or not isinstance(value, str) or not value.strip():
        raise ValueError("must be a text that is not empty")
    message = f"may hold {', '.join(f'{{{name}}}' for name in _FIELDS)}, and no other brace"
    try:
        parts = list(Formatter().parse(str(value)))
    except ValueError:
        raise ValueError(message) from None
    for _, name, form, conversion in parts:
        if name is not None and (name not in _FIELDS or form or conversion):
            raise ValueError(message)
    return Template(str(value))


NameTemplate = Annotated[
    Template,
    PlainValidator(_template),
    PlainSerializer(lambda given: given.text),
    WithJsonSchema({"type": "string"}),
]
