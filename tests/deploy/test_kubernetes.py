"""The manifests: valid by the validators, and consistent with the service."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tailrace.cli import main
from tailrace.config.settings import Settings
from tailrace.shutdown import CLOSING_SECONDS
from tests.configuration import load
from tests.deploy.manifests import KUBERNETES, OVERLAYS, ROOT, Rendered, render, tool

SECRET = "/run/secrets/tailrace/uri"
URI = "mongodb://mongodb.database.svc.cluster.local:27017/?replicaSet=rs0"
PAGE = (ROOT / "docs" / "deployment.md").read_text()


@pytest.fixture(scope="module", params=OVERLAYS)
def rendered(request: pytest.FixtureRequest) -> Rendered:
    return Rendered(render(KUBERNETES / "overlays" / request.param))


@pytest.fixture
def file(rendered: Rendered, tmp_path: Path) -> Path:
    """The ConfigMap's configuration as a file, beside the file of the Secret that it refers to."""
    (tmp_path / "uri").write_text(f"{URI}\n")
    text = rendered.configuration
    assert text.count(SECRET) == 1
    path = tmp_path / "config.yaml"
    path.write_text(text.replace(SECRET, str(tmp_path / "uri")))
    return path


@pytest.fixture
def settings(file: Path) -> Settings:
    return load(file, {})


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_each_object_is_valid_strictly(overlay: str, tmp_path: Path) -> None:
    file = tmp_path / "all.yaml"
    file.write_text(render(KUBERNETES / "overlays" / overlay))
    command = [tool("kubernetes-validate"), "--strict", file]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_configuration_passes_the_check(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--config", str(file)]) == 0
    assert "mongodb://" in capsys.readouterr().out


def test_the_secret_is_where_the_configuration_looks(rendered: Rendered) -> None:
    named = yaml.safe_load(rendered.configuration)["mongodb"]["uri_file"]
    assert named == SECRET
    assert Path(named).parent == rendered.mounted("mongodb")
    (volume,) = (each for each in rendered.pod["volumes"] if each["name"] == "mongodb")
    assert secrets_of_the_readme()[volume["secret"]["secretName"]] == Path(named).name
    assert volume["secret"]["optional"] is True  # so that the daemon reports it, not an event


def secrets_of_the_readme() -> dict[str, str]:
    """The key of each Secret that the README tells users to create."""
    command = r"kubectl --namespace tailrace create secret generic (\S+) --from-\w+=(\w+)="
    return dict(re.findall(command, PAGE))


def test_the_token_is_that_of_the_readmes_secret_or_none(rendered: Rendered, file: Path) -> None:
    (given,) = rendered.container["env"]
    wired = given["valueFrom"]["secretKeyRef"]
    assert secrets_of_the_readme()[wired["name"]] == wired["key"]
    assert wired["optional"] is True  # without it a pod starts, but nobody can change anything
    token = "0123456789abcdef"
    settings = load(file, {given["name"]: token})
    assert settings.http.token is not None
    assert settings.http.token.get_secret_value() == token
    assert load(file, {}).http.token is None


def test_the_configuration_is_where_the_image_looks(rendered: Rendered) -> None:
    (named,) = re.findall(r"TAILRACE_CONFIG=(\S+)", (ROOT / "Dockerfile").read_text())
    assert Path(named) == rendered.mounted("config") / "config.yaml"
    (volume,) = (each for each in rendered.pod["volumes"] if each["name"] == "config")
    assert volume["configMap"]["name"] == rendered["ConfigMap"]["metadata"]["name"]


def test_every_variable_is_set_and_every_set_one_is_read(rendered: Rendered) -> None:
    read = set(re.findall(r"\$\{([A-Z_]+)\}", rendered.configuration))
    read = set(re.findall(r"\$\{([A-Z_]+)", rendered.configuration))
    given = {each["name"] for each in rendered.container.get("env", [])}
    assert read <= given <= read


def test_files_are_on_a_volume_or_there_are_none(rendered: Rendered, settings: Settings) -> None:
    """The root file system is read-only, and files outside the volume would not outlive the pod."""
    parts = [settings.store, *settings.handlers.values()]
    paths = [Path(part.path) for part in parts if hasattr(part, "path")]
    if "PersistentVolumeClaim" in rendered:
        (volume,) = (each for each in rendered.pod["volumes"] if each["name"] == "data")
        claim = rendered["PersistentVolumeClaim"]["metadata"]["name"]
        assert volume["persistentVolumeClaim"]["claimName"] == claim
        assert len(paths) == 2
        assert all(path.is_relative_to(rendered.mounted("data")) for path in paths)
    else:
        assert paths == []
        assert settings.store.type == "mongodb"


def test_probes_ask_the_port_of_the_service(rendered: Rendered, settings: Settings) -> None:
    ports = {each["name"]: each["containerPort"] for each in rendered.container["ports"]}
    for probe in ("startup", "liveness", "readiness"):
        asked = rendered.container[f"{probe}Probe"]["httpGet"]
        assert asked["path"] == ("/readyz" if probe == "readiness" else "/livez")
        assert ports[asked["port"]] == settings.http.port
    assert settings.http.host == "0.0.0.0"


def test_start_and_end_have_the_time_that_the_service_may_take(
    rendered: Rendered, settings: Settings
) -> None:
    probe = rendered.container["startupProbe"]
    patience = probe["periodSeconds"] * probe["failureThreshold"]
    assert patience > 2 * settings.mongodb.connect_timeout_seconds
    longest = settings.shutdown.grace_seconds + CLOSING_SECONDS
    assert rendered.pod["terminationGracePeriodSeconds"] > longest


def test_one_process_ends_before_the_next_begins_unless_they_share_the_scopes(
    rendered: Rendered, settings: Settings
) -> None:
    """Without leases, the second process would take the scopes from the first."""
    spec, budget = rendered["Deployment"]["spec"], rendered["PodDisruptionBudget"]["spec"]
    assert budget["selector"]["matchLabels"].items() <= rendered.labels.items()
    if settings.replicas is None:
        assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
        assert (budget["maxUnavailable"], budget.get("minAvailable")) == (1, None)
        return
    assert spec["replicas"] == 2
    rolling = {"maxUnavailable": 0, "maxSurge": 1}
    assert spec["strategy"] == {"type": "RollingUpdate", "rollingUpdate": rolling}
    assert (budget["minAvailable"], budget.get("maxUnavailable")) == (1, None)
    assert settings.store.type == "mongodb"
    assert settings.replicas.name is None, "by the name of the pod: no two are the same"


def test_pods_that_share_the_scopes_are_spread_and_one_node_left_takes_them() -> None:
    rendered = Rendered(render(KUBERNETES / "overlays/replicated"))
    spread = {each["topologyKey"]: each for each in rendered.pod["topologySpreadConstraints"]}
    assert set(spread) == {"kubernetes.io/hostname", "topology.kubernetes.io/zone"}
    for each in spread.values():
        assert each["labelSelector"]["matchLabels"].items() <= rendered.labels.items()
        assert (each["maxSkew"], each["whenUnsatisfiable"]) == (1, "ScheduleAnyway")


def test_the_single_overlay_shares_nothing() -> None:
    rendered = Rendered(render(KUBERNETES / "overlays/single"))
    assert "replicas" not in yaml.safe_load(rendered.configuration)
    assert "topologySpreadConstraints" not in rendered.pod


def test_memory_has_room_for_what_is_in_flight(rendered: Rendered, settings: Settings) -> None:
    limit = rendered.container["resources"]["limits"]["memory"]
    assert limit.endswith("Mi")
    assert settings.delivery.max_in_flight_bytes * 4 <= int(limit[:-2]) * 2**20


def test_the_pod_fits_the_restricted_standard(rendered: Rendered) -> None:
    """https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted"""
    pod, container = rendered.pod["securityContext"], rendered.container["securityContext"]
    (user,) = set(re.findall(r"^USER (\d+):\1$", (ROOT / "Dockerfile").read_text(), re.M))
    assert pod["runAsNonRoot"] is True
    assert pod["runAsUser"] == pod["runAsGroup"] == pod["fsGroup"] == int(user)
    assert pod["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["allowPrivilegeEscalation"] is False
    assert container["capabilities"] == {"drop": ["ALL"]}
    assert container["readOnlyRootFilesystem"] is True
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(rendered.pod)
    kinds = {key for volume in rendered.pod["volumes"] for key in volume} - {"name"}
    assert kinds <= {"configMap", "secret", "persistentVolumeClaim", "emptyDir"}
    labels = rendered["Namespace"]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"


def test_the_pod_has_no_token_of_the_cluster(rendered: Rendered) -> None:
    assert rendered["ServiceAccount"]["automountServiceAccountToken"] is False
    assert rendered.pod["automountServiceAccountToken"] is False
    assert rendered.pod["serviceAccountName"] == rendered["ServiceAccount"]["metadata"]["name"]


def test_the_network_is_closed_but_for_metrics_names_and_the_server(rendered: Rendered) -> None:
    spec = rendered["NetworkPolicy"]["spec"]
    assert set(spec["policyTypes"]) == {"Ingress", "Egress"}
    (ingress,) = spec["ingress"]
    assert [each["port"] for each in ingress["ports"]] == ["http"]
    assert ingress["from"]
    names, server = spec["egress"]  # the egress that handlers need is commented out
    assert {each["port"] for each in names["ports"]} == {53}
    (ports,) = server["ports"]
    assert ports["port"] <= 27017 <= ports["endPort"]


def test_the_pod_monitor_takes_the_place_of_the_annotations(tmp_path: Path) -> None:
    """Commented lines of the overlays enable it."""
    overlay = Path(shutil.copytree(KUBERNETES, tmp_path / "kubernetes")) / "overlays/single"
    file = overlay / "kustomization.yaml"
    text = file.read_text()
    opened = text.replace("# components:\n#   - ../..", "components:\n  - ../..")
    assert opened != text
    file.write_text(opened)
    with_pod_monitor = Rendered(render(overlay))
    spec: dict[str, Any] = with_pod_monitor["PodMonitor"]["spec"]
    assert spec["selector"]["matchLabels"].items() <= with_pod_monitor.labels.items()
    (endpoint,) = spec["podMetricsEndpoints"]
    assert endpoint["port"] in {each["name"] for each in with_pod_monitor.container["ports"]}
    assert endpoint["path"] == "/metrics"
    assert "annotations" not in with_pod_monitor["Service"]["metadata"]
