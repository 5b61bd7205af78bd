"""Row D: a process of another Kubernetes cluster with the same name and the same Redis does no harm to ours."""

import json
import time
from collections.abc import Mapping

from arranger.sandbox.nodes import NodeTemplate
from tests.e2e.harness import epoch_of, eventually, job, kubelets
from tests.servers import real_kube
from tests.trial.forged import stage
from tests.trial.readings import log_events
from tests.trial.scene import Lab, grant, scene, within
from tests.trial.streams import create
from tests.trial.verdicts import Verdict

NODES = [NodeTemplate(f"node-{number}", cpu="32") for number in range(4)]


def another_cluster(
    lab: Lab, *, jobs: int = 11, stays_s: float = 60.0, settings: Mapping[str, object] | None = None
) -> Verdict:
    """Start another cluster's watcher, decider and applier in turn, while ours run and after ours have stopped."""
    found = Verdict("D", "another cluster's processes under the same name")
    with real_kube() as other, scene(lab, nodes=NODES, settings=settings) as there:
        other.install_crd()
        grant(other, lab.code)
        ours = there.start()
        names = [f"ours-{number:02}" for number in range(jobs)]
        for name in names:
            create(lab.kube, "default", job(name, workers=3))
        eventually("ours run", lambda: all(stage(there, name) == "Running" for name in names))
        epoch, offset = epoch_of(there.redis), max(event.offset for event in log_events(there))
        with kubelets(other, NodeTemplate("strange-0", cpu="32")):
            strangers = there.start("watcher", "applier", wait=False, kube=other)
            # Our processes stop, as when they move to other nodes, so that any other process may take over.
            time.sleep(stays_s / 2)
            ours[0].kill()
            time.sleep(stays_s / 2)
            ours[0].start()
            spoke = [_spoke(worker) for worker in strangers]
            ready = [worker.name for worker in strangers if worker.running and worker.ready]
            pids = [f"-{worker.pid}-" for worker in strangers]
            for worker in strangers:
                worker.close()
            strange = [node["metadata"]["name"] for node in other.request("GET", "/api/v1/nodes")[1]["items"]]
        events = [event for event in log_events(there) if event.offset > offset]
        theirs = [event for event in events if any(pid in event.writer for pid in pids)]
        there.wait_ready()
        left = within(lambda: all(stage(there, name) == "Running" for name in names), within_s=30)
        there.history.stop()
        deleted = [event.name for event in there.history.events() if event.kind == "pod" and event.type == "DELETED"]
        found.told(
            pods=4 * jobs, deleted=len(deleted), written=len(theirs), ready=len(ready), said=sum(spoke),
            new_epoch=epoch_of(there.redis) != epoch,
        )  # fmt: skip
        found.expect(not deleted, f"{len(deleted)} of our pods were deleted")
        found.expect(not theirs, f"{len(theirs)} events of the other cluster's processes are in the log")
        found.expect(not ready, f"the other cluster's processes are ready: {ready}")
        found.expect(all(spoke), "the other cluster's processes don't say what is wrong")
        found.expect(bool(left), "our jobs don't run on")
        found.expect(epoch_of(there.redis) == epoch, "a new epoch began")
        found.expect(strange == ["strange-0"], "the other cluster's nodes aren't what they were")
    return found


def _spoke(worker: object) -> bool:
    """Whether a process named the other cluster in a warning or in its last error."""
    lines = worker.log()  # type: ignore[attr-defined]
    return any("cluster" in json.dumps(line).lower() and line.get("level") != "info" for line in lines)
