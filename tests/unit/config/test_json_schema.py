"""The schema for editors, and the file at the root, which explains every key."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tailrace.config import load, masked, schema

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "config.yaml"


def definition(name: str) -> dict[str, Any]:
    found: dict[str, Any] = schema()["$defs"][name]
    return found


def test_the_example_loads_without_an_environment() -> None:
    settings = load(EXAMPLE, {})
    uri = "mongodb://localhost:27017/?replicaSet=rs0"
    assert settings.mongodb.uri.get_secret_value() == uri
    assert [scope.name for scope in settings.scopes] == ["shop", "orders"]


def test_the_example_names_every_key_that_there_is() -> None:
    text = EXAMPLE.read_text()
    written = set(re.findall(r"^[ #-]*([a-z_]+):", text, re.MULTILINE)) | {"uri_file"}
    known = set(schema()["properties"])
    for name, body in schema()["$defs"].items():
        if not name.startswith(("Mongodb", "Memory")) or name == "MongodbSettings":
            known |= set(body["properties"])
    assert known - written == set()


def test_the_schema_knows_the_sections_of_the_example() -> None:
    body = schema()
    assert body["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert body["title"] == "Tailrace configuration"
    assert body["additionalProperties"] is False
    assert set(masked(load(EXAMPLE, {}))) == set(body["properties"])
    assert body["required"] == ["mongodb", "scopes", "handlers", "routes"]


def test_every_key_of_the_schema_is_described() -> None:
    bodies = {"Settings": schema(), **schema()["$defs"]}
    bare = [
        f"{name}.{key}"
        for name, body in bodies.items()
        for key, about in body["properties"].items()
        if not about.get("description")
    ]
    assert bare == []


@pytest.mark.parametrize(
    ("section", "key", "kind"),
    [
        ("HttpSettings", "port", "integer"),
        ("HttpSettings", "liveness_seconds", "number"),
        ("JsonlHandlerSettings", "fsync", "boolean"),
        ("LoggingSettings", "format", "string"),
    ],
)
def test_numbers_booleans_and_words_may_be_interpolations(
    section: str, key: str, kind: str
) -> None:
    value, interpolation = definition(section)["properties"][key]["anyOf"]
    assert value["type"] == kind
    assert interpolation == {"type": "string", "pattern": r"^\$\{.*\}$"}


def test_the_kind_of_a_handler_or_store_is_a_fixed_word() -> None:
    assert definition("JsonlHandlerSettings")["properties"]["type"]["const"] == "jsonl"
    assert definition("MongodbStoreSettings")["properties"]["type"]["const"] == "mongodb"
    refs = schema()["properties"]["handlers"]["additionalProperties"]["oneOf"]
    assert [ref["$ref"].rpartition("/")[2] for ref in refs] == [
        "LogHandlerSettings",
        "JsonlHandlerSettings",
        "ParquetHandlerSettings",
        "PythonHandlerSettings",
    ]


def test_the_uri_or_its_file_is_required() -> None:
    mongodb = definition("MongodbSettings")
    assert mongodb["oneOf"] == [{"required": ["uri"]}, {"required": ["uri_file"]}]
    assert "uri" not in mongodb.get("required", [])


def test_the_package_needs_no_driver() -> None:
    """Not even the codec: it is read by every command, also by those that only help."""
    code = "import sys, tailrace.config; print([m for m in sys.modules])"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, cwd=ROOT)
    loaded = {name.partition(".")[0] for name in ast.literal_eval(output.stdout.decode())}
    assert not loaded & {"motor", "pymongo", "bson", "pyspark"}
