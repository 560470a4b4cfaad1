"""The JSON schema of the file, for editors."""

from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from tailrace.config.settings import Settings

DIALECT = "https://json-schema.org/draft/2020-12/schema"
INTERPOLATION = r"^\$\{.*\}$"


def schema() -> dict[str, Any]:
    """The schema of a configuration file before its variables are put in (draft 2020-12).

    Numbers, booleans and words of a fixed set may also be one interpolation.
    """
    body = Settings.model_json_schema(schema_generator=_Generator)
    mongodb = body["$defs"]["MongodbSettings"]
    mongodb["required"] = [name for name in mongodb["required"] if name != "uri"]
    mongodb["oneOf"] = [{"required": ["uri"]}, {"required": ["uri_file"]}]
    return {"$schema": DIALECT, **body, "title": "Tailrace configuration"}


def _or_interpolation(schema: JsonSchemaValue) -> JsonSchemaValue:
    return {"anyOf": [schema, {"type": "string", "pattern": INTERPOLATION}]}


class _Generator(GenerateJsonSchema):
    """Adds interpolation wherever the file would otherwise have to hold no text."""

    def int_schema(self, schema: core_schema.IntSchema) -> JsonSchemaValue:
        return _or_interpolation(super().int_schema(schema))

    def float_schema(self, schema: core_schema.FloatSchema) -> JsonSchemaValue:
        return _or_interpolation(super().float_schema(schema))

    def bool_schema(self, schema: core_schema.BoolSchema) -> JsonSchemaValue:
        return _or_interpolation(super().bool_schema(schema))

    def literal_schema(self, schema: core_schema.LiteralSchema) -> JsonSchemaValue:
        words = super().literal_schema(schema)
        return words if "const" in words else _or_interpolation(words)
