"""Row A: tenants whose pods the API server refuses (pod security, a quota) beside a tenant whose jobs stream.

The refused jobs request all nodes. They may use nodes for some seconds, retry with back-off, and report the reason. The
other tenant's jobs must not wait for them.
"""

import contextlib
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from arranger.sandbox.nodes import NodeTemplate
from tests.e2e.harness import job
from tests.servers import MERGE, RealKube
from tests.trial.scene import RESTRICTED, Lab, Scene, scene, within
from tests.trial.streams import Programs, Stream, Wait, create, percentile, tyjobs
from tests.trial.verdicts import Verdict

NODES = 8
CPU = 16
#: All pods are alike, so placements of refused jobs block other jobs: five pods per node, forty in all.
POD_CPU = 3
#: The number of two-pod jobs of each refused tenant: more than there is room for.
REFUSED_JOBS = 12
#: The other tenant's jobs may wait this long before the trial reports a standstill; much less than `quorum_grace_s`.
STANDSTILL_S = 60.0
#: The back-off that 7-jobs.md promises: the minimum between two attempts, doubling up to the maximum.
LEAST_S, MOST_S = 10.0, 300.0


def refused_tenants(
    lab: Lab,
    *,
    alone_s: float = 60.0,
    beside_s: float = 180.0,
    rounds: int = 2,
    every_s: float = 0.4,
    settings: Mapping[str, object] | None = None,
    held_s: float = 10.0,
    timed: bool = True,
) -> Verdict:
    """Measure the waits of tenant o's jobs with and without tenants x (pod security) and q (a quota).

    A refused job may use nodes for `held_s` at a time. If not `timed`, o's jobs may take any time, but they all must
    start while refused jobs exist.
    """
    found = Verdict("A", "refused tenants beside another")
    with scene(lab, nodes=[NodeTemplate(f"node-{n}", cpu=str(CPU)) for n in range(NODES)], settings=settings) as there:
        tenants(there)
        there.start()
        with (
            quota_controller(lab.kube, "tenant-q"),
            Programs(lab.kube, there.history, work_s=0.5, spare=frozenset({"tenant-x", "tenant-q"})),
        ):
            stream = Stream(
                lab.kube,
                "tenant-o",
                lambda name: job(name, workers=1, cpu=str(POD_CPU)),
                every_s=every_s,
                pods=2,
                prefix="o",
            ).start()
            spans = {"alone": list[tuple[float, float]](), "beside": list[tuple[float, float]]()}
            told = dict[str, set[str]]()
            for number in range(rounds):
                with span(spans["alone"]):
                    time.sleep(alone_s)
                with span(spans["beside"]):
                    told = refusals(there, found, stream, number, beside_s)
            stream.stop()
            within(lambda: not waiting(there, stream), within_s=20)
            judged(there, found, stream, spans, held_s=held_s, timed=timed)
        told_why(found, told)
        found.faults += there.tracebacks()
    return found


@contextlib.contextmanager
def span(into: list[tuple[float, float]]) -> Iterator[None]:
    """Append the beginning and end of the `with` block."""
    began_s = time.monotonic()
    yield
    into.append((began_s, time.monotonic()))


def tenants(there: Scene) -> None:
    """Create the three namespaces. No controller manager runs here, so the trial sets the use of the quota."""
    there.namespace("tenant-o")
    there.namespace("tenant-x", **{RESTRICTED: "restricted"})
    there.namespace("tenant-q")
    # The quota admits a leader, but not its worker.
    hard = {"requests.cpu": str(POD_CPU + 1), "pods": "20"}
    quota = {"metadata": {"name": "room"}, "spec": {"hard": hard}}
    path = "/api/v1/namespaces/tenant-q/resourcequotas"
    there.kube.request("POST", path, quota)
    status = {"status": {"hard": hard, "used": {"requests.cpu": "0", "pods": "0"}}}
    there.kube.request("PATCH", f"{path}/room/status", status, content_type=MERGE)


@contextlib.contextmanager
def quota_controller(kube: RealKube, namespace: str) -> Iterator[None]:
    """Update `status.used` of the namespace's quotas, as the quota controller does for deleted pods."""
    stopping = threading.Event()

    def keep() -> None:
        while not stopping.wait(0.5):
            with contextlib.suppress(OSError):
                count_usage(kube, namespace)

    thread = threading.Thread(target=keep, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


def count_usage(kube: RealKube, namespace: str) -> None:
    """Write the use by the namespace's pods into its quota, unless it is already there."""
    path = f"/api/v1/namespaces/{namespace}"
    (quota,) = kube.request("GET", f"{path}/resourcequotas")[1]["items"]
    pods = [pod for pod in kube.request("GET", f"{path}/pods")[1]["items"] if live(pod)]
    cpu = sum(int(c["resources"]["requests"]["cpu"]) for pod in pods for c in pod["spec"]["containers"])
    used = {"requests.cpu": str(cpu), "pods": str(len(pods))}
    if quota["status"].get("used") != used:
        version = {"resourceVersion": quota["metadata"]["resourceVersion"]}
        body = {"metadata": version, "status": {"used": used}}
        kube.request("PATCH", f"{path}/resourcequotas/room/status", body, content_type=MERGE, check=False)


def live(pod: dict[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")


def refusals(there: Scene, found: Verdict, stream: Stream, number: int, lasts_s: float) -> dict[str, set[str]]:
    """Create the jobs of both tenants, which request more than all nodes, for a while. Returns their last messages."""
    names = [(f"tenant-{of}", f"{of}{number}{index}") for index in range(REFUSED_JOBS) for of in "xq"]
    for namespace, name in names:
        create(there.kube, namespace, job(name, workers=1, cpu=str(POD_CPU)))
    time.sleep(lasts_s)
    asked = set(stream.asked)
    started = within(lambda: not asked & waiting(there, stream), within_s=STANDSTILL_S, every_s=0.5)
    found.expect(bool(started), f"{len(asked & waiting(there, stream))} jobs of tenant o waited for the refused to go")
    told: dict[str, set[str]] = defaultdict(set)
    for namespace, name in names:
        path = f"{tyjobs(namespace)}/{name}"
        told[namespace].add((there.kube.request("GET", path)[1].get("status") or {}).get("message", ""))
        there.kube.request("DELETE", path)
    return told


def waiting(there: Scene, stream: Stream) -> set[str]:
    """The jobs whose pods don't all exist."""
    return {wait.name for wait in stream.waits(there.history) if wait.whole_s is None}


def judged(
    there: Scene,
    found: Verdict,
    stream: Stream,
    spans: dict[str, list[tuple[float, float]]],
    *,
    held_s: float,
    timed: bool,
) -> None:
    """Judge how long o's jobs took in each kind of span, and how long refused jobs used nodes meanwhile."""
    there.history.stop()
    waits = stream.waits(there.history)
    late = {}
    for kind, of_kind in spans.items():
        lasted = [wait for wait in waits if any(begin <= wait.asked_s < end for begin, end in of_kind)]
        late[kind] = percentile([wait.lasted_s(time.monotonic()) for wait in lasted], 99)
        found.told(**{
            f"{kind}_jobs": len(lasted),
            f"{kind}_p50_s": percentile([wait.lasted_s(time.monotonic()) for wait in lasted], 50),
            f"{kind}_p99_s": late[kind],
        })  # fmt: skip
    never = [wait.name for wait in waits if wait.whole_s is None]
    found.told(never_started=len(never))
    found.expect(not never, f"{len(never)} jobs of tenant o never got their pods: {never[:5]}")
    stuck = stuck_s(waits, spans["beside"])
    found.told(longest_standstill_s=stuck)
    if timed:
        found.expect(late["beside"] <= 2 * late["alone"], "tenant o's p99 more than doubled")
    longest_s, attempts, hasty = held(there)
    found.told(held_s=longest_s, attempts=attempts)
    found.expect(longest_s <= held_s, f"a refused job held nodes for {longest_s:.0f} s at a time")
    found.faults += hasty


def stuck_s(waits: list[Wait], spans: list[tuple[float, float]]) -> float:
    """The longest part of a span in which no job got its pods."""
    longest = 0.0
    for begin, end in spans:
        moments = sorted(wait.whole_s for wait in waits if wait.whole_s is not None and begin < wait.whole_s < end)
        longest = max(longest, *(b - a for a, b in zip([begin, *moments], [*moments, end], strict=True)))
    return longest


def held(there: Scene) -> tuple[float, int, list[str]]:
    """The longest time in which a refused job's status named nodes, the number of such times, and early retries."""
    since: dict[str, float] = {}
    ended: dict[str, list[float]] = defaultdict(list)
    longest, attempts, hasty = 0.0, 0, []
    for event in there.history.since(0):
        if event.kind != "job" or event.object["metadata"]["namespace"] not in ("tenant-x", "tenant-q"):
            continue
        name = event.name
        holds = bool((event.object.get("status") or {}).get("allocations")) and event.type != "DELETED"
        if holds and name not in since:
            since[name] = event.at
            attempts += 1
            wait_s = min(MOST_S, LEAST_S * 2 ** (len(ended[name]) - 1))
            # On a busy machine, the watch of statuses may be late.
            if ended[name] and event.at - ended[name][-1] < 0.7 * wait_s:
                hasty.append(f"{name} came back {event.at - ended[name][-1]:.1f} s after its nodes were given up")
        elif not holds and name in since:
            longest = max(longest, event.at - since.pop(name))
            ended[name].append(event.at)
    return longest, attempts, hasty


def told_why(found: Verdict, told: Mapping[str, set[str]]) -> None:
    """Check that the statuses of the refused jobs name the reason of the refusal."""
    reasons: dict[str, Callable[[str], bool]] = {
        "tenant-x": lambda text: "podsecurity" in text.lower().replace(" ", ""),
        "tenant-q": lambda text: "quota" in text.lower(),
    }
    for namespace, names in reasons.items():
        # A job without room, because of other refused jobs, reports that instead.
        found.expect(any(map(names, told[namespace])), f"{namespace} isn't told why: {sorted(told[namespace])[:2]}")
