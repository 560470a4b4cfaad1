"""The schema for editors, the example at the root, and the page of all keys."""

import re
from typing import Any

from docs.configuration_reference import reference
from tests.checkout import ROOT
from tests.configuration import load, schema

EXAMPLE = ROOT / "config.yaml"


def definition(name: str) -> dict[str, Any]:
    found: dict[str, Any] = schema()["$defs"][name]
    return found


def test_the_example_loads_without_an_environment() -> None:
    settings = load(EXAMPLE, {})
    uri = "mongodb://localhost:27017/?replicaSet=rs0"
    assert settings.mongodb.uri.get_secret_value() == uri
    assert [scope.name for scope in settings.scopes] == ["shop"]


def test_the_example_names_every_key_that_there_is() -> None:
    text = EXAMPLE.read_text()
    written = set(re.findall(r"^[ #-]*([a-z_]+):", text, re.MULTILINE)) | {"uri_file"}
    known = set(schema()["properties"])
    for name, body in schema()["$defs"].items():
        if not name.startswith(("Mongodb", "Memory")) or name == "MongodbSettings":
            known |= set(body["properties"])
    assert known - written == set()


def test_the_page_is_up_to_date() -> None:
    """If this fails, run ``make reference``."""
    assert (ROOT / "docs/configuration.md").read_text() == reference()


def test_numbers_booleans_and_words_may_be_interpolations() -> None:
    for section, key, kind in (
        ("HttpSettings", "port", "integer"),
        ("HttpSettings", "liveness_seconds", "number"),
        ("JsonlHandlerSettings", "fsync", "boolean"),
        ("LoggingSettings", "format", "string"),
    ):
        value, interpolation = definition(section)["properties"][key]["anyOf"]
        assert value["type"] == kind
        assert interpolation == {"type": "string", "pattern": r"^\$\{.*\}$"}


def test_the_uri_or_its_file_is_required() -> None:
    mongodb = definition("MongodbSettings")
    assert mongodb["oneOf"] == [{"required": ["uri"]}, {"required": ["uri_file"]}]
    assert "uri" not in mongodb.get("required", [])
