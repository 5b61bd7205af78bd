"""Row J: jobs whose leaders fail at once start again with back-off, and other jobs aren't affected."""

import time
from collections.abc import Mapping

from arranger.sandbox.nodes import NodeTemplate
from tests.e2e.harness import job, pod_template
from tests.trial.refused import span
from tests.trial.scene import Lab, Scene, scene, within
from tests.trial.streams import Job, Programs, Stream, create, percentile
from tests.trial.verdicts import Verdict

#: The first back-off before another attempt; it doubles each time.
LEAST_S = 10.0


def failing_leaders(
    lab: Lab,
    *,
    jobs: int = 20,
    alone_s: float = 40.0,
    beside_s: float = 150.0,
    every_s: float = 0.4,
    settings: Mapping[str, object] | None = None,
    timed: bool = True,
) -> Verdict:
    """Run tenant o's stream alone, then beside jobs with failing leaders. If not `timed`, only count attempts."""
    found = Verdict("J", "leaders that fail at once")
    nodes = [NodeTemplate(f"node-{number}", cpu="64") for number in range(4)]
    with scene(lab, nodes=nodes, settings=settings) as there:
        there.namespace("tenant-o")
        there.namespace("tenant-f")
        there.start()
        with Programs(lab.kube, there.history, work_s=0.5, spare=frozenset({"tenant-f"})):
            stream = Stream(
                lab.kube, "tenant-o", lambda name: job(name, workers=1), every_s=every_s, pods=2, prefix="o"
            ).start()
            alone: list[tuple[float, float]] = []
            beside: list[tuple[float, float]] = []
            with span(alone):
                time.sleep(alone_s)
            with span(beside):
                for number in range(jobs):
                    create(lab.kube, "tenant-f", failing(f"f{number:02}"))
                time.sleep(beside_s)
            stream.stop()
            within(lambda: all(wait.whole_s for wait in stream.waits(there.history)), within_s=30)
        _judge(there, found, stream, {"alone": alone, "beside": beside}, jobs=jobs, timed=timed)
        found.faults += there.tracebacks()
    return found


def failing(name: str) -> Job:
    """A job whose leader fails right after its start, with a high restart limit."""
    made = job(name, workers=1, restartLimit=1000)
    template = pod_template(run_s=0.1, exit_code=1)
    template["spec"]["restartPolicy"] = "Never"
    made["spec"]["leader"]["template"] = template
    return made


def _judge(
    there: Scene,
    found: Verdict,
    stream: Stream,
    spans: dict[str, list[tuple[float, float]]],
    *,
    jobs: int,
    timed: bool,
) -> None:
    waits = stream.waits(there.history)
    middle = {}
    for kind, ((begin, end),) in spans.items():
        lasted = [wait.lasted_s(time.monotonic()) for wait in waits if begin <= wait.asked_s < end]
        middle[kind] = percentile(lasted, 50)
        found.told(**{f"{kind}_p50_s": middle[kind], f"{kind}_p99_s": percentile(lasted, 99)})
    ((begin, end),) = spans["beside"]
    attempts = [
        event
        for event in there.history.created()
        if event.object["metadata"]["namespace"] == "tenant-f"
        and (event.object["metadata"].get("labels") or {}).get("arranger.dev/role") == "leader"
        and event.at < end
    ]
    allowed = jobs * most_attempts(end - begin)
    found.told(
        failing=jobs, attempts=len(attempts), allowed=allowed, attempts_a_minute=60 * len(attempts) / (end - begin)
    )
    found.expect(len(attempts) <= allowed, f"{len(attempts)} attempts in {end - begin:.0f} s: without back-off")
    found.expect(not [wait for wait in waits if wait.whole_s is None], "jobs of tenant o never got their pods")
    if timed:
        found.expect(middle["beside"] <= 2 * middle["alone"], "tenant o's p50 more than doubled")


def most_attempts(within_s: float) -> int:
    """The number of attempts of one job in that time if the back-off doubles each time, plus one."""
    attempts, pause_s, spent_s = 1, LEAST_S, 0.0
    while spent_s + pause_s <= within_s:
        attempts, spent_s, pause_s = attempts + 1, spent_s + pause_s, 2 * pause_s
    return attempts + 1
