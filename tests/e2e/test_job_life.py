"""The life of running jobs on a real API server: workers fail, nodes are deleted, users edit specs."""

from pathlib import Path
from typing import Any

from arranger.model.names import ROLE_LABEL
from arranger.sandbox.nodes import NodeTemplate
from tests.e2e.harness import (
    PODS,
    TYJOBS,
    apply,
    await_stage,
    eventually,
    fleet,
    job,
    kubelets,
    pods_of,
    stages,
    status_of,
    verified,
)
from tests.servers import MERGE, RealKube, RealRedis

NODES = [NodeTemplate(f"node-{number}", cpu="4") for number in range(3)]


def by_name(kube: RealKube, name: str) -> dict[str, dict[str, Any]]:
    """A job's pods that aren't being deleted."""
    pods = [pod for pod in pods_of(kube, name) if not pod["metadata"].get("deletionTimestamp")]
    return {pod["metadata"]["name"]: pod for pod in pods}


def running(kube: RealKube, name: str) -> dict[str, str]:
    """Pod name → UID of the running pods."""
    pods = by_name(kube, name)
    return {
        pod: it["metadata"]["uid"] for pod, it in pods.items() if (it.get("status") or {}).get("phase") == "Running"
    }


def fail(kube: RealKube, pod: str, **status: str) -> None:
    """Report a pod as failed, as a kubelet does."""
    kube.request("PATCH", f"{PODS}/{pod}/status", {"status": {"phase": "Failed", **status}}, content_type=MERGE)


def edit(kube: RealKube, name: str, **spec: Any) -> None:
    """Change fields of a spec, as a user does."""
    code, answer = kube.request("PATCH", f"{TYJOBS}/{name}", {"spec": spec}, content_type=MERGE)
    assert code == 200, answer


def resize(kube: RealKube, name: str, counts: int) -> None:
    """Change the count of the only worker set, as a user does."""
    change = [{"op": "replace", "path": "/spec/workerSets/0/counts", "value": counts}]
    code, answer = kube.request("PATCH", f"{TYJOBS}/{name}", change, content_type="application/json-patch+json")
    assert code == 200, answer


def test_workers_that_end_are_replaced_while_their_job_goes_on(
    kube: RealKube, redis: RealRedis, tmp_path: Path
) -> None:
    with kubelets(kube, *NODES), fleet(redis_url=redis.url, kube=kube, folder=tmp_path) as workers:
        workers.start()
        apply(kube, job("ppo", workers=3, least=1, restartLimit=1))
        await_stage(kube, "Running", "ppo")
        eventually("all run", lambda: len(running(kube, "ppo")) == 4)
        before = running(kube, "ppo")
        fail(kube, "ppo-actors-1")
        eventually("it is replaced", lambda: "ppo-actors-1-f1" in running(kube, "ppo"))
        after = running(kube, "ppo")
        assert {name for name, uid in after.items() if before.get(name) != uid} == {"ppo-actors-1-f1"}
        eventually("it is counted", lambda: status_of(kube, "ppo").get("restarts") == 1)
        refused = by_name(kube, "ppo")["ppo-actors-2"]
        fail(kube, "ppo-actors-2", reason="OutOfcpu")
        eventually(
            "it runs again", lambda: running(kube, "ppo").get("ppo-actors-2", "") not in ("", before["ppo-actors-2"])
        )
        again = by_name(kube, "ppo")["ppo-actors-2"]
        assert again["spec"]["nodeName"] != refused["spec"]["nodeName"]
        fail(kube, "ppo-actors-1-f1")
        eventually("it is given up", lambda: status_of(kube, "ppo")["workers"][0].get("givenUp") == "1")
        status = status_of(kube, "ppo")
        assert (status["stage"], status["attempt"], status["restarts"], status["ready"]) == ("Running", 0, 1, "2/3")
        verified(redis.url)


def test_a_job_grows_and_shrinks_is_suspended_and_resumed_and_ends_by_its_limits(
    kube: RealKube, redis: RealRedis, tmp_path: Path
) -> None:
    with kubelets(kube, *NODES), fleet(redis_url=redis.url, kube=kube, folder=tmp_path) as workers:
        workers.start()
        apply(kube, job("ppo", workers=2, least=1, restartLimit=0))
        await_stage(kube, "Running", "ppo")
        leader = running(kube, "ppo")["ppo-learner-0"]
        for counts in (6, 3):
            resize(kube, "ppo", counts)
            eventually(f"it has {counts} workers", lambda counts=counts: len(by_name(kube, "ppo")) == counts + 1)  # type: ignore[misc]
            eventually("they run", lambda counts=counts: status_of(kube, "ppo")["ready"] == f"{counts}/{counts}")  # type: ignore[misc]
        left = running(kube, "ppo")
        assert set(left) == {"ppo-learner-0", *(f"ppo-actors-{index}" for index in range(3))}
        assert left["ppo-learner-0"] == leader and status_of(kube, "ppo")["observedGeneration"] == 3
        edit(kube, "ppo", suspend=True)
        eventually("its pods are gone", lambda: not pods_of(kube, "ppo"))
        kube.kubectl("wait", "tyj/ppo", "--for=condition=Suspended", "--timeout=30s")
        status = status_of(kube, "ppo")
        assert (status["stage"], status.get("allocations"), "startTime" in status) == ("Pending", [], False)
        edit(kube, "ppo", suspend=False, ttlSecondsAfterFinished=1)
        await_stage(kube, "Running", "ppo")
        status = status_of(kube, "ppo")
        assert (status["attempt"], status["restarts"]) == (1, 0)
        edit(kube, "ppo", activeDeadlineSeconds=1)
        eventually("it has failed and is gone", lambda: "ppo" not in stages(kube))
        events = kube.kubectl("get", "events", "-o", "jsonpath={.items[*].reason}").stdout.split()
        started, scaled = ["Scheduled", "WorkersReady"], ["Scaled", "Scaled"]
        assert events == ["Accepted", *started, *scaled, "Suspended", "Resumed", *started, "DeadlineExceeded"]
        verified(redis.url)


def test_pods_on_a_node_that_is_not_ready_for_long_are_replaced_elsewhere(
    kube: RealKube, redis: RealRedis, tmp_path: Path
) -> None:
    nodes = [NodeTemplate(f"node-{number}", cpu="1") for number in range(4)]
    with (
        kubelets(kube, *nodes) as cluster,
        fleet(redis_url=redis.url, kube=kube, folder=tmp_path, lost_node_s=2) as workers,
    ):
        workers.start()
        apply(kube, job("ppo", workers=2, least=1, restartLimit=0))
        await_stage(kube, "Running", "ppo")
        eventually("all run", lambda: len(running(kube, "ppo")) == 3)
        places = {name: pod["spec"]["nodeName"] for name, pod in by_name(kube, "ppo").items()}
        [spare] = {node.name for node in nodes} - set(places.values())
        cluster.set_ready(places["ppo-actors-0"], ready=False)

        def moved() -> bool:
            return by_name(kube, "ppo").get("ppo-actors-0", {"spec": {}})["spec"].get("nodeName") == spare

        eventually("the worker moves", moved)
        eventually("it runs there", lambda: len(running(kube, "ppo")) == 3)
        status = status_of(kube, "ppo")
        assert (status["stage"], status["attempt"], status["restarts"]) == ("Running", 0, 0)
        cluster.set_ready(places["ppo-actors-0"], ready=True)
        cluster.set_ready(places["ppo-learner-0"], ready=False)
        eventually("a new attempt", lambda: status_of(kube, "ppo")["attempt"] == 1)
        await_stage(kube, "Running", "ppo")
        assert status_of(kube, "ppo")["restarts"] == 0
        verified(redis.url)


def leader_told(kube: RealKube, name: str) -> set[str]:
    """The leader's addresses that the job's workers have."""
    workers = [pod for pod in by_name(kube, name).values() if pod["metadata"]["labels"][ROLE_LABEL] == "worker"]
    environment = [entry for pod in workers for entry in pod["spec"]["containers"][0]["env"]]
    return {entry["value"] for entry in environment if entry["name"] == "TYJOB_LEADER_ADDRESS"}


def test_a_leader_behind_a_service_keeps_its_name_over_attempts(
    kube: RealKube, redis: RealRedis, tmp_path: Path
) -> None:
    served = job("served", workers=2)
    served["spec"]["leaderService"] = True
    services = "/api/v1/namespaces/default/services/served-learner"
    with kubelets(kube, *NODES), fleet(redis_url=redis.url, kube=kube, folder=tmp_path) as workers:
        workers.start()
        apply(kube, served)
        await_stage(kube, "Running", "served")
        first = running(kube, "served")
        service = kube.request("GET", services)[1]
        assert leader_told(kube, "served") == {"served-learner.default.svc"}
        code, answer = kube.request(
            "PATCH", f"{TYJOBS}/served", {"spec": {"leaderService": False}}, content_type=MERGE, check=False
        )
        assert (code, "spec.leaderService" in answer["message"]) == (422, True)
        kube.request("DELETE", f"{PODS}/served-learner-0?gracePeriodSeconds=0")
        eventually(
            "the next attempt runs",
            lambda: status_of(kube, "served").get("attempt") == 1 and stages(kube)["served"] == "Running",
        )
        assert set(first.values()).isdisjoint(running(kube, "served").values())
        assert leader_told(kube, "served") == {"served-learner.default.svc"}
        there = kube.request("GET", services)[1]
        assert there["metadata"]["uid"] == service["metadata"]["uid"]
        assert there["metadata"]["ownerReferences"][0]["name"] == "served"
        # It selects the leader's pod of any attempt, and no other pod.
        selector = ",".join(f"{key}={value}" for key, value in there["spec"]["selector"].items())
        found = kube.kubectl("get", "pods", "-l", selector, "-o", "name").stdout.split()
        assert found == ["pod/served-learner-0-r1"]
