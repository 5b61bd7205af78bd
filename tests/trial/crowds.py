"""Row E2: many waiting jobs of one namespace beside another one whose jobs stream: each soon says why it waits."""

import time
from collections.abc import Mapping

from arranger.sandbox.nodes import NodeTemplate
from tests.e2e.harness import eventually, job
from tests.trial.forged import stage
from tests.trial.scene import Lab, Scene, scene, within
from tests.trial.streams import Programs, Stream, create, percentile
from tests.trial.verdicts import Verdict

NODES = 4
#: Each node has this many CPUs and holds one job for good, so that none of the crowd fits on any.
CPU, HELD_CPU, CROWD_CPU = 32, 20, 16
#: Each job's first reason comes within this time.
TOLD_S = 10.0


def waiting_crowd(
    lab: Lab,
    *,
    jobs: int = 300,
    every_s: float = 1.0,
    patience_s: float = 120.0,
    settings: Mapping[str, object] | None = None,
    timed: bool = True,
) -> Verdict:
    """Create `jobs` that don't fit while another tenant creates a job every `every_s` seconds, and measure how long
    each of them has no status with a message. If not `timed`, they all must have one within `patience_s`."""
    found = Verdict("E2", "waiting jobs beside a stream")
    nodes = [NodeTemplate(f"node-{number}", cpu=str(CPU)) for number in range(NODES)]
    with scene(lab, nodes=nodes, settings=settings) as there:
        there.namespace("tenant-o")
        there.namespace("tenant-w")
        there.start()
        holders = [f"holds-{number}" for number in range(NODES)]
        for name in holders:
            create(lab.kube, "default", job(name, workers=0, cpu=str(HELD_CPU)))
        eventually("they run", lambda: all(stage(there, name) == "Running" for name in holders))
        with Programs(lab.kube, there.history, work_s=0.5, spare=frozenset({"default", "tenant-w"})):
            stream = Stream(
                lab.kube, "tenant-o", lambda name: job(name, workers=1), every_s=every_s, pods=2, prefix="o"
            ).start()
            time.sleep(5 * every_s)
            asked = {}
            for number in range(jobs):
                name = f"w{number:03}"
                asked[name] = time.monotonic()
                create(lab.kube, "tenant-w", job(name, workers=0, cpu=str(CROWD_CPU)))
            within(lambda: asked.keys() <= _told(there).keys(), within_s=patience_s, every_s=0.5)
            stream.stop()
            within(lambda: all(wait.whole_s for wait in stream.waits(there.history)), within_s=30)
        told, now_s = _told(there), time.monotonic()
        took = [told.get(name, now_s) - asked_s for name, asked_s in asked.items()]
        waits = [wait.lasted_s(now_s) for wait in stream.waits(there.history)]
        found.told(
            jobs=jobs, first_p50_s=percentile(took, 50), first_longest_s=max(took), stream_jobs=len(waits),
            stream_p50_s=percentile(waits, 50), stream_p99_s=percentile(waits, 99),
        )  # fmt: skip
        found.expect(asked.keys() <= told.keys(), f"{len(asked.keys() - told.keys())} waiting jobs were never told why")
        found.expect(all(wait.whole_s for wait in stream.waits(there.history)), "the stream's jobs didn't all start")
        if timed:
            late = [one for one in took if one > TOLD_S]
            found.expect(not late, f"{len(late)} jobs had no reason within {TOLD_S:.0f} s")
        found.faults += there.tracebacks()
    return found


def _told(there: Scene) -> dict[str, float]:
    """When each job of the crowd had its first status with a message."""
    first: dict[str, float] = {}
    for event in there.history.since(0):
        of_crowd = event.kind == "job" and event.object["metadata"]["namespace"] == "tenant-w"
        if of_crowd and (event.object.get("status") or {}).get("message"):
            first.setdefault(event.name, event.at)
    return first
