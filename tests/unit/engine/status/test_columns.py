"""The status of a handler names the columns that its destination made of fields."""

from dataclasses import replace

from tailrace.engine.status.document import status_document
from tests.unit.engine.scripted_driver import ScriptedDriver
from tests.unit.engine.watching import Destination, Watching


def test_the_columns_of_now_are_named() -> None:
    columns: dict[str, list[str]] = {}
    routed = Destination().routed()
    routed = replace(routed, handler=replace(routed.handler, columns=lambda: columns))
    watching = Watching(ScriptedDriver(), routed)
    columns["orders"] = ["total"]
    (shown,) = status_document(watching.watcher.status)["handlers"].values()
    assert shown["columns"] == {"orders": ["total"]}
