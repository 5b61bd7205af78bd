"""Row M: a distant Redis, and an unreachable API server: how long jobs take, and how many requests fail."""

import time
from collections.abc import Mapping

from arranger.sandbox.nodes import NodeTemplate
from tests.e2e.harness import eventually, finish_leader, job
from tests.trial.faults import Wire
from tests.trial.forged import stage
from tests.trial.scene import Lab, scene, within
from tests.trial.streams import Programs, Stream, create, percentile
from tests.trial.verdicts import Verdict

NODES = [NodeTemplate(f"node-{number}", cpu="32") for number in range(4)]
#: The maximum median time from a job's creation to its last pod, with round trips of half a second.
FAR_P50_S = 4.0
#: The maximum number of failed requests per second, of all effects, after some retries.
IN_VAIN_A_SECOND = 3.0


def redis_far(
    lab: Lab,
    *,
    one_way_s: float = 0.25,
    jobs: int = 30,
    every_s: float = 2.0,
    settings: Mapping[str, object] | None = None,
    timed: bool = True,
) -> Verdict:
    """Delay every byte to and from Redis by `one_way_s`. If not `timed`, the jobs only have to start."""
    found = Verdict("M", "Redis far away")
    with scene(lab, nodes=NODES, settings=settings, slow_redis_s=one_way_s) as there:
        there.start()
        with Programs(lab.kube, there.history, work_s=0.5):
            stream = Stream(lab.kube, "default", lambda name: job(name, workers=2), every_s=every_s, pods=3, prefix="s")
            stream.start()
            eventually("so many were asked for", lambda: len(stream.asked) >= jobs, within_s=600)
            stream.stop()
            within(lambda: all(wait.whole_s for wait in stream.waits(there.history)), within_s=90)
        waits = stream.waits(there.history)
        lasted = [wait.lasted_s(time.monotonic()) for wait in waits]
        found.told(one_way_s=one_way_s, jobs=len(waits), p50_s=percentile(lasted, 50), p99_s=percentile(lasted, 99))
        found.expect(all(wait.whole_s for wait in waits), "not every job got its pods")
        if timed:
            found.expect(percentile(lasted, 50) <= FAR_P50_S, f"p50 is more than {FAR_P50_S:.0f} s")
        found.faults += there.tracebacks()
    return found


def api_gone(
    lab: Lab,
    *,
    jobs: int = 20,
    first_s: float = 15.0,
    then_s: float = 45.0,
    settings: Mapping[str, object] | None = None,
) -> Verdict:
    """Cut the appliers' connections to the API server while all jobs end, and count their attempts, early and late."""
    found = Verdict("M", "API server gone")
    with (
        Wire(lab.kube.port) as wire,
        scene(lab, nodes=NODES, settings=settings) as there,
    ):
        there.start("watcher", "decider")
        there.start("applier", api_url=wire.url("https"))
        names = [f"job-{number:02}" for number in range(jobs)]
        for name in names:
            create(lab.kube, "default", job(name, workers=1))
        eventually("they run", lambda: all(stage(there, name) == "Running" for name in names))
        wire.cut()
        for name in names:
            finish_leader(lab.kube, name)
        tried = [wire.turned_away]
        for for_s in (first_s, then_s):
            time.sleep(for_s)
            tried.append(wire.turned_away)
        wire.mend()
        ended = within(lambda: all(stage(there, name) == "Succeeded" for name in names), within_s=90)
        later = (tried[2] - tried[1]) / then_s
        found.told(jobs=jobs, first_a_second=(tried[1] - tried[0]) / first_s, later_a_second=later)
        found.expect(
            later <= IN_VAIN_A_SECOND, f"{later:.1f} requests in vain a second, {first_s:.0f} s after the first"
        )
        found.expect(bool(ended), "not every job came to its end afterwards")
    return found
