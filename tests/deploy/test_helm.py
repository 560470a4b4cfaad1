"""The chart: the same objects as the overlays, valid in many forms, and strict about its values."""

import copy
import importlib.util
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs.values_schema import values_schema
from tailrace.cli import main
from tailrace.config import difference
from tailrace.version import __version__
from tests.configuration import schema
from tests.deploy import files
from tests.deploy.helm import CHART, Helm, Refused
from tests.deploy.manifests import KUBERNETES, OVERLAYS, Rendered, render, tool
from tests.deploy.test_kubernetes import PAGE, SECRET

Values = dict[str, Any]

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("helm_python") is None, reason="its wheel is only for Linux on x86_64"
)


@pytest.fixture(scope="module")
def helm() -> Iterator[Helm]:
    process = Helm()
    yield process
    process.close()


def of_overlay(name: str) -> Values:
    """The values that make the objects of an overlay."""
    config = yaml.safe_load((KUBERNETES / "overlays" / name / "config.yaml").read_text())
    return {"config": config, "replicas": 2 if name == "replicated" else 1}


def bare(values: Values) -> Values:
    """Without what only the chart has: the containers beside the daemon."""
    return {**values, "check": {"enabled": False}, "reload": {"enabled": False}}


OF_HELM = ("helm.sh/", "checksum/", "app.kubernetes.io/instance", "app.kubernetes.io/managed-by")
VERSION = "app.kubernetes.io/version"


def plain(node: Any) -> Any:
    """``node`` without what Helm adds for itself, and its named entries in one order."""
    if isinstance(node, dict):
        kept = {
            key: plain(value)
            for key, value in node.items()
            if not key.startswith(OF_HELM) and key not in (VERSION, "namespace")
        }
        return {key: value for key, value in kept.items() if key != "annotations" or value}
    if isinstance(node, list):
        entries = [plain(entry) for entry in node]
        named = all(isinstance(entry, dict) and "name" in entry for entry in entries)
        return sorted(entries, key=lambda entry: str(entry["name"])) if named else entries
    return node


def objects(documents: list[dict[str, Any]]) -> dict[tuple[str, str], Any]:
    """The objects by kind and name: configurations parsed, and no hash at the end of a name."""
    text = yaml.dump_all(documents, Dumper=yaml.CSafeDumper)
    for one in documents:
        if one["kind"] == "ConfigMap":
            name = one["metadata"]["name"]
            text = text.replace(name, re.sub(r"-[a-z0-9]{10}$", "", name))
    found = {}
    for one in map(plain, yaml.load_all(text, yaml.CSafeLoader)):
        if one["kind"] == "ConfigMap":
            one["data"] = {key: yaml.safe_load(value) for key, value in one["data"].items()}
        found[one["kind"], one["metadata"]["name"]] = one
    return found


def daemon(helm: Helm, values: Values) -> dict[tuple[str, str], Any]:
    return objects(helm.daemon(values).all)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_chart_and_an_overlay_are_the_same_objects(helm: Helm, overlay: str) -> None:
    wanted = objects(list(yaml.safe_load_all(render(KUBERNETES / "overlays" / overlay))))
    del wanted["Namespace", "tailrace"]  # helm install --create-namespace
    assert daemon(helm, bare(of_overlay(overlay))) == wanted


@pytest.mark.parametrize("mode", ["continuous", "periodic"])
def test_the_pipeline_of_the_chart_and_the_overlay_are_the_same_objects(
    helm: Helm, mode: str
) -> None:
    section = yaml.safe_load((KUBERNETES / "pipeline/base/config.yaml").read_text())
    values = bare(of_overlay("single"))
    alone = daemon(helm, values)
    values["config"] |= section
    made = objects(
        [
            one
            for one in helm.template(values | {"pipeline": {"mode": mode}})
            if one["metadata"]["name"] == "tailrace-pipeline"
        ]
    )
    assert made == objects(list(yaml.safe_load_all(render(KUBERNETES / "pipeline" / mode))))
    assert not set(made) & set(alone)


def test_a_pod_monitor_is_that_of_the_component_and_takes_the_annotations(helm: Helm) -> None:
    made = daemon(helm, of_overlay("single") | {"metrics": {"monitor": "PodMonitor"}})
    monitor = made["PodMonitor", "tailrace"]
    del monitor["metadata"]["labels"]
    component = KUBERNETES / "components/pod-monitor/pod-monitor.yaml"
    assert monitor == plain(yaml.safe_load(component.read_text()))
    assert "annotations" not in made["Service", "tailrace"]["metadata"]


def test_rules_and_dashboard_are_those_of_the_files(helm: Helm) -> None:
    on = {"enabled": True}
    made = helm.template(of_overlay("single") | {"prometheusRule": on, "dashboard": on})
    (rule,) = (one for one in made if one["kind"] == "PrometheusRule")
    rules = [rule for group in rule["spec"]["groups"] for rule in group["rules"]]
    assert rules == [*files.recorded(), *files.alerts()]
    (board,) = (one for one in made if one["metadata"]["name"] == "tailrace-dashboard")
    assert yaml.safe_load(board["data"]["tailrace.json"]) == files.dashboard()


POSTGRESQL = {"type": "postgresql", "dsn": {"file": "/run/secrets/pg/dsn"}}
ANNOTATED = {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/tailrace"}}

PLACED: Values = {
    "nodeSelector": {"pool": "spark"},
    "tolerations": [{"key": "spark", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "priorityClassName": "low",
    "podAnnotations": {"a": "b"},
    "podLabels": {"team": "data"},
}

SETS: Mapping[str, tuple[str, Values]] = {
    "defaults": ("single", {}),
    "replicated": ("replicated", {"replicas": 3}),
    "own secrets": ("single", {"mongodb": {"uri": "mongodb://db"}, "http": {"token": "0" * 16}}),
    "existing secrets": (
        "single",
        {
            "mongodb": {"existingSecret": "atlas", "key": "connection"},
            "http": {"existingSecret": "token"},
            "secretFiles": [
                {"secret": "kafka", "mountPath": "/run/secrets/kafka"},
                {"secret": "tls.example.com", "mountPath": "/run/secrets/tls"},
                {"secret": "kafka", "mountPath": "/run/secrets/again"},
            ],
            "env": [{"name": "REGION", "value": "eu"}],
            "envFrom": [{"secretRef": {"name": "s3"}}],
        },
    ),
    "modules in values": ("single", {"modules": {"files": {"shop.py": "def on(event): ..."}}}),
    "modules in a ConfigMap": ("replicated", {"modules": {"configMap": "shop-code"}}),
    "modules in an image": ("single", {"modules": {"image": {"reference": "registry/shop:1"}}}),
    "monitored": (
        "replicated",
        {
            "metrics": {"monitor": "ServiceMonitor", "labels": {"release": "prometheus"}},
            "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
            "dashboard": {"enabled": True},
        },
    ),
    "placed": (
        "replicated",
        {
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"key": "batch", "operator": "Exists"}],
            "affinity": {"podAntiAffinity": {}},
            "priorityClassName": "high",
            "topologySpreadConstraints": [
                {"topologyKey": "rack", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
            ],
            "podAnnotations": {"a": "b"},
            "podLabels": {"team": "data"},
            "imagePullSecrets": [{"name": "registry"}],
            "serviceAccount": ANNOTATED,
            "volumes": [{"name": "cache", "emptyDir": {}}],
            "volumeMounts": [{"name": "cache", "mountPath": "/cache"}],
        },
    ),
    "closed": (
        "single",
        {
            "networkPolicy": {
                "from": [],
                "mongodb": {"to": [{"ipBlock": {"cidr": "10.0.0.0/24"}}]},
                "egress": [{"ports": [{"protocol": "TCP", "port": 443}]}],
            },
            "persistence": {"storageClassName": "fast", "size": "1Gi"},
        },
    ),
    "an own claim": (
        "single",
        {
            "persistence": {"existingClaim": "disk"},
            "podDisruptionBudget": {"enabled": False},
            "networkPolicy": {"enabled": False},
            "serviceAccount": {"create": False, "name": "own"},
        },
    ),
    "tables all the time": ("single", {"pipeline": {"mode": "continuous"}}),
    "tables on nodes of their own": ("single", {"pipeline": {"mode": "continuous", **PLACED}}),
    "tables at times on nodes of their own": (
        "single",
        {"pipeline": {"mode": "periodic", "env": [{"name": "A", "value": "b"}], **PLACED}},
    ),
    "tables at times": (
        "single",
        {"pipeline": {"mode": "periodic", "schedule": "@hourly", "serviceAccount": ANNOTATED}},
    ),
}


def of_set(name: str) -> Values:
    overlay, values = SETS[name]
    whole = of_overlay(overlay) | copy.deepcopy(values)
    if "pipeline" in values:
        whole["config"]["pipeline"] = {"lake": "s3://bucket/lake", "tables": "s3://bucket/tables"}
    return whole


def pods(documents: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for one in documents:
        spec = one.get("spec", {})
        if one["kind"] == "Pod":
            yield spec
        elif one["kind"] == "CronJob":
            yield spec["jobTemplate"]["spec"]["template"]["spec"]
        elif one["kind"] == "Deployment":
            yield spec["template"]["spec"]


def test_the_objects_of_every_set_are_valid_strictly(helm: Helm, tmp_path: Path) -> None:
    """But those of the Prometheus operator, which the validator does not know."""
    for number, name in enumerate(SETS):
        made = helm.template(of_set(name), "shop")
        known = [one for one in made if not one["apiVersion"].startswith("monitoring.coreos.com/")]
        (tmp_path / f"{number}-{name}.yaml").write_text(yaml.safe_dump_all(known))
    command = [tool("kubernetes-validate"), "--strict", *sorted(tmp_path.iterdir())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", SETS)
def test_a_set_of_values_fits_together(helm: Helm, name: str) -> None:
    """Each volume that is mounted exists, and each pod fits the restricted standard."""
    made = helm.template(of_set(name), "shop")
    names = [(one["kind"], one["metadata"]["name"]) for one in made]
    assert len(set(names)) == len(names)
    assert all(one["metadata"]["namespace"] == "tailrace" for one in made)
    for pod in pods(made):
        volumes = {volume["name"] for volume in pod.get("volumes", ())}
        assert len(volumes) == len(pod.get("volumes", ()))
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        for container in (*pod.get("initContainers", ()), *pod["containers"]):
            assert {mount["name"] for mount in container.get("volumeMounts", ())} <= volumes
            security = container["securityContext"]
            assert security["allowPrivilegeEscalation"] is False
            assert security["readOnlyRootFilesystem"] is True
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert "memory" in container["resources"]["limits"]


def test_a_pod_starts_only_with_a_configuration_that_passes_the_check(
    helm: Helm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = of_overlay("single")
    for added in ("mongodb", "store", "http", "delivery"):
        del values["config"][added]  # the chart knows them
    values["config"]["handlers"]["orders"] = {"type": "python", "target": "shop:on_order"}
    values["modules"] = {"files": {"shop.py": "async def on_order(event): ..."}}
    made = helm.daemon(values)
    (check,) = made.pod["initContainers"]
    assert (check["name"], check["args"]) == ("check", ["check"])
    (daemon,) = (one for one in made.pod["containers"] if one["name"] == "tailrace")
    for part in ("image", "env", "volumeMounts"):
        assert check[part] == daemon[part]
    assert made["ConfigMap"]["data"]["shop.py"] == values["modules"]["files"]["shop.py"]
    (tmp_path / "uri").write_text("mongodb://localhost:27017/?replicaSet=rs0")
    for name, text in made["ConfigMap"]["data"].items():
        (tmp_path / name).write_text(text.replace("/run/secrets/tailrace", str(tmp_path)))
    assert main(["check", "--config", str(tmp_path / "config.yaml")]) == 0
    shown = capsys.readouterr().out
    for text in ("/data/tailrace.db", "0.0.0.0", "33554432"):
        assert text in shown


@pytest.mark.parametrize("name", [name for name in SETS if name.endswith("of their own")])
def test_the_pods_of_the_pipeline_run_where_its_values_say(helm: Helm, name: str) -> None:
    made = {
        one["kind"]: one
        for one in helm.template(of_set(name), "shop")
        if one["metadata"]["name"] == "shop-tailrace-pipeline"
    }
    job = made["CronJob"]["spec"]["jobTemplate"] if "CronJob" in made else made["Deployment"]
    pod = job["spec"]["template"]
    assert {key: pod["spec"][key] for key in list(PLACED)[:4]} == dict(list(PLACED.items())[:4])
    assert pod["metadata"]["annotations"]["a"] == "b"
    assert pod["metadata"]["labels"]["team"] == "data"


def test_constraints_of_the_values_replace_those_of_the_chart(helm: Helm) -> None:
    wanted = SETS["placed"][1]["topologySpreadConstraints"]
    assert helm.daemon(of_set("placed")).pod["topologySpreadConstraints"] == wanted


@pytest.mark.parametrize("release", ["r" * 53, "12345", "true"])
def test_any_name_of_a_release_gives_valid_names_and_labels(helm: Helm, release: str) -> None:
    """A CronJob's name has at most 52 characters, and its labels are texts."""
    values = of_set("tables at times") | {"fullnameOverride": "" if "r" in release else "t" * 60}
    made = helm.template(values, release)
    (job,) = (one for one in made if one["kind"] == "CronJob")
    assert len(job["metadata"]["name"]) <= 52
    labels = [one["metadata"].get("labels", {}) for one in made]
    assert {each["app.kubernetes.io/instance"] for each in labels if each} == {release}


def test_a_monitor_has_the_token_where_everything_needs_it(helm: Helm) -> None:
    values = of_overlay("single") | {"metrics": {"monitor": "ServiceMonitor"}}
    values["config"]["http"]["protect"] = "everything"
    (endpoint,) = helm.daemon(values)["ServiceMonitor"]["spec"]["endpoints"]
    assert endpoint["authorization"] == {"credentials": {"name": "tailrace-http", "key": "token"}}


@pytest.mark.parametrize(
    ("telemetry", "port"),
    [
        ({"endpoint": "http://collector:4319"}, 4319),
        ({"endpoint": "https://otlp.example"}, 443),
        ({"endpoint": "http://collector/otlp"}, 80),
        ({"endpoint": {"file": "/run/secrets/otlp/url"}}, 4318),
        ({}, 4318),
    ],
    ids=str,
)
def test_the_network_policy_opens_the_port_of_the_collector(
    helm: Helm, telemetry: Values, port: int
) -> None:
    values = of_overlay("single")
    values["config"]["telemetry"] = telemetry
    _, _, opened = helm.daemon(values)["NetworkPolicy"]["spec"]["egress"]
    assert [each["port"] for each in opened["ports"]] == [port]


def test_a_single_pod_may_be_moved_also_if_others_could_share_its_scopes(helm: Helm) -> None:
    """A budget that keeps it would block the draining of its node for ever."""
    made = helm.daemon(of_overlay("replicated") | {"replicas": 1})
    assert made["PodDisruptionBudget"]["spec"]["maxUnavailable"] == 1
    assert made["Deployment"]["spec"]["strategy"]["type"] == "RollingUpdate"


def test_the_values_of_the_page_make_a_daemon(helm: Helm) -> None:
    (values,) = re.findall(r"```yaml\n(# values\.yaml\n.*?)```", PAGE, re.DOTALL)
    config = yaml.safe_load(helm.daemon(yaml.safe_load(values)).configuration)
    assert config["mongodb"] == {"uri_file": SECRET}


def annotation(made: Rendered) -> str:
    text: str = made["Deployment"]["spec"]["template"]["metadata"]["annotations"][
        "checksum/restart"
    ]
    return text


def scope_added(values: Values) -> None:
    values["config"]["scopes"].append({"name": "b", "database": "b"})
    values["config"]["routes"].append({"scope": "b", "handlers": ["events"]})


APPLIED: Mapping[str, Callable[[Values], Any]] = {
    "a scope": scope_added,
    "a handler": lambda values: values["config"]["handlers"].update(log={"type": "log"}),
    "delivery": lambda values: values["config"]["delivery"].update(lanes=8),
    "the log": lambda values: values["config"].update(logging={"level": "debug"}),
    "a Secret": lambda values: values.update(mongodb={"uri": "mongodb://other"}),
    "http.protect": lambda values: values["config"]["http"].update(protect="everything"),
}
RESTARTED: Mapping[str, Callable[[Values], Any]] = {
    "the store": lambda values: values["config"]["store"].update(path="/data/other.db"),
    "the port": lambda values: values["config"]["http"].update(port=9000),
    "a jsonl handler": lambda values: values["config"]["handlers"]["events"].update(fsync=True),
    "a module": lambda values: values.update(modules={"files": {"shop.py": ""}}),
    "the token": lambda values: values.update(http={"token": "0" * 16}),
    "the first replicas": lambda values: values["config"].update(
        store={"type": "mongodb"}, replicas={}
    ),
}


@pytest.mark.parametrize("change", APPLIED)
def test_a_value_that_a_reload_takes_replaces_no_pod(helm: Helm, change: str) -> None:
    before, after = of_overlay("single"), of_overlay("single")
    APPLIED[change](after)
    made = helm.daemon(before)["Deployment"], helm.daemon(after)["Deployment"]
    assert made[0] == made[1]
    made = helm.daemon(bare(before)), helm.daemon(bare(after))
    if change != "a Secret":  # nothing there reads the configuration again
        assert annotation(made[0]) != annotation(made[1])


@pytest.mark.parametrize("change", RESTARTED)
def test_a_value_that_a_reload_refuses_replaces_the_pods(helm: Helm, change: str) -> None:
    before, after = of_overlay("single"), of_overlay("single")
    RESTARTED[change](after)
    assert annotation(helm.daemon(before)) != annotation(helm.daemon(after))


def test_the_chart_knows_all_that_a_reload_refuses() -> None:
    applied = {*difference.OF_ALL_SCOPES, *difference.OF_FAILURES, *difference.AT_ONCE}
    refused = set()
    for section, node in schema()["properties"].items():
        name = node.get("$ref", "").removeprefix("#/$defs/")
        keys = schema()["$defs"][name]["properties"] if name else ()
        paths = {f"{section}.{key}" for key in keys} or {section}
        refused |= set() if section in applied else paths - applied
    by_part_or_unused = {"scopes", "handlers", "routes", "include"}
    of_the_pipeline = {key for key in refused if key.startswith("pipeline.")}
    known = {"store", "replicas", "telemetry", "http.host", "http.port"}
    assert refused - by_part_or_unused - of_the_pipeline == known


@pytest.mark.parametrize(
    ("status", "calls"),
    [(0, 1), (1, 2), (2, 1)],
    ids=["done", "a later try may help", "a mistake in the file"],
)
def test_a_changed_file_is_reloaded(helm: Helm, tmp_path: Path, status: int, calls: int) -> None:
    """The container's own script, with a sleep that changes a file at the first call."""
    (reload, daemon) = helm.daemon(of_overlay("single")).pod["containers"]
    for part in ("image", "env", "volumeMounts"):
        assert reload[part] == daemon[part]
    watched = tmp_path / "etc"
    watched.mkdir()
    programs = tmp_path / "bin"
    programs.mkdir()
    log = tmp_path / "log"
    scripts = {
        # After the third call, it ends the script, as the kubelet does.
        "sleep": f"cd {watched}; echo >>..n; echo {{}} >config.yaml\n"
        'if [ "$(wc -l <..n)" -ge 3 ]; then kill -TERM $PPID; fi',
        "tailrace": f'echo "$*" >>{log}; exit {status}',
    }
    for name, text in scripts.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    shell, option, script, name, seconds, *directories = reload["command"]
    assert directories == ["/etc/tailrace", "/run/secrets/tailrace"]
    done = subprocess.run(
        [shell, option, script, name, seconds, str(watched), str(tmp_path / "none")],
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
        timeout=60,
        check=False,
    )
    assert done.returncode == 0
    assert log.read_text().splitlines() == ["reload"] * calls


PORTS = {
    "defaults": (POSTGRESQL, [5432]),
    "of an address": ({"type": "redis", "url": "redis://u:12345@cache:6380/0"}, [6380]),
    "of several": ({"type": "kafka", "bootstrap_servers": "a:9093,b:9094"}, [9093, 9094]),
    "of a list": (
        {"type": "nats", "servers": ["nats://a:4223", "nats://b:4223"], "subject": "s"},
        [4223],
    ),
    "of a variable": ({"type": "kafka", "bootstrap_servers": "${KAFKA}"}, [9092]),
    "of https": ({"type": "http", "url": "https://api.example/a"}, [443]),
    "of http": ({"type": "http", "url": "http://api.example/a"}, [80]),
    "of S3": ({"type": "parquet", "path": "s3://bucket/lake"}, [443]),
    "of a directory": ({"type": "parquet", "path": "/data/lake"}, []),
    "of a program": ({"type": "python", "target": "shop:on_order"}, []),
}


@pytest.mark.parametrize("case", PORTS)
def test_the_network_policy_opens_the_ports_of_the_destinations(helm: Helm, case: str) -> None:
    handler, ports = PORTS[case]
    values = of_overlay("single")
    values["config"]["handlers"]["to"] = handler
    _, _, *opened = helm.daemon(values)["NetworkPolicy"]["spec"]["egress"]
    assert [port["port"] for rule in opened for port in rule["ports"]] == ports
    values["networkPolicy"] = {"destinations": False}
    assert len(helm.daemon(values)["NetworkPolicy"]["spec"]["egress"]) == 2


REFUSED: Mapping[str, tuple[Callable[[Values], Any], str]] = {
    "a value": (lambda values: values.update(replica=3), "'replica' not allowed"),
    "a value below": (
        lambda values: values.update(reload={"interval": 3}),
        "at '/reload': additional properties 'interval' not allowed",
    ),
    "a key": (
        lambda values: values["config"].update(scope=[]),
        "at '/config': additional properties 'scope' not allowed",
    ),
    "a key of a handler": (
        lambda values: values["config"]["handlers"]["events"].update(file="x"),
        "at '/config/handlers/events': additional properties 'file' not allowed",
    ),
    "a type": (
        lambda values: values["config"]["handlers"]["events"].update(type="json"),
        "at '/config/handlers/events/type': value must be one of",
    ),
    "a port as text": (
        lambda values: values["config"]["http"].update(port="9464"),
        "at '/config/http/port': got string, want integer",
    ),
    "nothing to follow": (
        lambda values: values.clear(),
        "at '/config': missing properties 'scopes', 'handlers', 'routes'",
    ),
    "a module instead of the configuration": (
        lambda values: values.update(modules={"files": {"config.yaml": ""}}),
        "modules.files: config.yaml is made of config",
    ),
    "pods that share nothing": (
        lambda values: values.update(replicas=2),
        "replicas: more than one pod needs config.replicas",
    ),
    "pods with a file as store": (
        lambda values: values["config"].update(replicas={}),
        "set config.store.type to mongodb",
    ),
    "a store without a volume": (
        lambda values: values.update(persistence={"enabled": False}),
        "persistence.enabled: without a volume the positions",
    ),
    "a server that no probe reaches": (
        lambda values: values["config"]["http"].update(host="127.0.0.1"),
        "config.http.host: probes, the Service and monitors do not reach",
    ),
    "an address of the default configuration": (
        lambda values: values["config"]["http"].update(host="${TAILRACE_HTTP_HOST:-127.0.0.1}"),
        "config.http.host",
    ),
    "a pipeline that no probe reaches": (
        lambda values: values.update(
            pipeline={"mode": "continuous"},
            config={
                **values["config"],
                "pipeline": {"lake": "s3://a/b", "tables": "s3://a/c", "http": {"host": "::1"}},
            },
        ),
        "config.pipeline.http.host",
    ),
    "two connection strings": (
        lambda values: values["config"]["mongodb"].update(uri="mongodb://db"),
        "config.mongodb: set uri or uri_file, not both",
    ),
    "two Secrets": (
        lambda values: values.update(mongodb={"uri": "a", "existingSecret": "b"}),
        "mongodb: set uri or existingSecret, not both",
    ),
    "a pipeline without a lake": (
        lambda values: values.update(pipeline={"mode": "periodic"}),
        "pipeline.mode: set config.pipeline too",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_wrong_value_is_one_clear_error(helm: Helm, case: str) -> None:
    change, message = REFUSED[case]
    values = of_overlay("single")
    change(values)
    with pytest.raises(Refused, match=re.escape(message)):
        helm.template(values)


@pytest.mark.parametrize(
    "path",
    [
        "image", "image.repository", "reload", "mongodb", "modules.image", "persistence",
        "serviceAccount", "networkPolicy.mongodb.ports", "metrics", "pipeline", "pipeline.image",
    ],
)  # fmt: skip
def test_a_section_that_is_null_is_one_clear_error(helm: Helm, path: str) -> None:
    """Helm takes it away, and templates read what is in it."""
    values = of_overlay("single")
    *above, last = path.split(".")
    section = values
    for name in above:
        section = section.setdefault(name, {})
    section[last] = None
    with pytest.raises(Refused, match=f"missing property '{last}'"):
        helm.template(values)


def test_a_release_of_another_name_is_a_job_that_the_alerts_know(helm: Helm) -> None:
    values = of_set("tables all the time") | {"metrics": {"monitor": "PodMonitor"}}
    jobs = {
        rule["replacement"]
        for one in helm.template(values, "shop")
        if one["kind"] == "PodMonitor"
        for rule in one["spec"]["podMetricsEndpoints"][0]["relabelings"]
    }
    assert jobs == {"tailrace/shop/tailrace", "tailrace/shop/tailrace-pipeline"}
    patterns = {
        pattern
        for alert in files.alerts()
        for pattern in re.findall(r'job=~"([^"]+)"', alert["expr"])
    }
    for job in jobs:
        assert sum(re.fullmatch(pattern, job) is not None for pattern in patterns) == 1


def test_the_schema_is_up_to_date() -> None:
    """If this fails, run ``make reference``."""
    assert (CHART / "values.schema.json").read_text() == values_schema()


def test_the_chart_has_the_version_of_the_daemon() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__
