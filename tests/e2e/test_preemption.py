"""Room that jobs give to others, end to end on both clusters, with kubectl."""

import json
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from arranger.sandbox.nodes import NodeTemplate
from tests.e2e.both_clusters import BOTH, Cluster, cluster_of
from tests.e2e.harness import TYJOBS, apply, arranger, await_stage, eventually, job, pods_of, stages, status_of
from tests.e2e.history import History
from tests.servers import KubeServer
from tests.unit.queue_table import queue

pytestmark = pytest.mark.timeout(300)

QUOTAS = "/api/v1/namespaces/default/resourcequotas"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


@pytest.fixture(params=BOTH)
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    """A cluster of one node with 8 cpu, whose pods take a second to stop."""
    evict = "budget" in request.node.name
    settings = {"evict": "true"} if evict else {}
    with cluster_of(request, tmp_path, NodeTemplate("node-1", cpu="8"), stop_s=1.0, **settings) as running:
        yield running
        running.kube.kubectl("delete", "queues,resourcequotas", "--all")


@pytest.fixture
def kube(cluster: Cluster) -> KubeServer:
    return cluster.kube


@pytest.fixture
def history(request: pytest.FixtureRequest, kube: KubeServer) -> Iterator[History]:
    """What happens on the cluster; at the end, nothing may have been created beyond its node's room, or twice, but for
    surplus that comes back."""
    recorded = History(kube.kubeconfig)
    recorded.start()
    yield recorded
    recorded.stop()
    once = "surplus" not in request.node.name
    assert recorded.faults(once=once, unfinished=stages(kube)) == []


def patient(made: dict[str, Any], grace_s: int) -> dict[str, Any]:
    """The job with a grace period of its pods."""
    for of in (made["spec"]["leader"], *made["spec"]["workerSets"]):
        of["template"]["spec"]["terminationGracePeriodSeconds"] = grace_s
    return made


def uids(kube: KubeServer, name: str) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods_of(kube, name)}


def deleted(history: History) -> dict[str, set[int]]:
    """Pod name → the grace periods with which its deletion was asked for, without the kubelet's own confirmation."""
    found: dict[str, set[int]] = {}
    for event in history.events():
        grace = event.object["metadata"].get("deletionGracePeriodSeconds")
        if event.kind == "pod" and event.type == "MODIFIED" and grace:
            found.setdefault(event.name, set()).add(grace)
    return found


def message_has(kube: KubeServer, name: str, text: str) -> bool:
    return text in status_of(kube, name).get("message", "")


def gone(kube: KubeServer, *names: str) -> bool:
    """Whether none of the jobs has pods."""
    return not any(pods_of(kube, name) for name in names)


def condition(kube: KubeServer, name: str, kind: str) -> dict[str, str]:
    found: list[dict[str, str]] = status_of(kube, name).get("conditions", [])
    return next((one for one in found if one["type"] == kind), {})


def reasons(kube: KubeServer, name: str) -> list[str]:
    """The reasons of a job's Events."""
    events = kube.request("GET", "/api/v1/namespaces/default/events")[1]["items"]
    return [one["reason"] for one in events if one["involvedObject"]["name"] == name]


def test_surplus_goes_and_comes_back_while_the_job_runs_on(kube: KubeServer, history: History) -> None:
    apply(kube, patient(job("low", workers=7, least=3, priority=1), 40))
    await_stage(kube, "Running", "low")
    eventually("all are ready", lambda: status_of(kube, "low")["readyWorkers"] == 7)
    before = uids(kube, "low")
    apply(kube, job("high", workers=3, priority=9))
    await_stage(kube, "Running", "high")
    left = {f"low-actors-{index}" for index in range(3, 7)}
    assert deleted(history) == {name: {40} for name in left}, "the highest indices, with their own grace period"
    status = status_of(kube, "low")
    assert (status["stage"], status["attempt"], status["restarts"]) == ("Running", 0, 0)
    assert uids(kube, "low") == {name: uid for name, uid in before.items() if name not in left}
    assert condition(kube, "low", "Preempted") == {}
    kube.kubectl("delete", "tyj", "high")
    eventually("they are back", lambda: status_of(kube, "low")["readyWorkers"] == 7)
    status = status_of(kube, "low")
    assert (status["attempt"], status["restarts"], status["scheduleState"]) == (0, 0, "ScheduledSucceed")


def test_a_job_of_lower_priority_goes_as_a_whole_and_comes_back(kube: KubeServer, history: History) -> None:
    apply(kube, patient(job("low", workers=7, priority=1), 20))
    await_stage(kube, "Running", "low")
    before = uids(kube, "low")
    apply(kube, job("high", workers=3, priority=9))
    kube.kubectl("wait", "tyj/low", "--for=condition=Preempted", "--timeout=60s")
    told = condition(kube, "low", "Preempted")
    assert told["message"].startswith("preempted for job high of namespace default, which has priority 9")
    await_stage(kube, "Running", "high")
    assert deleted(history) == {name: {20} for name in before}
    assert status_of(kube, "low")["stage"] == "Rescheduling"
    kube.kubectl("delete", "tyj", "high")
    kube.kubectl("wait", "tyj/low", "--for=condition=Preempted=false", "--timeout=120s")
    await_stage(kube, "Running", "low")
    status = status_of(kube, "low")
    assert (status["attempt"], status["restarts"]) == (1, 0)
    eventually("both are told", lambda: "Preempted" in reasons(kube, "low"))


def test_a_queue_below_its_share_gets_it_back(kube: KubeServer, history: History) -> None:
    apply(kube, queue("one"), queue("other"))
    apply(kube, job("first", workers=3, queue="one"), job("second", workers=3, queue="one"))
    await_stage(kube, "Running", "first", "second")
    before = uids(kube, "first") | uids(kube, "second")
    apply(kube, job("entitled", workers=3, queue="other"))
    await_stage(kube, "Running", "entitled")
    victims = [name for name in ("first", "second") if condition(kube, name, "Preempted").get("status") == "True"]
    assert len(victims) == 1, "no more than is needed"
    assert "whose queue other is below its share" in condition(kube, victims[0], "Preempted")["message"]
    assert set(deleted(history)) == {name for name in before if name.startswith(victims[0])}
    kube.kubectl("delete", "tyj", "entitled")
    await_stage(kube, "Running", *victims)
    assert status_of(kube, victims[0])["restarts"] == 0


def test_small_jobs_that_never_stop_coming_do_not_keep_out_a_large_one(kube: KubeServer) -> None:
    """They end by themselves and aren't preemptible, so only a reservation helps. On a busy machine they run for longer
    than they would, but not for longer than expected: then the start would be unknown. None waits when the large one
    comes, or the first reservation would be for that one. The first runs for longer: if all ended in the same moment,
    the large one could start without having been promised anything."""
    number = 0

    def arrive() -> None:
        nonlocal number
        number += 1
        small = job(
            f"small-{number:03}", workers=0, run_s=20 if number == 1 else 5, priority=1, preemptible=False,
            expectedRuntimeSeconds=600, ttlSecondsAfterFinished=0,
        )  # fmt: skip
        kube.request("POST", TYJOBS, small)

    def busy() -> int:
        return sum(stage == "Running" for stage in stages(kube).values())

    for _ in range(8):
        arrive()
    eventually("the node is full", lambda: busy() >= 7)
    apply(kube, job("large", workers=7, priority=9))
    began_s, promised = time.monotonic(), ""
    while (status := status_of(kube, "large")).get("stage") != "Running":
        promised = promised or status.get("expectedStartTime", "")
        assert time.monotonic() - began_s < 120, status
        arrive()
        time.sleep(0.3)
    assert promised, "its start was told"
    late = datetime.fromisoformat(status["startTime"]) - datetime.fromisoformat(promised)
    assert late < timedelta(seconds=15), "no later than first promised, but for what a busy machine adds"
    assert number > 16, "they came all the time"
    assert any(stage in ("Pending", "") for stage in stages(kube).values())


def test_a_budget_holds_its_pods_until_it_allows_their_eviction(kube: KubeServer, history: History) -> None:
    apply(kube, job("low", workers=7, priority=1))
    await_stage(kube, "Running", "low")
    names = set(uids(kube, "low"))
    eventually("all are ready", lambda: status_of(kube, "low")["readyWorkers"] == 7)
    budget = {
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "team"},
        "spec": {"minAvailable": 8, "selector": {"matchLabels": {"arranger.dev/job": "low"}}},
    }  # fmt: skip
    kube.request("POST", BUDGETS, budget)
    counted = {
        "observedGeneration": 1,
        "expectedPods": 8,
        "currentHealthy": 8,
        "desiredHealthy": 8,
        "disruptionsAllowed": 0,
    }
    kube.request("PATCH", f"{BUDGETS}/team/status", {"status": counted}, content_type="application/merge-patch+json")
    apply(kube, job("high", workers=3, priority=9))
    for name in ("low", "high"):
        eventually(
            f"{name} is told", lambda name=name: "budget team needs 8" in status_of(kube, name).get("message", "")
        )
    assert deleted(history) == {}
    assert "eviction refused: Cannot evict pod" in status_of(kube, "high")["message"]
    eventually("an Event tells it too", lambda: "Preempting" in reasons(kube, "high"))
    kube.request("DELETE", f"{BUDGETS}/team")
    await_stage(kube, "Running", "high")
    assert set(deleted(history)) == names
    pods = [event.object for event in history.events() if event.kind == "pod"]
    conditions = [one for pod in pods for one in pod["status"].get("conditions", ())]
    targets = [one for one in conditions if one["type"] == "DisruptionTarget"]
    assert targets and {one["reason"] for one in targets} == {"EvictionByEvictionAPI"}
    assert "eviction refused" not in status_of(kube, "low")["message"]


def test_a_log_lost_during_a_preemption_changes_nothing_of_it(cluster: Cluster, kube: KubeServer) -> None:
    apply(kube, patient(job("low", workers=7, priority=1), 20))
    await_stage(kube, "Running", "low")
    apply(kube, job("high", workers=3, priority=9))
    kube.kubectl("wait", "tyj/low", "--for=condition=Preempted", "--timeout=60s")
    since = condition(kube, "low", "Preempted")["lastTransitionTime"]
    cluster.restart_without_log()
    await_stage(kube, "Running", "high")
    told = condition(kube, "low", "Preempted")
    assert (told["status"], told["lastTransitionTime"]) == ("True", since)
    assert told["message"].startswith("preempted for job high of namespace default, which has priority 9")
    kube.kubectl("delete", "tyj", "high")
    await_stage(kube, "Running", "low")
    cluster.restart_without_log()
    status = status_of(kube, "low")
    assert (status["stage"], status["attempt"], status["restarts"]) == ("Running", 1, 0)
    assert condition(kube, "low", "Preempted")["status"] == "False"


def test_processes_killed_during_a_preemption_disturb_nobody_else(
    cluster: Cluster, kube: KubeServer, history: History
) -> None:
    cluster.fleet.start(("controller", "applier"), ("scheduler", "watcher"), ("applier", "controller"))
    apply(kube, job("bystander", workers=1, priority=9))
    await_stage(kube, "Running", "bystander")
    kept = uids(kube, "bystander")
    for turn in range(3):
        apply(kube, job(f"low-{turn}", workers=4, least=2, priority=1))
        await_stage(kube, "Running", f"low-{turn}")
        apply(kube, job(f"high-{turn}", workers=5, priority=9))
        time.sleep(0.15 * turn)
        for worker in cluster.fleet.workers.values():
            worker.kill()
        for worker in cluster.fleet.workers.values():
            worker.start()
        await_stage(kube, "Running", f"high-{turn}")
        assert uids(kube, "bystander") == kept
        assert status_of(kube, f"low-{turn}")["restarts"] == 0
        kube.kubectl("delete", "tyj", f"high-{turn}", f"low-{turn}")
        eventually("they are gone", partial(gone, kube, f"low-{turn}", f"high-{turn}"))
    assert not any(name.startswith("bystander") for name in deleted(history))
    for worker in cluster.fleet.workers.values():
        worker.wait_ready()


def with_quota(kube: KubeServer) -> None:
    """A quota that wants limits of memory, as its controller shows it: the real server has none."""
    hard = {"limits.memory": "1Ti"}
    kube.request("POST", QUOTAS, {"metadata": {"name": "strict"}, "spec": {"hard": hard}})
    body = {"status": {"hard": hard, "used": {"limits.memory": "0"}}}
    kube.request("PATCH", f"{QUOTAS}/strict/status", body, content_type="application/merge-patch+json")


def told(kube: KubeServer, name: str, words: str) -> str:
    """The message of a job, once it has these words."""
    message: str = eventually(words, lambda: message_has(kube, name, words) and status_of(kube, name)["message"])
    return message


def test_nobody_is_preempted_for_a_job_whose_pods_the_api_server_refuses(kube: KubeServer) -> None:
    """A quota wants limits that its template lacks, until somebody removes the quota."""
    apply(kube, job("low", workers=7, priority=1))
    await_stage(kube, "Running", "low")
    before = uids(kube, "low")
    with_quota(kube)
    apply(kube, job("high", workers=3, priority=9))
    message = told(kube, "high", "nobody gives it room, because the API server refuses pods of learner in a dry run")
    assert "must specify limits.memory" in message
    time.sleep(3)
    assert uids(kube, "low") == before and condition(kube, "low", "Preempted") == {}
    kube.kubectl("delete", "resourcequota", "strict")
    kube.kubectl("patch", "tyj", "high", "--type=merge", "-p", '{"spec":{"priority":8}}')
    await_stage(kube, "Running", "high")
    assert condition(kube, "low", "Preempted")["status"] == "True"


def test_who_took_room_that_kubelets_refuse_takes_none_again(cluster: Cluster, kube: KubeServer) -> None:
    """All kubelets refuse its pods, each time that of one node: the first time is pardoned. The job that gave room runs
    again, and gives it twice."""
    apply(kube, job("low", workers=7, priority=1))
    await_stage(kube, "Running", "low")
    high = job("high", workers=3, priority=9)
    for of in (high["spec"]["leader"], *high["spec"]["workerSets"]):
        notes = of["template"].setdefault("metadata", {}).setdefault("annotations", {})
        notes["sandbox.arranger.dev/fail"] = "UnexpectedAdmissionError"
    apply(kube, high)
    message = told(kube, "high", "it took room from others in vain")
    assert "UnexpectedAdmissionError" in message and "takes no more until its spec" in message
    await_stage(kube, "Running", "low")
    time.sleep(25)
    status = status_of(kube, "low")
    assert (status["stage"], status["attempt"]) == ("Running", 2)
    listed = arranger("preemptions", "--log", cluster.redis_url, "-o", "json").stdout
    assert [one["in_vain"] for one in json.loads(listed)["preemptions"]] == ["LeaderEvicted"] * 2
