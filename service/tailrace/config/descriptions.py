"""The docstrings of settings, read when they are asked for.

Pydantic can read them too, but at import, which costs every start of every command.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from itertools import pairwise

from pydantic import BaseModel


def descriptions(section: type[BaseModel]) -> dict[str, str]:
    """The docstring of each field by its key in the file; empty where there is no source."""
    found: dict[str, str] = {}
    for cls in reversed(section.__mro__):
        if issubclass(cls, BaseModel) and cls is not BaseModel:
            found.update(_of_class(cls))
    fields = section.model_fields
    return {info.alias or name: found[name] for name, info in fields.items() if name in found}


def _of_class(cls: type) -> dict[str, str]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    except (OSError, TypeError, SyntaxError):
        return {}
    (definition,) = tree.body
    found = {}
    body = definition.body if isinstance(definition, ast.ClassDef) else []
    for statement, behind in pairwise(body):
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and isinstance(behind, ast.Expr)
            and isinstance(behind.value, ast.Constant)
            and isinstance(behind.value.value, str)
        ):
            found[statement.target.id] = " ".join(behind.value.value.split())
    return found
