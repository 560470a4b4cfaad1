"""Mistakes about handlers are one line each, with the handler's key and the file's line."""

import sys
from pathlib import Path

import pytest

from tailrace.cli import main

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
CONFIGURATION = """\
mongodb: {{uri: mongodb://localhost/}}
scopes: [{{name: orders, database: shop}}]
routes: [{{scope: orders, handlers: [mine]}}]
handlers:
  mine:
    type: python
    target: shop:{target}
    options:
      {options}
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
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options, told = MISTAKES[target]
    (tmp_path / "shop.py").write_text(SHOP)
    file = tmp_path / "config.yaml"
    file.write_text(CONFIGURATION.format(target=target.strip(), options=options))
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "shop", raising=False)
    assert main(["check", "--config", str(file)]) == 2
    monkeypatch.delitem(sys.modules, "shop", raising=False)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"tailrace: {file}: handlers.mine.{told}")
    assert ("(line 7)" if "target" in told else "(line ") in line
