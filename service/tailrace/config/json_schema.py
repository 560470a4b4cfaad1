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


class _Generator(GenerateJsonSchema):
    """Adds interpolation wherever the file would otherwise have to hold no text."""

    def generate_inner(self, schema: core_schema.CoreSchema) -> JsonSchemaValue:
        made = super().generate_inner(schema)
        if schema["type"] not in ("int", "float", "bool", "literal") or "const" in made:
            return made
        return {"anyOf": [made, {"type": "string", "pattern": INTERPOLATION}]}
