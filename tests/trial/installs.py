"""Row E1: a second installation on our cluster does no harm, says who works there, and takes over on purpose."""

import json
import time
from collections import Counter
from collections.abc import Mapping
from functools import partial

from arranger.sandbox.nodes import NodeTemplate
from tests.e2e.harness import Worker, epoch_of, job
from tests.servers import MERGE
from tests.trial.pauses import streamed
from tests.trial.scene import Lab, Scene, scene, within
from tests.trial.streams import Programs, Stream, create, percentile
from tests.trial.verdicts import Verdict

NODES = [NodeTemplate(f"node-{number}", cpu="32") for number in range(4)]
_RUNS = ("Running", "Succeeded")
_CANARY = {"ARRANGER_CLUSTER": "canary"}
_LENGTH = ("XLEN", "arranger:{canary}:log")


def two_installations(
    lab: Lab, *, alone_s: float = 30.0, beside_s: float = 120.0, every_s: float = 1.0,
    settings: Mapping[str, object] | None = None, timed: bool = True,
) -> Verdict:  # fmt: skip
    """Start a second installation under another name beside ours, which has a job a second; then hand over to it."""
    found = Verdict("E1", "two installations on one cluster")
    with scene(lab, nodes=NODES, settings=settings) as there, Programs(lab.kube, there.history):
        ours = there.start()
        epoch = epoch_of(there.redis)
        stream = Stream(lab.kube, "default", partial(streamed, ttl_s=600), every_s=every_s, pods=2, prefix="s").start()
        time.sleep(alone_s)
        began_s = time.monotonic()
        second = there.start(wait=False, environment=_CANARY)
        time.sleep(beside_s)
        ready = [worker.name for worker in second if worker.running and worker.ready]
        told = [worker.name for worker in second if _tells(worker, f"default@{epoch}")]
        written = int(there.redis.command(*_LENGTH).strip().removeprefix(b":") or 0)
        said = json.dumps(_status(there, "canary"))
        stream.stop()
        waits = stream.waits(there.history)
        until_s = time.monotonic()
        alone, beside = (
            percentile([one.lasted_s(until_s) for one in waits if (one.asked_s < began_s) == before], 50)
            for before in (True, False)
        )
        attempts = sum(
            int(event.object.get("status", {}).get("attempt", 0) > 0)
            for event in there.history.events()
            if event.kind == "job"
        )
        most = _most_on_a_node(there)
        same = epoch_of(there.redis) == epoch

        create(lab.kube, "default", job("stays", workers=1))
        within(lambda: _stage(there, "stays") in _RUNS, within_s=60)
        _hand_over(lab, "canary")
        took_s = time.monotonic()
        over = within(lambda: all(worker.ready for worker in second), within_s=180)
        took_s = time.monotonic() - took_s
        create(lab.kube, "default", job("after", workers=1))
        after = within(lambda: _stage(there, "after") in _RUNS, within_s=60)
        stays = _stage(there, "stays") in _RUNS
        gone = within(lambda: not any(worker.ready for worker in ours), within_s=30)
        found.told(
            jobs=len(waits), p50_alone_s=alone, p50_beside_s=beside, entries_of_second=written,
            said=len(told), handed_over_s=took_s, most_cpu_on_a_node=most, attempts=attempts,
        )  # fmt: skip
        found.expect(same, "a new epoch began because of the other's statuses")
        found.expect(written <= 1, f"the second installation wrote {written} entries to its log")
        found.expect(not ready, f"processes of the second installation are ready: {ready}")
        found.expect(len(told) == len(second), f"only {told} say who holds the cluster")
        found.expect("holds its Kubernetes cluster" in said, "status of the second doesn't say who holds the cluster")
        found.expect(most <= 32, f"a node has pods of {most} of 32 cpu")
        found.expect(not attempts, f"{attempts} statuses show another attempt")
        found.expect(not timed or beside < 2 * alone + 0.5, f"p50 is {beside:.2f} s instead of {alone:.2f} s")
        found.expect(bool(over), "the second installation doesn't take over")
        found.expect(bool(after) and stays, "after the hand-over, jobs don't run on or don't start")
        found.expect(bool(gone), "the first installation's processes are ready after the hand-over")
    return found


def _tells(worker: Worker, words: str) -> bool:
    code, said = worker.get("/readyz")
    return code == 503 and words in said


def _status(there: Scene, cluster: str) -> object:
    done = there.arranger("status", "--cluster", cluster, "--output", "json")
    return json.loads(done.stdout or "{}")


def _stage(there: Scene, name: str) -> str:
    path = f"/apis/arranger.dev/v1/namespaces/default/tyjobs/{name}"
    return str(there.kube.request("GET", path, check=False)[1].get("status", {}).get("stage", ""))


def _hand_over(lab: Lab, to: str) -> None:
    """As an administrator does: `arranger hand-over --to` with the rights of the kubeconfig."""
    path = "/apis/arranger.dev/v1/clusterlogs/arranger"
    stored = lab.kube.request("GET", path)[1]
    (holder,) = stored["holders"]
    body = {"metadata": {"resourceVersion": stored["metadata"]["resourceVersion"]}}
    body["holders"] = [{**holder, "handOverTo": to}]
    lab.kube.request("PATCH", path, body, content_type=MERGE)


def _most_on_a_node(there: Scene) -> int:
    """The most cpu that the pods of a node requested at once, by the record."""
    on: dict[str, str] = {}
    most = 0
    for event in there.history.events():
        if event.kind != "pod":
            continue
        uid, spec, phase = event.object["metadata"]["uid"], event.object["spec"], event.object["status"].get("phase")
        if event.type == "DELETED" or phase in ("Succeeded", "Failed"):
            on.pop(uid, None)
        elif spec.get("nodeName"):
            on[uid] = spec["nodeName"]
            most = max(most, Counter(on.values()).most_common(1)[0][1])
    return most
