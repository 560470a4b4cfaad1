"""``tailrace snapshot status --watch`` waits for the end of a snapshot."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from tailrace.cli import main
from tests.unit.cli.conftest import Configure
from tests.unit.cli.test_snapshot_text import shown
from tests.unit.observe.serving import Service, serving


class Reading(Service):
    """Each look at its scope finds the next state, and the snapshot in that."""

    def __init__(self, *looks: tuple[str, str | None]) -> None:
        super().__init__()
        self._looks = [*looks]

    @property
    def status(self) -> dict[str, Any]:  # type: ignore[override]
        state, of = self._looks.pop(0)
        snapshot = {**shown(), "state": of} if of is not None else None
        return {"scopes": {"orders": {"state": state, "snapshot": snapshot, "handlers": {}}}}

    @status.setter
    def status(self, value: dict[str, Any]) -> None: ...


@pytest.mark.parametrize(
    ("looks", "code"),
    [
        ([("catching_up", "reading"), ("starting", None), ("streaming", "done")], 0),
        ([("starting", None), ("backing_off", None), ("streaming", "cancelled")], 1),
        ([("stopped", None), ("streaming", "done")], 0),
        ([("streaming", None)], 0),
        ([("halted", None)], 0),
    ],
)
def test_it_ends_when_the_snapshot_has_not_when_it_is_not_known(
    looks: list[tuple[str, str | None]],
    code: int,
    configure: Configure,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A scope that starts again, as after a reload, has to read its checkpoint first."""
    monkeypatch.setattr("tailrace.cli.snapshot._LOOK_SECONDS", 0)
    service = Reading(*looks)
    with capture_logs(), serving(service) as client:
        configure(http={"port": client.base_url.port})
        assert main(["snapshot", "status", "orders", "--watch"]) == code
    assert ("no snapshot" in capsys.readouterr().out) is (len(looks) == 1)
