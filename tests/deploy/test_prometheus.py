"""A real Prometheus scrapes a real service under load: targets, rules, dashboard, an alert."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.daemon import Daemon, until
from tests.deploy import files
from tests.deploy.prometheus import Prometheus
from tests.load import Load
from tests.machine import free_port
from tests.mongod import ReplicaSet
from tests.packages import require

pytestmark = pytest.mark.integration

DATABASE = "deploy"

HANDLERS = """
import pathlib
from tailrace.errors import PermanentError

async def strict(event):
    if event.full_document.get("poison") and not pathlib.Path("mended").exists():
        raise PermanentError("poison")

async def lenient(event):
    if event.full_document.get("odd"):
        raise PermanentError("odd")
"""

# What gives nothing as long as nothing goes wrong, by panel or note.
SILENT_WHEN_WELL = {"Alerts", "Restarts", "Resumes", "Starts"}


@pytest.fixture(scope="module")
def service(mongod: ReplicaSet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """Two scopes: ``strict`` halts at a poisoned document, ``lenient`` sets odd ones aside."""
    scopes = [
        {"name": name, "database": DATABASE, "collection": name, "max_await_time_ms": 200}
        for name in ("strict", "lenient")
    ]
    retry = {"attempts": 1}
    run = Daemon(
        tmp_path_factory.mktemp("service"),
        mongod.uri,
        http={"port": free_port()},
        scopes=scopes,
        handlers={
            "strict": {
                "type": "python",
                "target": "destinations:strict",
                "retry": retry,
                "on_failure": "halt",
            },
            "lenient": {"type": "python", "target": "destinations:lenient", "retry": retry},
        },
        routes=[{"scope": scope["name"], "handlers": [scope["name"]]} for scope in scopes],
    )
    (run.directory / "destinations.py").write_text(HANDLERS)
    yield run.start()
    run.kill()
    with mongod.client() as client:
        client.drop_database(DATABASE)


@pytest.fixture(scope="module")
def prometheus(service: Daemon, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    server = Prometheus(tmp_path_factory.mktemp("prometheus") / "here", service.port)
    yield server
    server.stop()


@pytest.fixture(scope="module", autouse=True)
def load(mongod: ReplicaSet, service: Daemon) -> Iterator[Load]:
    """Inserts into both collections, all the time."""
    with mongod.client() as client:
        collections = [client[DATABASE][name] for name in ("strict", "lenient")]

        def write(numbers: list[int]) -> None:
            for collection in collections:
                collection.insert_many([{"number": number} for number in numbers])

        with Load(write, 0.2) as running:
            yield running


def test_every_rule_is_evaluated_without_an_error(prometheus: Prometheus) -> None:
    def evaluated() -> list[dict[str, Any]]:
        groups = (prometheus.ask("rules") or {"groups": []})["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        return rules if all(rule["health"] != "unknown" for rule in rules) else []

    rules = until(evaluated, "an evaluation of each rule", 60)
    assert {rule["name"] for rule in rules if rule["health"] != "ok"} == set()
    assert len(rules) == len(files.recorded()) + len(files.alerts())


@pytest.mark.parametrize("query", files.queries(), ids=lambda query: query.panel)
def test_the_dashboard_shows_something_under_load(
    prometheus: Prometheus, query: files.Query
) -> None:
    expression = query.filled("tailrace")
    prometheus.until("scope:tailrace_events:rate5m > 0")
    if query.panel in SILENT_WHEN_WELL:
        prometheus.query(expression)  # which must not be an error
    else:
        prometheus.until(expression)


def test_promtool_finds_nothing_to_say_about_the_metrics(service: Daemon) -> None:
    text = service.get("/metrics")[1]
    done = subprocess.run(
        [require("promtool", package="prometheus"), "check", "metrics"],
        input=text,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_halt_fires_its_alert_and_a_mended_scope_resolves_it(
    prometheus: Prometheus, service: Daemon, mongod: ReplicaSet, load: Load
) -> None:
    prometheus.until('tailrace_watcher_state{scope="strict"} == 1')
    assert prometheus.firing("TailraceScopeHalted") == []
    with mongod.client() as client:
        client[DATABASE].strict.insert_one({"poison": True})
    (alert,) = until(lambda: prometheus.firing("TailraceScopeHalted"), "the alert", 60)
    assert alert["labels"] == {
        "alertname": "TailraceScopeHalted",
        "instance": f"127.0.0.1:{service.port}",
        "job": "tailrace",
        "scope": "strict",
        "severity": "critical",
        "state": "halted",
    }
    annotations = alert["annotations"]
    assert annotations["summary"] == f"Scope strict is halted at 127.0.0.1:{service.port}"
    path, _, anchor = annotations["runbook_url"].partition("#")
    assert files.DEPLOY.parent.joinpath(path).is_file()
    assert anchor == "tailracescopehalted"
    prometheus.until(
        'sum(tailrace_watcher_state{scope="lenient",state=~"streaming|caught_up"}) == 1'
    )

    (service.directory / "mended").touch()
    assert service.stop() == 0
    service.start()
    until(lambda: not prometheus.firing("TailraceScopeHalted"), "the end of the alert", 60)
    prometheus.until(
        'sum(tailrace_watcher_state{scope="strict",state=~"streaming|caught_up"}) == 1'
    )
    load.more()
