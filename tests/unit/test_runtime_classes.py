"""RuntimeClasses: what admission adds to pods is in the plan, and a job waits for a class that doesn't exist."""

import json
from pathlib import Path

import msgspec
import pytest

from arranger.cli.main import main
from arranger.events import kinds as k
from arranger.kube.translate import pod_seen, runtime_class_seen
from arranger.lifecycle.desired import desired_status
from arranger.model.job import Stage
from arranger.model.node import Taint
from arranger.model.pod import PodShape, RuntimeNeeds, Toleration
from arranger.model.template import pod_shape
from arranger.projections import snapshot
from arranger.projections.consistency import validate
from arranger.projections.jobs.records import JobRecord
from tests.world import World, shape

KATA = {
    "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass",
    "metadata": {"name": "kata", "uid": "u", "resourceVersion": "7"},
    "handler": "kata", "overhead": {"podFixed": {"cpu": "250m", "memory": "120Mi"}},
    "scheduling": {"nodeSelector": {"kata": "true"}, "tolerations": [{"key": "kata", "operator": "Exists"}]},
}  # fmt: skip
NEEDS = runtime_class_seen(KATA, 1).needs


def sandboxed(cpu: float = 1, **more: object) -> PodShape:
    return msgspec.structs.replace(shape(cpu=cpu, **more), runtime_class="kata")  # type: ignore[arg-type]


def cluster(*, watched: bool = True) -> World:
    """Two nodes, of which n2 alone has the runtime, and tolerates nobody else."""
    there = World()
    there.node("n1", cpu=4)
    there.node("n2", cpu=4, labels={"kata": "true"}, taints=[Taint("kata", "", "NoSchedule")])
    if watched:
        there.watch_runtimes()
    return there


def message(there: World, job: JobRecord) -> str:
    return str(desired_status(there.state, job)["message"])


def test_what_a_class_adds_is_observed() -> None:
    assert (
        RuntimeNeeds(
            (("cpu", 250), ("memory", 120 << 20)), (("kata", "true"),), (Toleration("kata", "Exists", "", ""),)
        )
        == NEEDS
    )
    assert runtime_class_seen({"metadata": {"name": "runc"}, "handler": "runc"}, 1).needs == RuntimeNeeds()


def test_only_templates_have_a_class_because_a_pod_that_is_there_has_what_it_adds() -> None:
    spec = {"containers": [{"name": "c"}], "runtimeClassName": "kata", "schedulerName": "arranger"}
    assert pod_shape(spec).runtime_class == "kata"
    asks = pod_seen({"metadata": {"name": "web", "uid": "u"}, "spec": spec}, 1, ("arranger",)).asks
    assert asks is not None and asks.shape.runtime_class == ""


def test_the_node_and_the_room_are_those_of_the_pod_after_admission() -> None:
    """Of 4 cpus, 3 pods of 1 fit with the overhead, and n1 doesn't have the runtime at all."""
    there = cluster()
    there.runtime_class("kata", NEEDS)
    job = there.job("j", workers=4, min_workers=2, leader=sandboxed(), worker=sandboxed())
    there.cycle()
    assert set(job.placements.values()) == {"n2"} and len(job.placements) == 3
    assert there.used("n2") == 3750
    validate(there.state)
    plain = there.job("plain", leader=shape(cpu=1))
    there.cycle()
    assert plain.placements == {(0, 0): "n1"}, "others still don't tolerate the taint"
    assert snapshot.digest(snapshot.restore(snapshot.encode(there.state))) == snapshot.digest(there.state)


def test_the_overhead_that_a_template_says_itself_counts_once() -> None:
    """Admission takes such a pod only if its class says the same."""
    spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}], "runtimeClassName": "kata"}
    twice = pod_shape({**spec, "overhead": {"cpu": "250m", "memory": "120Mi"}})
    assert dict(twice.requests) == {"cpu": 1250, "memory": 120 << 20}
    there = cluster()
    job = there.job("j", workers=1, worker=twice, min_workers=1, equals=True)
    there.runtime_class("kata", NEEDS)
    assert dict(job.valid_spec.groups[1].shape.requests) == {"cpu": 1250, "memory": 120 << 20}
    once = there.job("k", workers=1, worker=pod_shape(spec), min_workers=1, equals=True)
    assert once.valid_spec.groups[1].shape.requests == job.valid_spec.groups[1].shape.requests


def test_a_job_waits_for_a_class_that_does_not_exist_and_says_so() -> None:
    there = cluster()
    job = there.job("j", leader=sandboxed())
    there.settle()
    waits = "waits for RuntimeClass kata, which doesn't exist: create it, or edit the template"
    assert (job.placements, message(there, job)) == ({}, waits)
    there.runtime_class("kata", NEEDS)
    there.settle()
    assert (job.stage, job.placements) == (Stage.RUNNING, {(0, 0): "n2"})
    there.runtime_class_gone("kata")
    validate(there.state)
    assert job.stage == Stage.RUNNING, "pods that are there stay"


def test_a_template_that_contradicts_its_class_is_told_so_by_name() -> None:
    """No node has both values, and the API server would refuse the pods."""
    there = cluster()
    there.runtime_class("kata", msgspec.structs.replace(NEEDS, node_selector=(("runtime", "kata"),)))
    job = there.job("j", leader=sandboxed(selector={"runtime": "runc"}))
    there.settle()
    words = (
        "nodeSelector runtime=runc of its template contradicts RuntimeClass kata, which has runtime=kata, so the API "
        "server would refuse its pods: edit the template"
    )
    assert (job.placements, message(there, job)) == ({}, words)
    other = there.job("k", leader=sandboxed(selector={"runtime": "kata"}))
    assert "contradicts" not in message(there, other)


@pytest.mark.parametrize("code", [403, 404])
def test_where_classes_may_not_be_read_jobs_are_placed_as_before(code: int) -> None:
    there = cluster(watched=False)
    job = there.job("j", leader=sandboxed())
    there.cycle()
    assert job.placements == {(0, 0): "n1"}
    there = cluster()
    there.runtime_class("kata", NEEDS)
    job = there.job("j", leader=sandboxed(cpu=9))
    there.say(k.WatchRefused(k.Watched.RUNTIME_CLASS, there.watch_runtimes(), code))
    assert there.state.synced and not job.valid_spec.missing_runtimes
    assert job.valid_spec.groups[0].shape == sandboxed(cpu=9)
    validate(there.state)


def test_room_that_was_decided_follows_a_class_that_changes() -> None:
    there = cluster()
    there.runtime_class("kata", NEEDS)
    job = there.job("j", leader=sandboxed())
    there.cycle()
    there.runtime_class("kata", msgspec.structs.replace(NEEDS, overhead=(("cpu", 1000),)))
    assert (there.used("n2"), there.state.queue_use.own["default"]["cpu"]) == (2000, 2000)
    there.runtime_class_gone("kata")
    assert (there.used("n2"), job.valid_spec.missing_runtimes) == (1000, ("kata",))
    validate(there.state)


def test_a_selector_that_contradicts_the_class_fits_no_node() -> None:
    there = cluster()
    there.runtime_class("kata", NEEDS)
    job = there.job("j", leader=msgspec.structs.replace(sandboxed(), node_selector=(("kata", "false"),)))
    there.cycle()
    assert not job.placements


def test_a_simulation_of_files_has_classes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
         "status": {"allocatable": {"cpu": "4", "memory": "8Gi"}}}
        for name, labels in (("n1", {}), ("n2", {"kata": "true"}))
    ]  # fmt: skip
    spec = {
        "runtimeClassName": "kata",
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
    }
    job = {
        "apiVersion": "arranger.dev/v1", "kind": "TYJob", "metadata": {"name": "j"},
        "spec": {"workerSets": [{"name": "w", "counts": 1, "minCount": 1, "template": {"spec": spec}}]},
    }  # fmt: skip
    file = tmp_path / "all.json"
    for items, node in (([*nodes, KATA, job], "n2"), ([*nodes, job], None)):
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        main(["simulate", str(file), "-o", "json"], prog_name="arranger")
        (found,) = json.loads(capsys.readouterr().out)["jobs"]
        assert [of["node"] for of in found["placed"]] == ([node] if node else [])
