"""Row B1: one waiting gang doesn't idle the cluster: jobs behind it are guests in its room, until it can start."""

import time
from collections.abc import Mapping
from typing import Any

from arranger.sandbox.nodes import NodeTemplate
from tests.e2e.harness import eventually, finish_leader, job
from tests.trial.forged import stage
from tests.trial.readings import listed
from tests.trial.scene import Lab, Scene, scene, within
from tests.trial.streams import Job, create
from tests.trial.verdicts import Verdict

NODES, GPUS = 4, 8
GPU = "nvidia.com/gpu"


def guests(
    lab: Lab,
    *,
    stays_s: float = 20.0,
    patience_s: float = 60.0,
    settings: Mapping[str, object] | None = None,
) -> Verdict:
    """`runs` has one GPU, `big` waits for all, and jobs of one GPU come behind it: they use every GPU, are told that
    the room is another's, and leave once `runs` has ended. One that may not be disturbed waits."""
    found = Verdict("B1", "guests in the room of a gang")
    nodes = [NodeTemplate(f"node-{number}", cpu="64", gpus=GPUS) for number in range(NODES)]
    spare = NODES * GPUS - 1
    with scene(lab, nodes=nodes, settings=settings) as there:
        there.start()
        create(lab.kube, "default", of_gpus("runs", 1))
        eventually("it runs", lambda: stage(there, "runs") == "Running")
        create(lab.kube, "default", of_gpus("big", GPUS, pods=NODES))
        eventually("it waits", lambda: _status(there, "big").get("message"))
        time.sleep(1.1)  # times of creation are whole seconds: the others come behind it
        create(lab.kube, "default", of_gpus("stays-out", 1, preemptible=False))
        behind = [f"guest-{number:02}" for number in range(spare)]
        asked_s = time.monotonic()
        for name in behind:
            create(lab.kube, "default", of_gpus(name, 1))
        full = within(lambda: _used(there) == NODES * GPUS, within_s=patience_s)
        full_s = time.monotonic() - asked_s
        told = within(lambda: all(_is_guest(there, name) for name in behind), within_s=10.0)
        time.sleep(stays_s)
        least = _used(there)
        found.expect(bool(full), f"only {least} of {NODES * GPUS} GPUs are used beside a waiting gang")
        found.expect(least == NODES * GPUS, f"later only {least} GPUs are used")
        untold = [name for name in behind if not _is_guest(there, name)]
        found.expect(bool(told), f"guests aren't told: {untold}")
        found.expect(stage(there, "stays-out") == "Pending", "a job that may not be disturbed is a guest")
        finish_leader(lab.kube, "runs")
        ended_s = time.monotonic()
        started = within(lambda: stage(there, "big") == "Running", within_s=patience_s)
        found.told(guests=spare, full_s=full_s, started_s=time.monotonic() - ended_s, gpus_used=least)
        found.expect(bool(started), f"the gang didn't start: {_status(there, 'big').get('message')}")
        restarts = [name for name in behind if _status(there, name).get("restarts")]
        found.expect(not restarts, f"the guests' leave was counted as a restart: {restarts[:3]}")
        if not started:
            return found
        finish_leader(lab.kube, "big")
        again = within(lambda: _used(there) == NODES * GPUS, within_s=patience_s)
        found.expect(bool(again), "the guests didn't come back after the gang")
        found.faults += there.tracebacks()
    return found


def of_gpus(name: str, gpus: int, *, pods: int = 1, **spec: Any) -> Job:
    """A job of a leader and equal workers, with so many GPUs for each pod."""
    made = job(name, workers=pods - 1, **spec)
    templates = [made["spec"]["leader"], *made["spec"]["workerSets"]]
    for of in templates:
        resources = of["template"]["spec"]["containers"][0]["resources"]
        resources["requests"][GPU] = str(gpus)
        resources["limits"] = {GPU: str(gpus)}
    return made


def _status(there: Scene, name: str) -> dict[str, Any]:
    path = f"/apis/arranger.dev/v1/namespaces/default/tyjobs/{name}"
    found: dict[str, Any] = there.kube.request("GET", path)[1].get("status") or {}
    return found


def _is_guest(there: Scene, name: str) -> bool:
    conditions = _status(there, name).get("conditions") or []
    return any(one["type"] == "Guest" and one["status"] == "True" for one in conditions)


def _used(there: Scene) -> int:
    """The GPUs of all pods that run."""
    return sum(
        int(container["resources"].get("requests", {}).get(GPU, "0"))
        for pod in listed(there, "/api/v1/pods")
        if pod["status"].get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")
        for container in pod["spec"]["containers"]
    )
