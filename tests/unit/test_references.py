"""Cross-references in docstrings name what is there."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

SERVICE = Path(__file__).parents[2] / "service"
REFERENCE = re.compile(r":(?:mod|func|class|meth|attr|data|exc):`~?(tailrace\.[\w.]+)`")


def names_in(module: Path) -> set[str]:
    """All names that a module defines, imports or assigns, at any depth."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(module.read_text())):
        match node:
            case ast.ClassDef(name) | ast.FunctionDef(name) | ast.AsyncFunctionDef(name):
                names.add(name)
            case ast.Name(id) | ast.Attribute(attr=id):
                names.add(id)
            case ast.alias(name, asname):
                names.add(asname or name)
    return names


def is_there(reference: str) -> bool:
    path, rest = SERVICE, reference.split(".")
    while rest and (path / rest[0]).is_dir():
        path, rest = path / rest[0], rest[1:]
    if rest and (path / f"{rest[0]}.py").is_file():
        path, rest = path / f"{rest[0]}.py", rest[1:]
    else:
        path, rest = path / "__init__.py", rest[:1]  # what it exports may have attributes
    return path.is_file() and set(rest) <= names_in(path)


def references() -> Iterator[tuple[str, str]]:
    for path in sorted(SERVICE.rglob("*.py")):
        for reference in REFERENCE.findall(path.read_text()):
            yield str(path.relative_to(SERVICE)), reference


def test_each_reference_of_a_docstring_names_something_that_is_there() -> None:
    there = {reference for _, reference in set(references()) if is_there(reference)}
    assert len(there) > 100
    assert [each for each in references() if each[1] not in there] == []
