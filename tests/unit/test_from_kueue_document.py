"""The examples of docs/from-kueue.md do what it says: the Queues are those of the ClusterQueue, the TYJob is that of
the Job, and pods as KubeRay makes them of the RayCluster get nodes together."""

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from arranger.convert import Conversion, converted, documents
from arranger.model.queue_rules import validate_queue
from tests.commands import Run
from tests.servers import REPOSITORY
from tests.unit.test_cli_simulate_files import node

DOCUMENT = (REPOSITORY / "docs" / "from-kueue.md").read_text(encoding="utf-8")
FOUND = [
    one for block in re.findall(r"```yaml\n(.*?)```", DOCUMENT, re.DOTALL) for one in yaml.safe_load_all(block) if one
]
GPU = "nvidia.com/gpu"


def of_kind(kind: str) -> dict[str, dict[str, Any]]:
    return {one["metadata"]["name"]: one for one in FOUND if one["kind"] == kind}


NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "research", "labels": {"team": "research"}}}
FLAVOR = of_kind("ResourceFlavor")["a100"]["spec"]


def nodes(count: int) -> list[dict[str, Any]]:
    """So many nodes of the flavor, with a taint that its tolerations tolerate, and one of another kind."""
    taints = [{"key": "example.com/gpu", "value": "a100", "effect": "NoSchedule"}]
    made = [
        node(f"a100-{number}", spec={"taints": taints}, labels=FLAVOR["nodeLabels"], cpu="64", gpus=8)
        for number in range(count)
    ]
    return [*made, node("other", cpu="64", gpus=8)]


def planned(folder: Path, capsys: pytest.CaptureFixture[str], *objects: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The jobs and the queues of a plan, by name."""
    cluster = folder / "cluster.yaml"
    cluster.write_text(yaml.safe_dump_all([NAMESPACE, *of_kind("Queue").values(), *objects]))
    run = Run(capsys, "simulate", str(cluster), "-o", "json")
    assert run.status == 0, run.err
    return {one["name"]: one for one in [*run.json["jobs"], *run.json["queues"]]}


def test_the_queues_are_those_of_the_cluster_queue() -> None:
    given, queues = of_kind("ClusterQueue")["research"]["spec"], of_kind("Queue")
    assert [validate_queue(one) for one in queues.values()] == [[], []]
    [flavor] = given["resourceGroups"][0]["flavors"]
    assert flavor["name"] in of_kind("ResourceFlavor")
    cpu, gpus = flavor["resources"]
    assert queues["research"]["spec"] == {
        "parent": given["cohortName"],
        "guarantee": {GPU: gpus["nominalQuota"] - gpus["lendingLimit"]},
        "deserved": {GPU: gpus["nominalQuota"], "cpu": cpu["nominalQuota"]},
        "capability": {GPU: gpus["nominalQuota"] + gpus["borrowingLimit"]},
        "namespaces": {"selector": given["namespaceSelector"]},
    }


def test_convert_makes_these_queues_of_both_cluster_queues_of_the_cohort() -> None:
    given = of_kind("ClusterQueue")["research"]
    other = {**given, "metadata": {"name": "other"}}
    found = converted(documents("queues.yaml", yaml.safe_dump_all([given, other]).encode()))
    made = {of["metadata"]["name"]: of for each in found if isinstance(each, Conversion) for of in each.objects}
    assert {name: made[name] for name in ("all", "research")} == of_kind("Queue")


def test_the_tyjob_is_that_of_the_job_with_the_flavor() -> None:
    kinds = ("Job", "LocalQueue", "ClusterQueue", "ResourceFlavor")
    given, tyjob = copy.deepcopy([of_kind(kind) for kind in kinds]), of_kind("TYJob")
    objects = [one for of in given for one in of.values()]
    [conversion, *_] = converted(documents("job.yaml", yaml.safe_dump_all(objects).encode()))
    assert isinstance(conversion, Conversion)
    [made] = conversion.objects
    assert made == tyjob["train"]


def test_the_tyjob_gets_nodes_of_the_flavor_and_a_second_one_waits_as_the_document_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = of_kind("TYJob")["train"]
    second = copy.deepcopy(first)
    second["metadata"]["name"] = "train-2"
    jobs = planned(tmp_path, capsys, *nodes(2), first, second)
    assert {pod["node"] for pod in jobs["train"]["placed"]} <= {"a100-0", "a100-1"}
    assert (len(jobs["train"]["placed"]), jobs["train-2"]["placed"]) == (4, [])
    assert f"`{jobs['train-2']['message']}`" in DOCUMENT


def test_pods_of_the_ray_cluster_get_nodes_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = of_kind("RayCluster")["ppo"]
    spec = cluster["spec"]
    [workers] = spec["workerGroupSpecs"]
    templates = [spec["headGroupSpec"]["template"], *[workers["template"]] * workers["replicas"]]
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**of["metadata"], "name": f"ppo-{number}", "namespace": cluster["metadata"]["namespace"]},
            "spec": of["spec"],
        }
        for number, of in enumerate(templates)
    ]
    assert f"explain group:{cluster['metadata']['name']}`" in DOCUMENT
    plan = planned(tmp_path, capsys, node("n", cpu="64", gpus=4), *pods)
    assert (plan["group:ppo"]["placed"], plan["research"]["waiting"]) == ([], 1)
    plan = planned(tmp_path, capsys, node("n", cpu="64", gpus=8), *pods)
    assert (len(plan["group:ppo"]["placed"]), plan["research"]["running"]) == (3, 1)
