"""Rules, alerts and dashboard as files: valid, each alert tested, and every name exists."""

import subprocess
from typing import Any

import pytest

from tailrace.engine import WatcherState
from tests.deploy import files
from tests.deploy.promql import exported_names, metric_names
from tests.packages import require

# Metrics that Prometheus creates itself.
OF_PROMETHEUS = {"up", "ALERTS"}


@pytest.fixture(scope="module")
def promtool() -> str:
    return require("promtool", package="prometheus")


def run(*command: str) -> str:
    done = subprocess.run(command, cwd=files.PROMETHEUS, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_prometheus_accepts_the_configuration_and_every_rule(promtool: str) -> None:
    said = run(promtool, "check", "config", "--lint=all", "--lint-fatal", "prometheus.yml")
    assert f"{len(files.alerts())} rules found" in said
    assert f"{len(files.recorded())} rules found" in said


@pytest.mark.parametrize("case", files.CASES, ids=lambda path: path.stem)
def test_the_cases_of_the_alerts_hold(promtool: str, case: Any) -> None:
    assert "SUCCESS" in run(promtool, "test", "rules", f"tests/{case.name}")


def test_each_alert_is_tried_firing_and_silent() -> None:
    firing, silent = set(), set()
    for path in files.CASES:
        for test in files.read(path)["tests"]:
            for check in test["alert_rule_test"]:
                (firing if check["exp_alerts"] else silent).add(check["alertname"])
    names = {alert["alert"] for alert in files.alerts()}
    assert firing == names
    assert silent == names


@pytest.fixture(scope="module")
def known() -> set[str]:
    """All existing names: those that the service declares, and those of recording rules."""
    return exported_names() | {rule["record"] for rule in files.recorded()} | OF_PROMETHEUS


def test_each_rule_and_alert_asks_for_names_that_exist(known: set[str]) -> None:
    for rule in files.recorded() + files.alerts():
        names = metric_names(rule["expr"])
        assert names, rule
        assert names <= known, rule.get("alert") or rule["record"]


def test_each_expression_of_the_dashboard_asks_for_names_that_exist(known: set[str]) -> None:
    for query in files.queries():
        names = metric_names(query.expression)
        assert names, query
        assert names <= known, query.panel


def test_each_metric_of_the_service_is_used(known: set[str]) -> None:
    """A metric that nothing uses should not be exported."""
    used = {
        name
        for expression in [
            *(query.expression for query in files.queries()),
            *(rule["expr"] for rule in files.recorded() + files.alerts()),
        ]
        for name in metric_names(expression)
    }
    ours = {name for name in known if name.startswith("tailrace_")}
    # A histogram's buckets contain what its sum and count show.
    assert {name for name in ours - used if not name.endswith(("_sum", "_count"))} == set()


def test_each_panel_of_the_dashboard_has_a_description_and_a_unit() -> None:
    for panel in files.dashboard()["panels"]:
        if panel["type"] == "row":
            continue
        assert len(panel["description"]) > 30, panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        letters = [target["refId"] for target in panel["targets"]]
        assert len(set(letters)) == len(letters), panel["title"]


def test_the_dashboard_takes_its_data_from_the_source_that_the_reader_chooses() -> None:
    document = files.dashboard()
    variables = {each["name"]: each for each in document["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert variables["datasource"]["query"] == "prometheus"
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    for panel in document["panels"]:
        for part in [panel, *panel.get("targets", ())]:
            assert panel["type"] == "row" or part["datasource"] == chosen, panel["title"]
    for name in ("job", "instance", "scope"):
        assert variables[name]["datasource"] == chosen


def test_the_dashboard_has_a_colour_for_every_state() -> None:
    (timeline,) = (p for p in files.dashboard()["panels"] if p["type"] == "state-timeline")
    (mapping,) = timeline["fieldConfig"]["defaults"]["mappings"]
    (query,) = (q for q in files.queries() if q.panel == timeline["title"])
    assert {each["text"] for each in mapping["options"].values()} == set(WatcherState)
    for code, each in mapping["options"].items():
        assert f'{code} * tailrace_watcher_state{{job=~"$job", instance=~"$instance", ' in (
            query.expression
        )
        assert f'state="{each["text"]}"' in query.expression


FOLDER = files.DEPLOY / "grafana" / "provisioning"


def test_the_provisioned_data_source_is_a_prometheus() -> None:
    (source,) = files.read(FOLDER / "datasources" / "prometheus.yaml")["datasources"]
    scraped = files.read(files.PROMETHEUS / "prometheus.yml")["global"]["scrape_interval"]
    assert (source["type"], source["jsonData"]["timeInterval"]) == ("prometheus", scraped)
