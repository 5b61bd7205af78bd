"""What a viewer with few rights gets to see of the console's answers. What isn't named here is left out.

Jobs of other namespaces have pseudonyms. Nodes have only the jobs that the viewer may see: who may list nodes may not
know for that reason where pods are.
"""

from collections.abc import Callable
from typing import Any

import msgspec

Json = dict[str, Any]

#: What of a job in another namespace is shown, as in `replay`.
_OPEN_OF_A_JOB = (
    *("priority", "ownPriority", "stage", "since", "submitted", "attempt"),
    *("podsPlaced", "podsRunning", "podsReady", "podsFailed", "podsWanted"),
)
_OPEN_OF_A_BAR = ("from", "to", "kind", "attempt", "outcome")
_TOTALS_OF_JOBS = ("jobsWaiting", "jobsRunning", "jobsEnded")
_MARKS_OF_NODES = ("nodeLost", "nodeCordoned")
_SERIES_OF_NODES = ("gpus", "gpusUsed", "gpusIdle", "gpusReserved", "gpusBesideUsed")


class Sight(msgspec.Struct, frozen=True):
    """What a viewer may see. `jobs` says whether it is the jobs of a namespace, and `name` gives a pseudonym for a job
    of another one."""

    jobs: Callable[[str], bool]
    nodes: bool
    queues: bool
    name: Callable[[str], str]

    def sees(self, job: str) -> bool:
        """Whether the job, as namespace/name, is in a namespace whose jobs the viewer may see."""
        return self.jobs(job.partition("/")[0])


def _moment(answer: Json, sight: Sight) -> Json:
    seen = [sight.sees(job["job"]) for job in answer["jobs"]]
    jobs = [
        job if known else _other(job, sight, _OPEN_OF_A_JOB) for job, known in zip(answer["jobs"], seen, strict=True)
    ]
    # In the order of the pseudonyms: that of the names would tell of them.
    order = sorted(range(len(jobs)), key=lambda number: str(jobs[number]["job"]))
    place = {number: later for later, number in enumerate(order)}
    totals = answer["totals"]
    return {
        **{name: answer[name] for name in ("at", "time")},
        "totals": totals if sight.nodes else {name: totals[name] for name in _TOTALS_OF_JOBS},
        "jobs": [jobs[number] for number in order],
        "nodes": [
            {**node, "jobs": [[place[job], gpus] for job, gpus in node["jobs"] if seen[job]]}
            for node in answer["nodes"]
        ]
        if sight.nodes
        else [],
        "topologyLevels": answer["topologyLevels"] if sight.nodes else [],
        "queues": answer["queues"] if sight.queues else [],
    }


def _standings(answer: Json, sight: Sight) -> Json:
    """Of jobs of others nothing is shown, not even that they are there: the moment has their pseudonyms."""
    jobs = [job for job in answer["jobs"] if sight.sees(job["job"])]
    return {**{name: answer[name] for name in ("at", "waiting", "complete")}, "jobs": jobs}


def _timeline(answer: Json, sight: Sight) -> Json:
    names = ("first", "last", "firstTime", "lastTime", "buckets", "complete", "busiest", "stored", "decided")
    marks = []
    for mark in answer["marks"]:
        if mark["kind"] not in _MARKS_OF_NODES:
            subjects = [job if sight.sees(job) else sight.name(job) for job in mark["subjects"]]
            marks.append({**mark, "subjects": subjects})
        elif sight.nodes:
            marks.append(mark)
    return {**{name: answer[name] for name in names}, "marks": marks}


def _series(answer: Json, sight: Sight) -> Json:
    return {
        **{name: answer[name] for name in ("times", "offsets", "jobsWaiting", "jobsRunning", "complete")},
        **{name: answer[name] if sight.nodes else [] for name in _SERIES_OF_NODES},
        **{name: answer[name] if sight.queues else {} for name in ("queues", "queuesOwn")},
    }


def _gantt(answer: Json, sight: Sight) -> Json:
    jobs = []
    for job in answer["jobs"]:
        if sight.sees(job["job"]):
            bars = [bar if sight.nodes else {**bar, "nodes": []} for bar in job["bars"]]
            jobs.append({**job, "bars": bars})
        else:
            closed: Json = {"cause": None, "gpus": 0, "nodes": []}
            names = (*_OPEN_OF_A_BAR, "queue") if sight.queues else _OPEN_OF_A_BAR
            bars = [{**{name: bar[name] for name in names}, **closed} for bar in job["bars"]]
            jobs.append({**_other(job, sight, ()), "bars": bars})
    deleted = [job if sight.sees(job["job"]) else _other(job, sight, ("at",)) for job in answer["deleted"]]
    left = {name: answer[name] for name in ("left", "complete", "deletedLeft")}
    return {"jobs": jobs, "deleted": deleted, **left}


def _node_gantt(answer: Json, sight: Sight) -> Json:
    seen = [sight.sees(job) for job in answer["jobs"]]
    jobs = [job if known else sight.name(job) for job, known in zip(answer["jobs"], seen, strict=True)]
    nodes = [{**node, "bars": [bar for bar in node["bars"] if seen[bar[0]]]} for node in answer["nodes"]]
    return {"jobs": jobs, "nodes": nodes, "left": answer["left"], "complete": answer["complete"]}


def _decision(answer: Json, sight: Sight) -> Json:
    return {name: answer[name] for name in ("at", "time")}


def _other(job: Json, sight: Sight, names: tuple[str, ...]) -> Json:
    queue = job["queue"] if sight.queues else ""
    return {"job": sight.name(job["job"]), "queue": queue, **{name: job[name] for name in names}}


#: The questions whose answers have a part for everybody, or, of `node-gantt`, for those who may list nodes.
MASKED: dict[str, Callable[[Json, Sight], Json]] = {
    "moment": _moment,
    "standings": _standings,
    "timeline": _timeline,
    "series": _series,
    "gantt": _gantt,
    "node-gantt": _node_gantt,
    "decision": _decision,
}


def namespaces(question: str, answer: Json) -> list[str]:
    """The namespaces of the jobs in an answer."""
    if question == "timeline":
        of_jobs = [mark for mark in answer["marks"] if mark["kind"] not in _MARKS_OF_NODES]
        labels = [job for mark in of_jobs for job in mark["subjects"]]
    else:
        jobs = [*answer.get("jobs", []), *answer.get("deleted", [])]
        labels = jobs if question == "node-gantt" else [job["job"] for job in jobs]
    return sorted({label.partition("/")[0] for label in labels})
