"""The schema of the chart's values: the chart's own, and the configuration as the models say it.

``make reference`` writes deploy/helm/tailrace/values.schema.json.
"""

import json
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tailrace.config.settings import model_of, schema
from tailrace.handlers.types import BUILT_IN

_OWN = Path(__file__).parents[1] / "deploy/helm/values.schema.yaml"

_FOR_READERS = ("title", "description", "examples", "default")
"""Not needed to check values, and most of the bytes: Helm stores the schema with each release."""


def values_schema() -> str:
    """The schema as JSON. Older versions of Helm know draft 7, which has all words in use."""
    own: dict[str, Any] = YAML(typ="safe", pure=True).load(_OWN)
    configuration = schema(model_of(each.settings for each in BUILT_IN.values()))
    definitions = configuration.pop("$defs")
    # The chart adds the section, with the file of the Secret.
    configuration["required"].remove("mongodb")
    del configuration["$schema"]
    del definitions["MongodbSettings"]["oneOf"]
    definitions["Configuration"] = configuration
    own["$defs"] |= _plain(definitions, definitions, named=True)
    return json.dumps({"$schema": "http://json-schema.org/draft-07/schema#"} | own, indent=1) + "\n"


def _plain(node: Any, definitions: dict[str, Any], named: bool = False) -> Any:
    """``node`` without what only readers need; if ``named``, its keys are names, not words."""
    if isinstance(node, list):
        return [_plain(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    if not named and "discriminator" in node:
        return _by_type(node["discriminator"]["mapping"], definitions)
    return {
        key: _plain(value, definitions, named=not named and key in ("properties", "$defs"))
        for key, value in node.items()
        if named or key not in _FOR_READERS
    }


def _by_type(models: dict[str, str], definitions: dict[str, Any]) -> dict[str, Any]:
    """One of several models by its ``type``: a mistake is named in that model alone, not in all."""
    chosen = []
    usual = False
    for name, model in models.items():
        condition: dict[str, Any] = {"properties": {"type": {"const": name}}}
        if "type" in definitions[model.rpartition("/")[2]].get("required", ()):
            condition["required"] = ["type"]
        else:
            usual = True
        chosen.append({"if": condition, "then": {"$ref": model}})
    either = {"type": "object", "properties": {"type": {"enum": list(models)}}, "allOf": chosen}
    return either if usual else {"required": ["type"], **either}


if __name__ == "__main__":
    print(values_schema(), end="")
