"""Rules for fields that cannot be meant, or lack their key."""

import json
from pathlib import Path
from typing import Any

import pytest

from tailrace.handlers import check_handlers
from tests.unit.config.files import minimal, parse, problems

TYPES: dict[str, dict[str, Any]] = {
    "jsonl": {"path": "x"},
    "python": {"target": "a:b"},
    "parquet": {"path": "x"},
    "log": {},
    "http": {"url": "http://localhost/"},
    "postgresql": {"dsn": "postgresql://x", "table": "{collection}"},
}


def configured(fields: dict[str, Any], kind: str = "jsonl") -> dict[str, Any]:
    handlers = {"h": {"type": kind, **TYPES[kind], "fields": fields}}
    return minimal(handlers=handlers, routes=[{"scope": "orders", "handlers": ["h"]}])


def problems_of(fields: dict[str, Any]) -> dict[str, str]:
    found = problems(configured(fields))
    return {path: message for path, message in found.items() if path.startswith("handlers")}


@pytest.mark.parametrize("kind", TYPES)
def test_every_type_has_fields(kind: str) -> None:
    rules: dict[str, Any] = {
        "hash_key": "k",
        "hash": ["_id", "ssn"],
        "mask": {"a.b": {"keep_last": 4}, "c": "-"},
    }
    rules |= {"flatten": {"depth": 1}, "set": {"region": "eu", "n": [1, {"m": None}]}}
    settings: Any = parse(configured(rules, kind)).handlers["h"]
    assert settings.fields.constants == rules["set"]
    assert settings.fields.protection() is not None
    shown = json.loads(settings.fields.model_dump_json(by_alias=True, exclude_unset=True))
    assert shown == {**rules, "hash_key": "***"}


@pytest.mark.parametrize(
    ("fields", "path", "message"),
    [
        ({"hash": ["a"]}, "fields", "hash needs a key: add hash_key: {file: PATH}"),
        ({"hash_key": {"file": "missing"}, "hash": ["a"]}, "fields.hash_key",
         "the secret file 'missing' cannot be read"),
        ({"hash_key": "k", "hash": ["a.0.b"]}, "fields", "'a.0.b' has an array's index"),
        ({"hash_key": "k", "hash": ["a"], "mask": {"a": "x"}}, "fields",
         "'a' is both hashed and masked"),
        ({"hash_key": "k", "hash": ["a", "a.b"]}, "fields", "'a.b' lies above or below"),
        ({"hash_key": "k", "hash": ["a..b"]}, "fields.hash[0]", "must be the path of a field"),
        ({"mask": {"_id": "x"}}, "fields.mask", "_id always stays as it is"),
        ({"mask": {"a": ""}}, "fields.mask.a", "must be a text that is not empty, or {keep_last"),
        ({"mask": {"a": {"keep_last": 0}}}, "fields.mask.a", "must be a text"),
        ({"mask": {"a": {"keep_first": 1}}}, "fields.mask.a", "must be a text"),
        ({"flatten": {"depth": 0}}, "fields.flatten.depth", "greater than 0"),
        ({"set": {"a.b": 1}}, "fields.set", "must be the name of a field, without dots"),
        ({"set": {"_id": 1}}, "fields.set", "must be the name of a field"),
        ({"hashes": ["a"]}, "fields.hashes", "is not a known key"),
    ],
    ids=str,
)  # fmt: skip
def test_a_rule_that_cannot_be_applied_is_a_problem(
    fields: dict[str, Any], path: str, message: str
) -> None:
    (found,) = problems_of(fields).items()
    assert found[0].startswith(f"handlers.h.{path}")
    assert message in found[1]


def test_an_empty_key_file_is_a_problem(tmp_path: Path) -> None:
    file = tmp_path / "hash.key"
    file.write_text("\n")
    found = problems_of({"hash_key": {"file": str(file)}, "hash": ["a"]})
    assert found == {"handlers.h.fields.hash_key": f"the secret file '{file}' is empty"}


def test_a_lake_cannot_hash_the_id_that_its_position_holds() -> None:
    settings = parse(configured({"hash_key": "k", "hash": ["_id.k"]}, "parquet"))
    (problem,) = check_handlers(settings.handlers)
    assert problem.path == "handlers.h.fields.hash"
    assert "its position is the id of its last event" in problem.message
