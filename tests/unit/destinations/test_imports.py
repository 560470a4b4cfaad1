"""Destinations import what one in another package may: the contract is in pyproject.toml."""

import ast
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tests.checkout import ROOT

ALLOWED = {"destination", "destinations", "envelope", "errors", "event", "model", "version"}


def test_the_contract_names_every_package_that_is_not_allowed() -> None:
    """import-linter has no list of what is allowed, so that a new package must join the list."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = project["tool"]["importlinter"]["contracts"]
    (contract,) = (
        each for each in contracts if each.get("source_modules") == ["tailrace.destinations"]
    )
    found = {_name(path) for path in (ROOT / "service/tailrace").iterdir()}
    others = {name for name in found - ALLOWED if not name.startswith("__")} - {""}
    assert set(contract["forbidden_modules"]) == {f"tailrace.{name}" for name in others}


def _name(path: Path) -> str:
    """The name of a module or a package; empty for another file."""
    is_package = path.is_dir() and (path / "__init__.py").exists()
    return path.stem if is_package or path.suffix == ".py" else ""


COMMON = {"anyio", "bson", "prometheus_client", "pydantic", "structlog"}
CLIENTS = {
    "http": {"aiohttp", "yarl"},
    "jsonl": {"orjson"},
    "kafka": {"confluent_kafka", "orjson"},
    "mongodb": {"pymongo"},
    "nats": {"nats"},
    "postgresql": {"psycopg"},
    "redis": {"redis", "hiredis"},
}


def test_a_destination_imports_its_own_client_only() -> None:
    directory = ROOT / "service/tailrace/destinations"
    for path in directory.rglob("*.py"):
        name = path.relative_to(directory).parts[0].removesuffix(".py")
        allowed = {"tailrace", *COMMON, *CLIENTS.get(name, ())} | sys.stdlib_module_names
        assert set(_imported(path)) <= allowed, path


def _imported(path: Path) -> Iterator[str]:
    """The first word of each module that a file imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield str(node.module).partition(".")[0]
