"""Each key of the configuration has a test that ``pytest -k KEY`` finds."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.checkout import ROOT
from tests.configuration import schema


def keys() -> Iterator[str]:
    """The keys that hold a value; a section is found by the keys in it."""
    whole = schema()
    for body in (whole, *whole["$defs"].values()):
        for key, node in body.get("properties", {}).items():
            if "$ref" not in node and "properties" not in node:
                yield key


def names(file: Path) -> Iterator[str]:
    """What ``-k`` compares: the module, its tests, and the texts of their parameters."""
    module = ast.parse(file.read_text())
    tables = {
        target.id: node.value
        for node in module.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and "test_" in node.name:
            yield f"{file.stem} {node.name}"
            for decorator in node.decorator_list:
                yield from _texts(decorator)
                for found in ast.walk(decorator):
                    if isinstance(found, ast.Name) and found.id in tables:
                        yield from _texts(tables[found.id])


def _texts(node: ast.AST) -> Iterator[str]:
    for found in ast.walk(node):
        if isinstance(found, ast.Constant) and isinstance(found.value, str):
            yield found.value


def test_each_key_of_the_configuration_is_in_the_name_of_a_test() -> None:
    tests = (ROOT / "tests").rglob("test_*.py")
    known = "\n".join(name.lower() for file in tests for name in names(file))
    assert [key for key in dict.fromkeys(keys()) if key not in known] == []
