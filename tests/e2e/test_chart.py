"""The chart installs what kustomize installs, and refuses values that it doesn't know."""

import copy
import json
import runpy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

import arranger
from arranger.settings import SETTINGS, load_settings
from tests.conftest import _required
from tests.helm import CHART, NAMESPACE, Helm, Objects, kustomized, of_kind, relative
from tests.servers import CRD_FILES, REPOSITORY, definition_of, documents

DEPLOY = REPOSITORY / "deploy"
#: What Helm adds to each object.
OF_HELM = {"app.kubernetes.io/managed-by": "Helm", "helm.sh/chart": f"arranger-{arranger.__version__}"}


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    with _required():
        return Helm(tmp_path_factory.mktemp("helm"))


def own(folder: Path, *components: str, base: str = "") -> Path:
    """A kustomization of somebody's own: a folder of deploy/ with components."""
    parts = {
        "resources": [relative(DEPLOY / base, folder)],
        "components": [relative(DEPLOY / name, folder) for name in components],
    }
    image = [{"name": "arranger", "newTag": arranger.__version__}]
    (folder / "kustomization.yaml").write_text(yaml.safe_dump({**parts, "images": image}))
    return folder


def without_helm(objects: Objects) -> Objects:
    """The objects as they would be without what Helm adds to each, and without the Secret of Redis."""
    plain = []
    for item in copy.deepcopy(objects):
        labels = item["metadata"]["labels"]
        assert {name: labels.pop(name) for name in OF_HELM} == OF_HELM
        if item["kind"] == "Deployment":
            template = item["spec"]["template"]["metadata"]
            assert list(template.pop("annotations")) == ["checksum/settings"]
        if item["kind"] != "Secret":
            plain.append(item)
    return plain


def of_kustomize(folder: Path) -> Objects:
    """What kustomize makes of a folder, without the definitions and the namespace."""
    found = []
    for item in kustomized(folder):
        # Kustomize doesn't know that these have no namespace, and API servers drop it.
        if item["kind"].startswith("ValidatingAdmissionPolicy"):
            assert item["metadata"].pop("namespace") == NAMESPACE
        if item["kind"] not in ("Namespace", "CustomResourceDefinition"):
            found.append(item)
    return found


def containers(objects: Objects) -> dict[str, dict[str, Any]]:
    """The container of each Deployment."""
    return {
        name: item["spec"]["template"]["spec"]["containers"][0] for name, item in of_kind(objects, "Deployment").items()
    }


def test_the_chart_has_no_faults(helm: Helm) -> None:
    assert "0 chart(s) failed" in helm.run("lint", "--strict", str(CHART)).stdout


WAYS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...], str]] = {
    "a Redis of one's own": ((), (), ""),
    "a Redis beside it": (("redis.bundled.enabled=true",), (), "with-redis"),
    "users of Redis": (("redis.users=true",), ("redis-users",), ""),
    "a console with TLS": (
        ("console.enabled=true", "console.tlsSecret=arranger-console-tls"),
        ("console", "console-tls"),
        "",
    ),
    "the components": (
        (
            *("metrics.podMonitor=true", "metrics.alerts=true", "metrics.board=true"),
            *(
                "createdBy=true",
                "flowControl=true",
                "networkPolicies.egress=true",
                "console.enabled=true",
                "volumes=true",
                "devices=true",
                "provisioning=true",
            ),
            *("webhook=true", "keda.enabled=true"),
        ),
        (
            "podmonitor",
            "alerts",
            "board",
            "created-by",
            "flow-control",
            "network",
            "console",
            "volumes",
            "devices",
            "provisioning",
            "webhook",
            "keda",
        ),
        "",
    ),
}


def test_helm_and_kustomize_install_the_same_for_one_namespace(helm: Helm, tmp_path: Path) -> None:
    folder = own(tmp_path, "one-namespace")
    with (folder / "kustomization.yaml").open("a") as file:
        file.write(f"namespace: {NAMESPACE}\n")
    expected = of_kustomize(folder)
    found = without_helm(helm.rendered("oneNamespace=true"))
    for item in found:  # each release has its own
        for part in (item["metadata"], item.get("roleRef", {})):
            if part:
                part["name"] = part["name"].removesuffix(f"-{NAMESPACE}")
    assert found == expected
    cluster_wide = {item["metadata"]["name"] for item in found if item["kind"].startswith("Cluster")}
    assert cluster_wide == {"arranger-nodes", "arranger-cluster-log"}
    assert not of_kind(found, "ValidatingAdmissionPolicy")
    assert "whole cluster" in helm.refused("oneNamespace=true", "createdBy=true")
    assert "whole cluster" in helm.refused("oneNamespace=true", "flowControl=true")


@pytest.mark.parametrize("way", WAYS)
def test_helm_and_kustomize_install_the_same(helm: Helm, tmp_path: Path, way: str) -> None:
    values, components, base = WAYS[way]
    expected = of_kustomize(own(tmp_path, *components, base=base))
    assert len(expected) > 20
    assert without_helm(helm.rendered(*values)) == expected


def test_the_chart_brings_the_definitions_of_crds(helm: Helm) -> None:
    shown = documents(helm.run("show", "crds", str(CHART)).stdout)
    by_kind = {item["spec"]["names"]["kind"]: item for item in shown if item}
    assert by_kind == {item["spec"]["names"]["kind"]: item for item in map(definition_of, CRD_FILES)}


def test_a_packed_chart_renders_as_the_folder_does(helm: Helm, tmp_path: Path) -> None:
    """The links in the chart lead out of its folder; a package holds what they lead to."""
    helm.run("package", str(CHART), "--destination", str(tmp_path))
    packed = tmp_path / f"arranger-{arranger.__version__}.tgz"
    assert helm.rendered(chart=packed) == helm.rendered()


def test_the_chart_has_the_version_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (arranger.__version__, arranger.__version__)


def test_the_alerts_point_to_ones_own_copy_of_the_runbooks(helm: Helm) -> None:
    url = "https://wiki.example.com/runbooks.md"
    rules = of_kind(helm.rendered("metrics.alerts=true", f"metrics.runbooks={url}"), "PrometheusRule")["arranger"]
    alerts = [alert for group in rules["spec"]["groups"] for alert in group["rules"]]
    assert alerts and all(alert["annotations"]["runbook_url"].startswith(f"{url}#arranger") for alert in alerts)


def test_the_schema_knows_every_value_and_every_setting() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(schema["properties"]) == {*values, "global"}
    chart_settings = runpy.run_path(str(REPOSITORY / "deploy" / "chart_settings.py"))
    assert schema["properties"]["settings"]["properties"] == chart_settings["allowed"](), "run `make chart`"
    assert chart_settings["ELSEWHERE"] <= set(SETTINGS)
    for name in ("image", "redis", "logKey", "archive", "metrics", "console", "networkPolicies"):
        assert set(schema["properties"][name]["properties"]) == set(values[name]), name
    bundled = schema["properties"]["redis"]["properties"]["bundled"]["properties"]
    assert set(bundled) == set(values["redis"]["bundled"])


def test_the_document_names_every_value() -> None:
    text = (REPOSITORY / "docs" / "operations.md").read_text(encoding="utf-8")
    told = text.partition("\n### With Helm\n")[2].partition("\n### ")[0]
    rows = [line.split("|")[1] for line in told.splitlines() if line.startswith("| `")]
    named = {name.strip(" `") for row in rows for name in row.split(",")}
    assert named == set(yaml.safe_load((CHART / "values.yaml").read_text()))


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("replica=2", "replica"),
        ("replicas=two", "replicas"),
        ("settings.que_policy=DRF", "que_policy"),
        ("settings.lease_s=1", "lease_s"),
        ("settings.cluster=X_Y", "cluster"),
        ("settings.backfill=Perhaps", "backfill"),
        ("settings.volumes=true", "volumes"),
        ("archive.claim=old-events", "archive.url"),
        ("redis.sentinel=a", "sentinel"),
        ("redis.url=http://redis:6379", "url"),
        ("image.digest=latest", "digest"),
        ("queues[0].name=team", "spec"),
        ("networkPolicies.redisPorts={0}", "redisPorts"),
    ],
)
def test_a_value_that_cant_be_used_is_refused_by_name(helm: Helm, value: str, named: str) -> None:
    assert named in helm.refused(value)


def test_ways_to_redis_that_exclude_each_other_are_refused(helm: Helm) -> None:
    assert "exclude each other" in helm.refused("redis.url=redis://there:6379", "redis.bundled.enabled=true")
    assert "Secret of your own" in helm.refused("redis.users=true", "redis.bundled.enabled=true")
    assert "a user who may only read" in helm.refused("console.enabled=true", "redis.bundled.enabled=true")


def test_a_url_may_name_sentinels(helm: Helm) -> None:
    url = "redis+sentinel://:p@one:26379,two:26379/arranger/0"
    secret = of_kind(helm.rendered("redis.url=" + url.replace(",", r"\,")), "Secret")["arranger-redis"]
    assert secret["stringData"]["url"] == url == load_settings({"redis_url": url}, {}).redis_url


def test_values_reach_the_settings_as_arranger_reads_them(helm: Helm) -> None:
    objects = helm.rendered(
        "settings.queue_policy=DRF",
        "settings.keep_events=20000000",
        "settings.evict=true",
        "settings.cycle_period_s=0.5",
        r"settings.preemption=surplus=Allowed\,priority=Never",
        "archive.url=s3://bucket/arranger",
    )
    settings = load_settings({}, of_kind(objects, "ConfigMap")["arranger-settings"]["data"])
    assert (settings.queue_policy, settings.keep_events, settings.evict) == ("DRF", 20_000_000, True)
    assert (settings.cycle_period_s, settings.archive_url) == (0.5, "s3://bucket/arranger")
    assert settings.preemption == {"surplus": "Allowed", "priority": "Never", "reclaim": "Allowed"}
    assert settings.http_host == "0.0.0.0"


def test_another_setting_starts_the_processes_again_and_nothing_else_does(helm: Helm) -> None:
    def checksums(*values: str) -> set[str]:
        deployments = of_kind(helm.rendered(*values), "Deployment").values()
        return {item["spec"]["template"]["metadata"]["annotations"]["checksum/settings"] for item in deployments}

    assert checksums() == checksums("replicas=3") != checksums("settings.queue_policy=DRF")


def test_one_deployment_can_differ_from_the_others(helm: Helm) -> None:
    objects = helm.rendered("replicas=3", "decider.replicas=0", "resources.limits.memory=2Gi")
    objects += helm.rendered("decider.resources.limits.memory=4Gi")
    deployments = [item for item in objects if item["kind"] == "Deployment"]
    found = [(item["metadata"]["name"], item["spec"]["replicas"]) for item in deployments]
    assert found[:3] == [("arranger-applier", 3), ("arranger-decider", 0), ("arranger-watcher", 3)]
    limits = [item["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] for item in deployments]
    assert [limit["memory"] for limit in limits] == ["2Gi"] * 3 + ["1Gi", "4Gi", "1Gi"]


def test_image_and_secrets_are_those_of_the_values(helm: Helm) -> None:
    digest = "sha256:" + "0" * 64
    objects = helm.rendered(
        "image.repository=registry.example/arranger",
        f"image.digest={digest}",
        "image.pullSecrets={registry}",
        "redis.secret=elsewhere",
        "logKey.secret=signing",
        "redis.tlsSecret=authority",
    )
    for name, container in containers(objects).items():
        keys = {each["name"]: each["valueFrom"]["secretKeyRef"] for each in container["env"]}
        assert container["image"] == f"registry.example/arranger@{digest}"
        assert keys["ARRANGER_REDIS_URL"] == {"name": "elsewhere", "key": "url"}
        assert keys["ARRANGER_LOG_KEY"] == {"name": "signing", "key": "keys", "optional": True}
        pod = of_kind(objects, "Deployment")[name]["spec"]["template"]["spec"]
        assert pod["volumes"] == [{"name": "redis-tls", "secret": {"secretName": "authority", "optional": True}}]
        assert pod["imagePullSecrets"] == [{"name": "registry"}]


def test_only_the_deciders_reach_the_archive(helm: Helm) -> None:
    objects = helm.rendered("archive.url=/archive", "archive.secret=store", "archive.claim=old-events")
    for name, container in containers(objects).items():
        mounted = [mount["mountPath"] for mount in container["volumeMounts"]]
        secrets = [each["secretRef"]["name"] for each in container["envFrom"] if "secretRef" in each]
        of_decider = name == "arranger-decider"
        assert ("/archive" in mounted, secrets) == (of_decider, ["store"] if of_decider else [])


def test_a_url_becomes_a_secret_that_every_deployment_reads(helm: Helm) -> None:
    objects = helm.rendered("redis.url=rediss://:word@redis.example:6380/0", "redis.secret=ignored")
    assert of_kind(objects, "Secret")["arranger-redis"]["stringData"] == {"url": "rediss://:word@redis.example:6380/0"}
    names = {each["env"][0]["valueFrom"]["secretKeyRef"]["name"] for each in containers(objects).values()}
    assert names == {"arranger-redis"}


def test_the_bundled_redis_has_a_password_that_nobody_chose(helm: Helm) -> None:
    secrets = [of_kind(helm.rendered("redis.bundled.enabled=true"), "Secret")["arranger-redis"] for _ in range(2)]
    first, second = (secret["stringData"] for secret in secrets)
    assert len(first["password"]) == 48
    assert first["url"] == f"redis://:{first['password']}@arranger-redis:6379/0"
    assert first != second


def test_the_secret_of_the_bundled_redis_can_be_ones_own(helm: Helm) -> None:
    objects = helm.rendered("redis.bundled.enabled=true", "redis.bundled.makeSecret=false")
    assert of_kind(objects, "Secret") == {}
    server = of_kind(objects, "StatefulSet")["arranger-redis"]["spec"]["template"]["spec"]["containers"][0]
    asked = {each["valueFrom"]["secretKeyRef"]["name"] for each in server["env"]}
    assert asked == {each["env"][0]["valueFrom"]["secretKeyRef"]["name"] for each in containers(objects).values()}


def test_ports_of_the_values_are_those_that_arranger_may_reach(helm: Helm) -> None:
    objects = helm.rendered("networkPolicies.egress=true", "networkPolicies.redisPorts={6380,26379}")
    policies = of_kind(objects, "NetworkPolicy")
    assert policies["arranger-to-redis"]["spec"]["egress"] == [{"ports": [{"port": 6380}, {"port": 26379}]}]
    assert [each["port"] for each in policies["arranger-to-name-servers"]["spec"]["egress"][0]["ports"]] == [53, 53]


def test_queues_of_the_values_outlive_the_release(helm: Helm) -> None:
    objects = helm.rendered("queues[0].name=team", "queues[0].spec.parent=research")
    queue = of_kind(objects, "Queue")["team"]
    assert queue["spec"] == {"parent": "research"}
    assert queue["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert "namespace" not in queue["metadata"]
