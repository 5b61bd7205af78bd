"""Arranger for one namespace alone, on a real API server, with exactly the rights of deploy/one-namespace."""

from pathlib import Path

import yaml

from arranger.sandbox.nodes import NodeTemplate
from tests.e2e.harness import Worker, eventually, job, kubelets
from tests.e2e.test_deploy_manifests import DEPLOY, asked, pod_spec
from tests.helm import of_kind, relative
from tests.servers import RealKube, RealRedis, documents


def test_a_job_runs_to_its_end_with_rights_in_its_namespace_alone(
    kube: RealKube, redis: RealRedis, tmp_path: Path
) -> None:
    team, other = kube.fresh_namespace(), kube.fresh_namespace()
    own = {
        "namespace": team,
        "resources": [relative(DEPLOY, tmp_path)],
        "components": [relative(DEPLOY / "one-namespace", tmp_path)],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(own))
    rendered = documents(kube.kubectl("kustomize", str(tmp_path)).stdout)
    assert {item["kind"] for item in rendered if "namespace" not in item["metadata"]} == {
        *("CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding")
    }
    cluster_wide = of_kind(rendered, "ClusterRole")
    rights = {name: [rule["resources"] for rule in role["rules"]] for name, role in cluster_wide.items()}
    assert rights == {"arranger-nodes": [["nodes"], ["clusterlogs"]], "arranger-cluster-log": [["clusterlogs"]]}
    installed = [item for item in rendered if item["kind"] not in ("CustomResourceDefinition", "Deployment")]
    kube.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(installed))
    workers = []
    try:
        for deployment in of_kind(rendered, "Deployment").values():
            workers.append(worker(kube, redis, deployment, tmp_path, namespace=team))
            workers[-1].start()
        with kubelets(kube, NodeTemplate("n1", cpu="8")):
            for one in workers:
                one.wait_ready()
            jobs = {place: job("train", run_s=1) for place in (other, team)}
            for place, one in jobs.items():
                one["metadata"]["namespace"] = place
                kube.request("POST", f"/apis/arranger.dev/v1/namespaces/{place}/tyjobs", one)
            eventually("the job of the namespace has ended", lambda: stage(kube, team) == "Succeeded")
            pods = f"/api/v1/namespaces/{team}/pods"
            eventually("its pods are cleaned", lambda: not kube.request("GET", pods)[1]["items"])
            assert stage(kube, other) == ""
            events = kube.request("GET", f"/api/v1/namespaces/{team}/events")[1]["items"]
            assert "train" in {item["involvedObject"]["name"] for item in events}
        for one in workers:
            refused = {right for right, codes in asked(one).items() if 403 in codes}
            optional = {("list", kind) for kind in ("namespaces", "queues", "priorityclasses", "runtimeclasses")}
            assert refused == (optional if one.name == "arranger-watcher" else set())
            assert one.stop() == 0
    finally:
        for one in workers:
            one.close()
        kube.kubectl("delete", "--wait=false", "-f", "-", stdin=yaml.safe_dump_all(installed))


def worker(kube: RealKube, redis: RealRedis, deployment: dict[str, object], folder: Path, *, namespace: str) -> Worker:
    """A process as its Deployment runs it in this namespace, with the token of its account."""
    spec = pod_spec(deployment)
    container = spec["containers"][0]
    fields = {one["name"]: one["valueFrom"].get("fieldRef") for one in container["env"]}
    assert fields["ARRANGER_NAMESPACE"] == {"fieldPath": "metadata.namespace"}
    arguments = [*container["args"][1:], "--redis", redis.url, "--http-port", "0"]
    if spec["automountServiceAccountToken"]:
        document = yaml.safe_load(kube.kubeconfig.read_text())
        account = spec["serviceAccountName"]
        token = kube.kubectl("create", "token", account, "--namespace", namespace).stdout.strip()
        document["users"][0]["user"] = {"token": token}
        path = folder / f"{account}-kubeconfig"
        path.write_text(yaml.safe_dump(document))
        path.chmod(0o600)
        arguments += ["--kubeconfig", str(path)]
    environment = {
        **{"HOME": str(folder), "KUBECONFIG": "", "KUBERNETES_SERVICE_HOST": ""},
        "ARRANGER_NAMESPACE": namespace,
    }
    metadata = deployment["metadata"]
    assert isinstance(metadata, dict)
    return Worker(metadata["name"], arguments, folder=folder, environment=environment)


def stage(kube: RealKube, namespace: str) -> str:
    """The stage of the job there; empty if it has none."""
    found = kube.request("GET", f"/apis/arranger.dev/v1/namespaces/{namespace}/tyjobs/train")[1]
    return str((found.get("status") or {}).get("stage", ""))
