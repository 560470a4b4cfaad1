"""deploy/compose.replicas.yaml: a second daemon like the first one, which shares the scopes."""

from typing import Any

import yaml

from tests.configuration import load
from tests.deploy.manifests import ROOT

DEPLOY = ROOT / "deploy"
FILE = DEPLOY / "compose.replicas.yaml"
BASE: dict[str, dict[str, Any]] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
MORE: dict[str, dict[str, Any]] = yaml.safe_load(FILE.read_text())["services"]
CONFIGURATION = DEPLOY / "docker/replicas.yaml"
FIRST = {**BASE["tailrace"]["environment"], **MORE["tailrace"]["environment"]}
SECOND = MORE["tailrace-two"]["environment"]


def test_both_daemons_share_the_scopes_of_one_configuration() -> None:
    assert FIRST == SECOND
    mounted = f"./docker/replicas.yaml:{SECOND['TAILRACE_CONFIG']}:ro"
    assert mounted in MORE["tailrace"]["volumes"]
    assert mounted in MORE["tailrace-two"]["volumes"]
    environ = {**SECOND, "TAILRACE_DATABASE": ""}  # if the operator has set nothing
    settings = load(CONFIGURATION, environ)
    assert settings.replicas is not None
    assert settings.store.type == "mongodb"
    assert [scope.database for scope in settings.scopes] == ["shop"]
    assert settings.shutdown.grace_seconds == 25


def test_the_second_daemon_has_no_more_rights_than_the_first() -> None:
    ours = {key: value for key, value in MORE["tailrace-two"].items() if key != "environment"}
    assert ours.pop("hostname") != MORE["tailrace"]["hostname"], "they are the processes' names"
    assert ours.pop("ports") == ["127.0.0.1:9465:9464"]
    del ours["volumes"]
    assert ours == {key: BASE["tailrace"][key] for key in ours}
    assert set(ours) >= {"read_only", "cap_drop", "security_opt", "mem_limit", "stop_grace_period"}


def test_prometheus_scrapes_both_daemons_and_is_otherwise_unchanged() -> None:
    (mount,) = MORE["prometheus"]["volumes"]
    assert mount == "./prometheus/replicas.yml:/etc/prometheus/prometheus.yml:ro"
    one, both = (
        yaml.safe_load((DEPLOY / "prometheus" / name).read_text())
        for name in ("prometheus.yml", "replicas.yml")
    )
    (static,) = both["scrape_configs"][0]["static_configs"]
    assert static["targets"] == ["tailrace:9464", "tailrace-two:9464"]
    assert {target.partition(":")[0] for target in static["targets"]} <= set(MORE)
    both["scrape_configs"][0]["static_configs"] = one["scrape_configs"][0]["static_configs"]
    assert both == one
