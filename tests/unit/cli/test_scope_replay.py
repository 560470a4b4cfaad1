"""``tailrace scopes replay`` waits for the end of a replay, and says how it has ended."""

from collections.abc import Mapping
from typing import Any

import pytest
from structlog.testing import capture_logs

from tailrace.cli import main
from tailrace.control.outcome import ActionRefused
from tests.unit.cli.conftest import Configure
from tests.unit.observe.serving import Service, serving

RUNNING = {"state": "running", "handled": 0, "reason": "", "at": None}
ASKS = ("scopes", "replay", "orders", "--from", "2026-11-30T12:00:00Z")


class Replaying(Service):
    """Its replay is running, its scope is reloaded, and then the replay has ended so."""

    def __init__(self, *ends: Mapping[str, Any] | None) -> None:
        super().__init__()
        starting = ActionRefused(503, "scope 'orders' is starting: try again when it is followed")
        self._ends = [RUNNING, starting, *ends]

    def last_replay(self) -> Mapping[str, Any] | None:
        end = self._ends.pop(0)
        if isinstance(end, ActionRefused):
            raise end
        return end


@pytest.mark.parametrize(
    ("end", "code", "message"),
    [
        ({"state": "done", "handled": 1, "reason": ""}, 0, "is done: 1 change was handed over"),
        (
            {"state": "failed", "handled": 2, "reason": "it is down; resume from 12:00"},
            1,
            "is failed: 2 changes were handed over; it is down; resume from 12:00",
        ),
        (None, 1, "scope 'orders' was reset, and its replay with it: begin again"),
    ],
)
def test_the_end_of_a_replay_is_told(
    end: Mapping[str, Any] | None,
    code: int,
    message: str,
    configure: Configure,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with capture_logs(), serving(Replaying(end)) as client:
        configure(http={"port": client.base_url.port})
        assert main([*ASKS, "--handler", "log"]) == code
    found = "".join(capsys.readouterr())
    assert (message in found, found.count("\n")) == (True, 1), found


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--handler", "log", "--to-file", "a"), "--to-file: cannot be combined with --handler"),
        (("--handler", "log", "--canonical"), "--canonical: needs --to-file"),
        (("--to-file", "a", "--key", "A-17"), "keys: 'A-17' is not Extended JSON: write text"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    options: tuple[str, ...], message: str, configure: Configure, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*ASKS, *options]) == 2
    assert message in capsys.readouterr().err
