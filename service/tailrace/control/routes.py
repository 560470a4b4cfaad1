"""The table of the HTTP API: what the process shows of itself, and the actions."""

from tailrace.control.action import Route, View
from tailrace.control.action_table import actions
from tailrace.observe.exchange import Pace

VIEWS = (
    View("/", "The status page.", gives="text/html"),
    View("/metrics", "Prometheus metrics.", gives="text/plain"),
    View(
        "/livez",
        "Whether a restart of the process would not help: 200, or 503 with the reasons.",
        pace=Pace.AT_ONCE,
        gives="text/plain",
    ),
    View(
        "/readyz",
        "Whether changes flow in every scope: 200, or 503 with the reasons.",
        pace=Pace.AT_ONCE,
        gives="text/plain",
    ),
    View("/status", "Every scope with its state, position and lags."),
    View(
        "/history",
        "The last quarter of an hour: changes read and lag of each scope, every 5 seconds.",
    ),
    View("/openapi.json", "This API as an OpenAPI 3.1 document."),
)


def routes() -> tuple[Route, ...]:
    """All of them, in the order of docs/http.md."""
    return (*VIEWS, *actions())
