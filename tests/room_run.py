"""The run that docs/fairness.md describes: `python -m tests.room_run FILE` repeats it and keeps its log.

Three nodes of 4 GPUs under `arranger demo --keep`, with real workers and real kubectl, and the queues `research` and
`serving`. In the first half, room is taken back in each way. `explore` is elastic. `fix`, of a higher priority, gets
its surplus; `hotfix` needs more and gets the nodes of `train`, which has just saved its work, and would lose more than
`explore` otherwise; and `answer`, of the other queue, gets what research has above its share. In the second half,
`wide` needs all nodes and has a reservation. `notes` is ended by a deadline in time and goes before it. Of two jobs
without one, `endless` may not be preempted and waits, and `guest` uses the reserved room until `wide` can start.

It needs kubectl, on the PATH or in KUBEBUILDER_ASSETS, and about two minutes. The committed log is from such a run.
Another run has other offsets, so the points in the document must then be changed, and `python -m
tests.debugging_document` rewrites its blocks.
"""

import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.debugging_run import Story, run, tyjob


def job(name: str, *, queue: str, pods: int, least: int = 0, priority: int = 3, **times: int) -> dict[str, Any]:
    """A job of so many pods of 1 GPU, of which `least` (0: all) are its quorum. `runs` is when its leader ends,
    `expects` what it says of that, and `deadline` when it is ended, in seconds."""
    leader = {"run-seconds": str(times["runs"])} if "runs" in times else {}
    made = tyjob(name, workers=pods - 1, least=(least or pods) - 1, priority=priority, leader=leader)
    made["spec"]["queue"] = queue
    if "expects" in times:
        made["spec"]["expectedRuntimeSeconds"] = times["expects"]
    if "deadline" in times:
        made["spec"]["activeDeadlineSeconds"] = times["deadline"]
    return made


def take_back(story: Story) -> None:
    """Room is taken from surplus, by priority, and between queues."""
    story.apply(job("explore", queue="research", pods=6, least=3))
    story.stage("explore", "Running")
    story.apply(job("train", queue="research", pods=6))
    story.stage("train", "Running")
    time.sleep(8)
    story.apply(job("fix", queue="research", pods=3, priority=8, runs=6))
    story.stage("fix", "Succeeded")
    time.sleep(4)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    story.kubectl("annotate", "tyj", "train", f"arranger.dev/last-checkpoint={now}")
    time.sleep(2)
    story.apply(job("hotfix", queue="research", pods=5, priority=8, runs=8))
    story.stage("hotfix", "Succeeded")
    story.stage("train", "Running")
    time.sleep(4)
    story.apply(job("answer", queue="serving", pods=6, priority=1, runs=10))
    story.stage("answer", "Succeeded")
    story.stage("train", "Running")
    time.sleep(11)  # in a continuation of the log, the preempted attempts of train last as long as this one
    story.kubectl("delete", "tyj", "explore", "train")
    time.sleep(3)


def keep_room(story: Story) -> None:
    """Room is kept for a wide job, and a short one goes before it."""
    story.apply(job("answer-2", queue="serving", pods=4, priority=1, runs=24, expects=30))
    story.apply(job("explore-2", queue="research", pods=4, runs=16, expects=20))
    story.stage("answer-2", "Running")
    story.stage("explore-2", "Running")
    story.apply(job("wide", queue="research", pods=12, runs=6, expects=10))
    time.sleep(3)
    for name, preemptible in (("endless", False), ("guest", True)):
        unknown = job(name, queue="research", pods=2)
        unknown["spec"]["preemptible"] = preemptible
        # no job with this image has ended, so nothing is learned of its end either
        unknown["spec"]["leader"]["template"]["spec"]["containers"][0]["image"] = "registry.example/rl/new:1.0"
        story.apply(unknown)
        time.sleep(2)
    story.apply(job("notes", queue="research", pods=2, runs=4, expects=6, deadline=10))
    story.stage("notes", "Succeeded")
    story.stage("wide", "Succeeded")
    story.stage("endless", "Running")
    story.stage("guest", "Running")
    time.sleep(2)


def live(story: Story) -> None:
    for name in ("research", "serving"):
        story.apply({"apiVersion": "arranger.dev/v1", "kind": "Queue", "metadata": {"name": name}, "spec": {}})
    take_back(story)
    keep_room(story)


if __name__ == "__main__":
    run(Path(sys.argv[1]), live)
