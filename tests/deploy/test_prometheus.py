"""A real Prometheus scrapes a real service under load: rules, dashboard, an alert."""

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
from tests.scratch import MakeDirectory

pytestmark = pytest.mark.integration

DATABASE = "deploy"

STRICT = """
import pathlib
from tailrace.errors import PermanentError

async def handle(event):
    if (event.full_document or {}).get("poison") and not pathlib.Path("mended").exists():
        raise PermanentError("poison")
"""

# Panels and annotations without data as long as nothing fails.
SILENT_WHEN_WELL = {"Alerts", "Restarts", "Resumes", "Starts"}

# Panels of a pipeline, which is another process.
OF_THE_PIPELINE = {
    *("Tables behind", "Events that wait for tables", "Work of the pipeline"),
    "Failures of the pipeline",
}

# Panels of verifications: the handler of this service cannot be asked.
OF_VERIFICATIONS = {"Rows that differ", "Age of the proof", "Documents compared"}


@pytest.fixture(scope="module")
def service(mongod: ReplicaSet, session_directory: MakeDirectory) -> Iterator[Daemon]:
    """A service under load; one scope halts at a poisoned document, one has a snapshot."""
    names = (DATABASE, f"{DATABASE}-too")
    with mongod.client() as client:
        client[names[1]].orders.insert_many([{"n": n} for n in range(5000)])
    snapshot = {"mode": "initial", "documents_per_second": 5}
    run = Daemon(
        session_directory("service"),
        mongod.uri,
        http={"port": free_port()},
        scopes=[
            {"name": name, "database": name, "max_await_time_ms": 200, "snapshot": snapshot}
            for name in names
        ],
        delivery={"retry": {"attempts": 1}, "on_failure": "halt"},
        replicas={"lease_seconds": 2},
        handlers={"strict": {"type": "python", "target": "strict:handle"}},
        routes=[{"scope": name, "handlers": ["strict"], "max_lag": "1h"} for name in names],
    )
    (run.directory / "strict.py").write_text(STRICT)
    run.start()
    with mongod.client() as client:
        orders = client[DATABASE].orders
        with Load(lambda numbers: orders.insert_many([{"n": n} for n in numbers]), 0.2):
            yield run
        run.kill()
        for name in names:
            client.drop_database(name)


@pytest.fixture(scope="module")
def prometheus(service: Daemon, session_directory: MakeDirectory) -> Iterator[Prometheus]:
    server = Prometheus(session_directory("prometheus") / "here", service.port)
    yield server
    server.stop()


def test_every_rule_is_evaluated_without_an_error(prometheus: Prometheus) -> None:
    def evaluated() -> list[dict[str, Any]]:
        groups = (prometheus.ask("rules") or {"groups": []})["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        return rules if all(rule["health"] != "unknown" for rule in rules) else []

    rules = until(evaluated, "an evaluation of each rule", 60)
    assert {rule["name"] for rule in rules if rule["health"] != "ok"} == set()
    assert len(rules) == len(files.recorded()) + len(files.alerts())


def test_each_panel_of_the_dashboard_has_data_under_load(prometheus: Prometheus) -> None:
    prometheus.until("scope:tailrace_events:rate5m > 0")
    for query in files.queries():
        expression = query.filled("tailrace")
        if query.panel in SILENT_WHEN_WELL | OF_THE_PIPELINE | OF_VERIFICATIONS:
            prometheus.query(expression)  # an error fails the test
        else:
            prometheus.until(expression)


def test_promtool_accepts_the_metrics(service: Daemon) -> None:
    command = [require("promtool", package="prometheus"), "check", "metrics"]
    text = service.get("/metrics")[1]
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_halt_fires_its_alert_and_a_restart_resolves_it(
    prometheus: Prometheus, service: Daemon, mongod: ReplicaSet
) -> None:
    prometheus.until('tailrace_watcher_state{scope="deploy"} == 1')
    assert prometheus.firing("TailraceScopeHalted") == []
    with mongod.client() as client:
        client[DATABASE].orders.insert_one({"poison": True})
    (alert,) = until(lambda: prometheus.firing("TailraceScopeHalted"), "the alert", 60)
    labels, annotations = alert["labels"], alert["annotations"]
    assert (labels["scope"], labels["severity"]) == ("deploy", "critical")
    assert annotations["summary"] == f"Scope deploy is halted at 127.0.0.1:{service.port}"
    assert annotations["runbook_url"].endswith("runbook.md#tailracescopehalted")
    (service.directory / "mended").touch()
    assert service.stop() == 0
    service.start()
    until(lambda: not prometheus.firing("TailraceScopeHalted"), "the end of the alert", 60)
