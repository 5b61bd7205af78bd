"""Simulated kubelets on an in-memory cluster: what becomes of pods with which annotations."""

import asyncio
import contextlib
import gc
import time
import warnings
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from arranger.kube.cluster import EVENTS, NODES, PODS, ApiError, Object
from arranger.sandbox.direct import DirectCluster
from arranger.sandbox.kubelet import SimulatedKubelets
from arranger.sandbox.nodes import NodeTemplate
from arranger.sandbox.pod_run import PREFIX, requests_of
from arranger.sandbox.store import Store


@contextlib.asynccontextmanager
async def running(*nodes: NodeTemplate) -> AsyncIterator[tuple[DirectCluster, SimulatedKubelets]]:
    """A cluster whose nodes run pods."""
    cluster = DirectCluster(Store(now=time.time))
    kubelets = SimulatedKubelets(
        cluster, nodes=nodes or (NodeTemplate("n1", cpu="4", gpus=1),), stop_s=0.01, restart_s=0.01
    )
    await kubelets.start()
    try:
        yield cluster, kubelets
    finally:
        await kubelets.stop()


async def create(
    cluster: DirectCluster,
    name: str,
    *,
    policy: str = "Never",
    cpu: str = "1",
    node: str = "n1",
    volumes: Sequence[Object] = (),
    **notes: Any,
) -> None:
    await cluster.create(
        PODS,
        "default",
        {
            "metadata": {
                "name": name,
                "annotations": {PREFIX + key.replace("_", "-"): str(value) for key, value in notes.items()},
            },
            "spec": {
                "nodeName": node,
                "restartPolicy": policy,
                "volumes": list(volumes),
                "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}],
            },
        },
    )


async def until(cluster: DirectCluster, name: str, holds: Callable[[Object], bool]) -> Object:
    """The pod's status as soon as it holds."""
    async with asyncio.timeout(20):
        while True:
            pod = await cluster.get(PODS, "default", name)
            if holds(pod["status"]):
                return pod["status"]
            await asyncio.sleep(0.005)


async def gone(cluster: DirectCluster, name: str) -> None:
    """Waits until the pod isn't there."""
    async with asyncio.timeout(20):
        with contextlib.suppress(ApiError):
            while True:
                await cluster.get(PODS, "default", name)
                await asyncio.sleep(0.005)


def phase(desired: str) -> Callable[[Object], bool]:
    return lambda status: status.get("phase") == desired


async def test_a_pod_runs_with_an_address_of_its_own_until_its_time_is_over() -> None:
    async with running() as (cluster, _):
        await create(cluster, "a")
        await create(cluster, "b", run_seconds=0.05)
        first = await until(cluster, "a", phase("Running"))
        assert {each["type"]: each["status"] for each in first["conditions"]}["Ready"] == "True"
        second = await until(cluster, "b", phase("Succeeded"))
        assert second["podIP"] != first["podIP"]
        assert second["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0


async def test_a_pod_that_exits_badly_fails_or_restarts_by_its_policy() -> None:
    async with running() as (cluster, _):
        await create(cluster, "fails", run_seconds=0.01, exit_code=3)
        await create(cluster, "restarts", policy="OnFailure", run_seconds=0.01, exit_code=3, failures=2)
        failed = await until(cluster, "fails", phase("Failed"))
        assert failed["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
        await create(cluster, "once", run_seconds=0.01, failures=1)
        failed = await until(cluster, "once", phase("Failed"))
        assert failed["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 1, "it has no next run"
        ended = await until(cluster, "restarts", phase("Succeeded"))
        assert ended["containerStatuses"][0]["restartCount"] == 2
        # The reason for its last restart stays, as with a kubelet, also while it runs again.
        assert ended["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 3


async def test_a_pod_whose_image_cannot_be_pulled_waits_and_a_refused_one_fails() -> None:
    async with running() as (cluster, _):
        await create(cluster, "waits", fail="ImagePullBackOff")
        await create(cluster, "refused", fail="UnexpectedAdmissionError")
        waiting = await until(cluster, "waits", lambda status: "containerStatuses" in status)
        assert waiting["phase"] == "Pending"
        assert waiting["containerStatuses"][0]["state"]["waiting"]["reason"] == "ImagePullBackOff"
        refused = await until(cluster, "refused", phase("Failed"))
        assert refused["reason"] == "UnexpectedAdmissionError"


ODD = [
    ({"run_seconds": "abc"}, 'run-seconds is "abc": ignored, must be a number of seconds from 0, such as "30"'),
    ({"run_seconds": "-5"}, 'run-seconds is "-5": ignored, must be a number of seconds from 0'),
    ({"start_seconds": "nan"}, 'start-seconds is "nan": ignored, must be a number of seconds'),
    ({"run_seconds": "1.2.3"}, 'run-seconds is "1.2.3": ignored'),
    ({"ready_seconds": "inf"}, 'ready-seconds is "inf": ignored, must be a number of seconds'),
    ({"failures": "1.5"}, 'failures is "1.5": ignored, must be a whole number from 0'),
    ({"exit_code": "256"}, 'exit-code is "256": ignored, must be a whole number from 0 to 255'),
    ({"exit_code": "x"}, 'exit-code is "x": ignored, must be a whole number from 0 to 255'),
    ({"run_second": "5"}, "run-second is unknown, did you mean run-seconds?"),
    ({"colour": "5"}, "colour is unknown: allowed are "),
]


@pytest.mark.parametrize(("notes", "words"), ODD)
async def test_an_annotation_that_means_nothing_is_told_in_an_event_and_counts_as_absent(
    notes: dict[str, str], words: str
) -> None:
    async with running() as (cluster, _):
        await create(cluster, "a", **notes)
        status = await until(cluster, "a", phase("Running"))
        assert status["containerStatuses"][0]["ready"] is True
        async with asyncio.timeout(20):
            while not (found := [of async for page in cluster.listing(EVENTS) for of in page.items]):  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        [event] = found
        assert words in event["message"]
        assert event["message"].startswith(f"annotation {PREFIX}")
        assert (event["type"], event["reason"]) == ("Warning", "InvalidAnnotation")
        assert (event["involvedObject"]["kind"], event["involvedObject"]["name"]) == ("Pod", "a")


async def test_annotations_that_mean_something_are_told_in_no_event() -> None:
    async with running() as (cluster, _):
        await create(
            cluster,
            "a",
            run_seconds="0.02",
            start_seconds="0",
            ready_seconds="0.01",
            exit_code="0",
            failures="0",
            exit_reason="",
        )
        await until(cluster, "a", phase("Succeeded"))
        assert not [of async for page in cluster.listing(EVENTS) for of in page.items]


async def test_a_pod_is_ready_only_after_its_time() -> None:
    async with running() as (cluster, _):
        await create(cluster, "a", start_seconds=0.02, ready_seconds=0.05)
        status = await until(cluster, "a", phase("Running"))
        assert status["containerStatuses"][0]["ready"] is False
        await until(cluster, "a", lambda status: status["containerStatuses"][0]["ready"])


async def test_a_node_refuses_what_it_has_no_room_for_and_takes_it_when_there_is() -> None:
    async with running() as (cluster, _):
        await create(cluster, "big", cpu="3")
        await until(cluster, "big", phase("Running"))
        await create(cluster, "second", cpu="2")
        refused = await until(cluster, "second", phase("Failed"))
        assert refused["reason"] == "OutOfcpu"
        await cluster.delete(PODS, "default", "big", grace_s=0)
        await create(cluster, "third", cpu="4")
        await until(cluster, "third", phase("Running"))


async def test_a_pod_that_is_ended_by_hand_gives_its_room_to_the_next() -> None:
    async with running() as (cluster, _):
        await create(cluster, "first", cpu="4")
        await until(cluster, "first", phase("Running"))
        await cluster.patch(PODS, "default", "first", {"status": {"phase": "Succeeded"}}, subresource="status")
        await create(cluster, "second", cpu="4")
        await until(cluster, "second", phase("Running"))
        assert (await cluster.get(PODS, "default", "first"))["status"]["phase"] == "Succeeded"


async def test_a_deleted_pod_is_gone_once_it_has_stopped() -> None:
    async with running() as (cluster, _):
        await create(cluster, "a")
        await until(cluster, "a", phase("Running"))
        await cluster.delete(PODS, "default", "a")
        await gone(cluster, "a")


async def test_a_pod_that_is_gone_before_it_began_to_stop_leaves_no_work_behind() -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        async with running() as (cluster, _):
            await create(cluster, "a")
            await until(cluster, "a", phase("Running"))
            await cluster.delete(PODS, "default", "a")
            await cluster.delete(PODS, "default", "a", grace_s=0)
            await asyncio.sleep(0.05)
        gc.collect()
    assert [str(each.message) for each in told if "never awaited" in str(each.message)] == []


async def test_a_lost_node_is_unreachable_and_its_pods_are_not_stopped() -> None:
    async with running() as (cluster, kubelets):
        await create(cluster, "a")
        await until(cluster, "a", phase("Running"))
        await kubelets.lose("n1")
        node = await cluster.get(NODES, None, "n1")
        assert {taint["key"] for taint in node["spec"]["taints"]} == {"node.kubernetes.io/unreachable"}
        await cluster.delete(PODS, "default", "a")
        assert "deletionTimestamp" in (await cluster.get(PODS, "default", "a"))["metadata"]
        await kubelets.set_ready("n1", True)
        node = await cluster.get(NODES, None, "n1")
        assert not node["spec"].get("taints")
        await gone(cluster, "a")


async def test_a_lost_node_that_returns_after_it_was_deleted_stops_its_pods() -> None:
    async with running() as (cluster, kubelets):
        await create(cluster, "a")
        await until(cluster, "a", phase("Running"))
        await kubelets.lose("n1")
        await cluster.delete(PODS, "default", "a")
        await cluster.delete(NODES, None, "n1")
        await asyncio.sleep(0.05)  # what the watch says of the node meanwhile doesn't reach the kubelet
        with pytest.raises(ApiError):
            await kubelets.set_ready("n1", True)
        await kubelets.add(NodeTemplate("n1", cpu="4"))
        await gone(cluster, "a")


async def test_registered_nodes_are_ready_with_what_they_hold() -> None:
    template = NodeTemplate("n1", cpu="8", gpus=4, labels={"zone": "a"}, taints=({"key": "k", "effect": "NoSchedule"},))
    async with running(template) as (cluster, _):
        node = await cluster.get(NODES, None, "n1")
        assert node["status"]["allocatable"]["nvidia.com/gpu"] == "4"
        assert node["metadata"]["labels"]["zone"] == "a"
        assert [taint["key"] for taint in node["spec"]["taints"]] == ["k"]
        conditions = {each["type"]: each["status"] for each in node["status"]["conditions"]}
        assert conditions["Ready"] == "True"


async def test_nodes_hold_what_real_ones_do_and_local_storage_runs_out_as_there() -> None:
    """A pod that asks for ephemeral storage, as the init container of an MPIJob does, finds a node."""
    async with running(NodeTemplate("n1", ephemeral_storage="10Gi"), NodeTemplate("n2")) as (cluster, _):
        shown = (await cluster.get(NODES, None, "n2"))["status"]
        assert {"cpu", "memory", "pods", "ephemeral-storage", "hugepages-1Gi", "hugepages-2Mi"} == {
            *shown["allocatable"]
        }
        assert shown["nodeInfo"]["containerRuntimeVersion"]
        for name in ("a", "b"):
            asked = {"containers": [{"name": "c", "image": "i"}], "nodeName": "n1", "restartPolicy": "Never"}
            asked["initContainers"] = [
                {"name": "i", "image": "i", "resources": {"requests": {"ephemeral-storage": "6Gi"}}}
            ]
            await cluster.create(PODS, "default", {"metadata": {"name": name}, "spec": asked})
            await until(cluster, name, phase("Running" if name == "a" else "Failed"))
        assert (await cluster.get(PODS, "default", "b"))["status"]["reason"] == "OutOfephemeral-storage"


def test_a_pods_requests_are_its_containers_or_its_largest_init_container() -> None:
    def container(cpu: str, **more: str) -> Object:
        return {"resources": {"requests": {"cpu": cpu}}, **more}

    spec = {"containers": [container("1"), container("500m")], "initContainers": [container("2")]}
    assert requests_of(spec) == {"pods": 1, "cpu": 2000}
    spec["initContainers"] = [container("2", restartPolicy="Always")]
    assert requests_of(spec)["cpu"] == 3500


async def test_nothing_runs_on_a_node_that_was_only_created_and_a_claim_that_is_missing_keeps_no_pod_back() -> None:
    """As docs/embedded-cluster.md says."""
    async with running() as (cluster, kubelets):
        await cluster.create(NODES, None, {"metadata": {"name": "mine"}})
        await create(cluster, "a", node="mine")
        volume = {"name": "data", "persistentVolumeClaim": {"claimName": "missing"}}
        await create(cluster, "b", volumes=[volume])
        await until(cluster, "b", phase("Running"))
        await kubelets.set_ready("n1", True)
        assert (await cluster.get(PODS, "default", "a"))["status"]["phase"] == "Pending"
        taints = (await cluster.get(NODES, None, "mine"))["spec"]["taints"]
        assert taints == [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]
