"""Mistakes about handlers are one line each, with the handler's key and the file's line."""

import sys
from pathlib import Path

import pytest

from tests.unit.handlers.conftest import Check

SHOP = """\
class Orders:
    def __init__(self, dsn: str, size: int = 1): ...
    async def write(self, batch): ...

class Model:
    from pydantic import BaseModel
    class Options(BaseModel):
        dsn: str
    def __init__(self, options: Options): ...
    async def __call__(self, event): ...

class Both(Orders):
    async def __call__(self, event): ...

class Neither: ...

synchronous = number = 5
"""
MISTAKES = {
    "number": (
        "{}",
        "target: 'shop:number' is not a coroutine function: write 'async def' (line 7",
    ),
    "missing": ("{}", "target: 'shop:missing' cannot be imported: AttributeError: module 'shop' h"),
    "Neither": ("{}", "target: 'shop:Neither' is a class without a coroutine method write(batch) "),
    "Both": (
        "dsn: x",
        "target: 'shop:Both' has both write and __call__: keep one of them (line 7)",
    ),
    "Orders": ("{}", "options.dsn: is required by Orders (line 8)"),
    "Orders ": (
        "{dsn: x, sise: 2}",
        "options.sise: is not an option of Orders; did you mean 'size'",
    ),
    "Orders  ": ("{dsn: x, size: x}", "options.size: does not fit Orders: input should be a valid"),
    "Model": (
        "{dsn: 5}",
        "options.dsn: does not fit Model: input should be a valid string (line 9)",
    ),
}


@pytest.mark.parametrize("target", MISTAKES)
def test_check_reports_a_mistake_in_one_line_and_exits_with_2(
    target: str, check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, told = MISTAKES[target]
    (tmp_path / "shop.py").write_text(SHOP)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "shop", raising=False)
    checked = check(f"type: python\ntarget: shop:{target.strip()}\noptions:\n  {options}\n")
    monkeypatch.delitem(sys.modules, "shop", raising=False)
    assert checked.mistake.startswith(f"handlers.mine.{told}")
    assert ("(line 7)" if "target" in told else "(line ") in checked.mistake
