"""What ``tailrace check --connect`` tries of a handler class, and what it says."""

from pathlib import Path
from typing import Any

import pytest

from tailrace import Batch, Unavailable
from tailrace.destination import ProbeContext
from tailrace.errors import ConfigurationError, PermanentError, Problem
from tailrace.handlers.probe import probe_handler
from tests.handlers import ORDERS
from tests.unit.config.files import minimal, parse


class Silent:
    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *error: object) -> None: ...

    async def write(self, batch: Batch) -> None: ...


class Tried(Silent):
    error: Exception | None = None

    async def probe(self, context: ProbeContext) -> str:
        if self.error is not None:
            raise self.error
        names = ", ".join(scope.name for scope in context.scopes)
        return f"{names} of {context.cluster} can be stored"


async def tried(name: str, **more: Any) -> str:
    given = {"type": "python", "target": f"{__name__}:{name}", **more}
    settings = parse(minimal(handler=given)).handlers["mine"]
    return await probe_handler("mine", settings, [ORDERS], "rs0")


async def test_what_a_class_tries_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[3])
    assert await tried("Tried") == "orders of rs0 can be stored"
    assert await tried("Silent") == f"{__name__}:Silent starts"


WAITS = ". 'tailrace run' starts, and waits for it"


@pytest.mark.parametrize(
    ("error", "outages", "said"),
    [
        (Unavailable("it is down"), [], f"handlers.mine: Unavailable: it is down{WAITS}"),
        (ConnectionError("refused"), [], f"handlers.mine: ConnectionError: refused{WAITS}"),
        (KeyError("x"), ["builtins.LookupError"], f"handlers.mine: KeyError: 'x'{WAITS}"),
        (KeyError("x"), [], "handlers.mine: KeyError: 'x'"),
        (PermanentError("no table"), [], "handlers.mine: PermanentError: no table"),
        (
            ConfigurationError(Problem("handlers.mine.options.path", "is a directory")),
            [],
            "handlers.mine.options.path: is a directory",
        ),
    ],
)
async def test_what_it_raises_is_one_line(
    error: Exception, outages: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And says whether ``tailrace run`` would wait."""
    monkeypatch.setattr(Tried, "error", error)
    with pytest.raises(ConfigurationError) as raised:
        await tried("Tried", outages=outages)
    assert str(raised.value) == said
