"""Placeholders: a waiting quorum is shown to autoscalers pod by pod, and nothing of it is left once it doesn't wait."""

from typing import Any

import msgspec
import pytest

from arranger.events import kinds as k
from arranger.kube.cluster import NODES, PODS, TYJOBS, Object
from arranger.kube.placeholders import placeholder_manifest
from arranger.kube.translate import pod_seen
from arranger.lifecycle.config import LifecycleConfig
from arranger.model.config import CycleConfig
from arranger.model.job import Stage
from arranger.model.provisioning import HOLDS_FOR_LABEL, NO_SCHEDULER, Provisioning
from arranger.projections import snapshot
from arranger.projections.folding.provisioning import present_request
from arranger.replay.reading.describe import describe
from arranger.scheduling.cycle import VERSIONS
from arranger.workers.applying.effects.progress import Progress
from tests.unit.test_provisioner import Scene
from tests.unit.test_provisioning import GRACE_MS, Autoscaled
from tests.world import World, shape

PENDING = Provisioning.PENDING


def placeholders(scene: Scene) -> list[Object]:
    return [pod for pod in scene.there(PODS) if HOLDS_FOR_LABEL in pod["metadata"]["labels"]]


def own(scene: Scene) -> list[Object]:
    return [pod for pod in scene.there(PODS) if HOLDS_FOR_LABEL not in pod["metadata"]["labels"]]


def unschedulable(pod: Object) -> bool:
    found = pod["status"].get("conditions") or ()
    return any(
        (of["type"], of["status"], of.get("reason")) == ("PodScheduled", "False", "Unschedulable") for of in found
    )


async def waiting() -> Scene:
    scene = Scene(of=PENDING)
    await scene.until(
        lambda: len(placeholders(scene)) == 3 and all(map(unschedulable, placeholders(scene))), autoscales=False
    )
    return scene


async def test_a_job_starts_from_no_node_by_its_placeholders_and_is_never_split() -> None:
    scene = await waiting()
    assert "placeholder pods j-" in str(scene.there(TYJOBS)[0]["status"]["message"])
    while len(scene.there(NODES)) < 3:
        await scene.step()
        assert not own(scene), "half of the nodes hold no half of the quorum"
        assert len(placeholders(scene)) == 3 or len(scene.there(NODES)) == 3
    create = scene.cluster.create
    beside: list[int] = []

    async def noting(*of: Any, **how: Any) -> Object:
        beside.append(len(placeholders(scene)))
        return await create(*of, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scene.cluster, "create", noting)
        await scene.until(lambda: scene.job.stage == Stage.STARTING and len(own(scene)) == 1)
    assert beside == [0], "the placeholders go before the job's own pods come"
    scene.run_pods()  # the leader, whose address its workers are told
    await scene.until(lambda: len(own(scene)) == 3)
    workers = [pod for pod in own(scene) if pod["metadata"]["labels"]["arranger.dev/role"] == "worker"]
    for pod in workers:
        assert {"name": "TYJOB_LEADER_ADDRESS", "value": "10.0.0.7"} in pod["spec"]["containers"][0]["env"]
    scene.run_pods()
    await scene.until(lambda: scene.job.stage == Stage.RUNNING)
    for _ in range(3):
        await scene.step()
    assert len(scene.there(NODES)) == 3, "no autoscaler has counted a pod twice"


async def test_nobody_can_run_a_placeholder_and_it_asks_for_what_its_pod_asks() -> None:
    scene = await waiting()
    for pod in placeholders(scene):
        spec = pod["spec"]
        assert (spec["schedulerName"], spec.get("nodeName"), spec.get("schedulingGates")) == (NO_SCHEDULER, None, None)
        assert spec["nodeSelector"] == {"pool": "gpu"}
        (container,) = spec["containers"]
        assert container["resources"]["requests"] == {"cpu": "2"} and "env" not in container
        (owner,) = pod["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"], owner["controller"]) == ("TYJob", scene.job.uid, True)
    assert not scene.world.state.pods_of.get(scene.job.uid), "they are no workers"


def test_a_placeholder_has_what_decides_on_its_node_and_no_volume_that_would_be_made_for_it() -> None:
    spec = {
        "containers": [{"name": "c", "image": "i", "command": ["run"], "volumeMounts": [{"name": "own"}]}],
        "initContainers": [{"name": "before", "image": "i", "restartPolicy": "Always", "env": [{"name": "A"}]}],
        "tolerations": [{"key": "gpu"}],
        "volumes": [
            {"name": "named", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "own", "ephemeral": {"volumeClaimTemplate": {}}},
        ],
    }
    metadata = {"name": "j", "namespace": "default", "uid": "u"}
    of = {"leader": {"name": "l", "template": {"spec": spec}}, "workerSets": []}
    job = {"apiVersion": TYJOBS.api_version, "kind": TYJOBS.kind, "metadata": metadata, "spec": of}
    found = placeholder_manifest(job, "j-u-1-0-0", group=0, number=1)["spec"]
    assert found["volumes"] == [{"name": "named", "persistentVolumeClaim": {"claimName": "data"}}]
    assert found["containers"] == [{"name": "c", "image": "i"}] and found["tolerations"] == [{"key": "gpu"}]
    assert found["initContainers"] == [{"name": "before", "image": "i", "restartPolicy": "Always"}]


@pytest.mark.parametrize("how", ["suspended", "placed", "ended", "off", "quota"])
async def test_a_job_that_no_longer_waits_for_nodes_leaves_no_placeholder(how: str) -> None:
    scene = await waiting()
    if how == "placed":
        status = {"allocatable": {"cpu": "64", "pods": "9"}, "conditions": [{"type": "Ready", "status": "True"}]}
        scene.store.create(NODES, "", {"metadata": {"name": "n", "labels": {"pool": "gpu"}}, "status": status})
        scene.store.patch(NODES, "", "n", {"spec": {"taints": None}})
    elif how == "off":
        scene.world.queue("default", provisioning=Provisioning.NONE)
    elif how == "quota":
        scene.world.quota("default", hard={"pods": 10})
    else:
        field = "suspend" if how == "suspended" else "terminating"
        scene.store.patch(TYJOBS, "default", "j", {"spec": {field: True}})
    scene.observe()
    await scene.until(lambda: not placeholders(scene), autoscales=False)
    assert (scene.job.stage == Stage.STARTING) == (how == "placed")
    for _ in range(3):
        await scene.step(autoscales=False)
    assert not placeholders(scene)


async def test_another_quorum_has_other_placeholders() -> None:
    scene = await waiting()
    before = {pod["metadata"]["uid"] for pod in placeholders(scene)}
    scene.store.patch(TYJOBS, "default", "j", {"spec": {"minWorkersNum": 3}})
    scene.observe()
    await scene.until(
        lambda: len(placeholders(scene)) == 4 and all(map(unschedulable, placeholders(scene))), autoscales=False
    )
    assert before.isdisjoint(pod["metadata"]["uid"] for pod in placeholders(scene))


async def test_another_applier_completes_what_the_first_one_began() -> None:
    scene = await waiting()
    first, second, _ = placeholders(scene)
    await scene.cluster.delete(PODS, "default", first["metadata"]["name"])
    scene.store.patch(PODS, "default", second["metadata"]["name"], {"status": {"conditions": []}}, subresource="status")
    scene.observe()
    scene.applier._progress[scene.job.uid] = Progress()
    await scene.until(
        lambda: len(placeholders(scene)) == 3 and all(map(unschedulable, placeholders(scene))), autoscales=False
    )


async def test_a_pod_of_others_that_only_says_that_it_is_a_placeholder_is_left_alone() -> None:
    scene = await waiting()
    labels = {HOLDS_FOR_LABEL: scene.job.uid, "arranger.dev/request": "1"}
    await scene.cluster.create(
        PODS,
        "default",
        {"metadata": {"name": "web", "labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    )
    scene.observe()
    for _ in range(3):
        await scene.step(autoscales=False)
    assert "web" in [pod["metadata"]["name"] for pod in scene.there(PODS)]


async def test_placeholders_that_the_api_server_refuses_are_a_failed_request_that_is_made_again() -> None:
    scene = Scene(of=PENDING)
    scene.cluster.refused = PODS
    await scene.until(lambda: bool(scene.refusals.events), autoscales=False)
    scene.world.say(*scene.refusals.events)
    for _ in range(3):
        await scene.step(autoscales=False)
    assert len(scene.refusals.events) == 1, "it is told once"
    assert "the API server refuses it: not you" in str(scene.there(TYJOBS)[0]["status"]["message"])
    scene.world.pass_time(10)
    scene.cluster.refused = None
    await scene.until(lambda: scene.job.stage == Stage.STARTING)
    assert present_request(scene.world.state, scene.job) is None


def test_a_job_with_placeholders_is_never_given_up_and_the_log_says_how_it_asked() -> None:
    world = Autoscaled(provisioning=PENDING, watched=False)
    job = world.job("ppo", leader=shape(cpu=1))
    (asked,) = world.asks()
    assert (asked.how, asked.class_name) == (PENDING, "")
    assert describe(asked, world.state) == "request 1 to an autoscaler, by placeholders: nodes for 1 learner"
    world.pass_time(100 * GRACE_MS / 1000)
    assert world.asks() == [] and job.stage == Stage.PENDING


def test_in_a_namespace_with_a_resource_quota_no_placeholder_takes_what_the_job_needs() -> None:
    world = Autoscaled(provisioning=PENDING, watched=False)
    world.quota("default", hard={"pods": 10})
    world.job("ppo", leader=shape(cpu=1))
    assert world.asks() == []


async def test_a_new_epoch_and_a_snapshot_know_the_placeholders_that_are_there() -> None:
    scene = await waiting()
    state, job = scene.world.state, scene.job
    assert snapshot.restore(snapshot.encode(state)).placeholders == state.placeholders
    later = World(config=CycleConfig(versions=VERSIONS, provisioning=PENDING))
    later.lifecycle = LifecycleConfig(provisioning=PENDING)
    later.say(*[pod_seen(pod, later.terms[k.Watched.POD]) for pod in placeholders(scene)])
    later.say(msgspec.structs.replace(job.seen, term=later.terms[k.Watched.JOB]))
    later.cycle()
    asked = [event for event in later.control() if isinstance(event, k.NodesRequested)]
    assert [of.number for of in asked] == [2], "those of the earlier epoch have other names, and go"
