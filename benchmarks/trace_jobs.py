"""The jobs of a trace over time: each pod with GPUs of a list in the format of the openb trace is one job.

What the trace has is taken from it: requests, creation, and how long the pod ran (deletion - scheduled). The rest is
made here from one seed:

    users      The openb trace names none. A list with a column `user` keeps its users. Else users are drawn: pods with
               equal requests, each created at most 60 s after the one before, are one submission, and each submission
               draws one of 16 users with probabilities that fall as rank ** -1.8 (Zipf), so that the first user has
               more than half of the submissions.
    durations  of pods that were never scheduled: drawn from those of the others. In a list without times: log-normal
               with the median (540 s) and the quartiles (167 s, 1974 s) of the openb default list, and creations a
               minute apart on average (exponential).
    load       Times between creations are multiplied by one factor, so that the jobs request `load` times the GPUs of
               the cluster, on average from the first creation to the last. Bursts stay bursts. Durations stay.

TYJobs request whole GPUs, so a pod that shares a GPU gets a whole one. Left out and counted: pods without GPUs, pods
that ran longer than a day (services, which would hold most of a small cluster), and pods that no node could hold. The
few pods that the trace has before its first dense day are left out too. GPU models (`gpu_spec`) are
ignored, because all nodes are equal here.
"""

import bisect
import csv
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path

import msgspec

from arranger.cli.inputs.trace_files import read_nodes, read_pods
from arranger.errors import UsageError
from arranger.scheduling.experiment import TraceNode, TracePod

#: What a trace needs, for whoever gave none.
NEEDED = (
    "--trace PATH: the folder of the openb trace, or, with --trace twice, the CSV files of its pods (name, cpu_milli, "
    "memory_mib, num_gpu, gpu_milli, creation_time, scheduled_time, deletion_time) and nodes (sn, cpu_milli, "
    "memory_mib, gpu, model)"
)
_PODS, _NODES = "openb_pod_list_default.csv", "openb_node_list_gpu_node.csv"

USERS = 16
_ZIPF = 1.8
_SUBMISSION_S = 60
_LONGEST_S = 86_400
_DENSE_PODS, _DENSE_S = 50, 86_400
#: Of the logarithm of seconds: the median of the openb default list, and the spread that gives its quartiles.
_LOG_MEDIAN, _LOG_SPREAD = 6.29, 1.83
_APART_S = 60.0


class TraceJob(msgspec.Struct, frozen=True):
    """A job of one pod. `submitted_s` is in seconds since the first submission, `lasts_s` its duration on nodes."""

    name: str
    user: str
    submitted_s: int
    lasts_s: int
    gpus: int
    cpu_milli: int
    memory_mib: int


class Workload(msgspec.Struct, frozen=True):
    """Jobs in the order of their submission, and the equal nodes that they are for. `told` describes how it was made.

    `load` is what the jobs request / what the nodes have, in GPU seconds from the first submission to the last.
    """

    jobs: tuple[TraceJob, ...]
    node: TraceNode
    nodes: int
    load: float
    told: str

    @property
    def gpus(self) -> int:
        """The GPUs of the cluster."""
        return self.nodes * self.node.gpus

    @property
    def largest_user(self) -> str:
        """The user with the most jobs."""
        return Counter(job.user for job in self.jobs).most_common(1)[0][0]


class TimedPod(msgspec.Struct):
    """A pod of the list; `lasts_s` is None if it was never scheduled."""

    pod: TracePod
    user: str
    created_s: int
    lasts_s: int | None


def read_workload(traces: Sequence[Path], *, jobs: int, nodes: int, load: float, seed: int = 1) -> Workload:
    """The first `jobs` jobs of a trace, for `nodes` nodes like the most frequent one with GPUs of the trace.

    Raises UsageError, which names the file and what is wrong with it.
    """
    pods_file, nodes_file = _files(traces)
    node, _ = Counter(
        msgspec.structs.replace(one, name="") for one in read_nodes(nodes_file) if one.gpus
    ).most_common(1)[0]  # fmt: skip
    chance = random.Random(seed)
    timed = sorted(_timed(pods_file, chance), key=lambda one: (one.created_s, one.pod.name))
    return from_pods(timed, jobs=jobs, node=node, nodes=nodes, load=load, chance=chance)


def from_pods(
    timed: Sequence[TimedPod], *, jobs: int, node: TraceNode, nodes: int, load: float, chance: random.Random
) -> Workload:
    """The workload of pods in the order of their creation."""
    left_out: Counter[str] = Counter()
    kept = [one for one in timed[_first_dense(timed) :] if not _left_out(one, node, left_out)][:jobs]
    if not kept:
        raise UsageError("the trace has no pod with GPUs that fits on a node", hint=NEEDED)
    known = [one.lasts_s for one in kept if one.lasts_s is not None] or [round(_duration_s(chance))]
    drawn = sum(one.lasts_s is None for one in kept)
    lasting = [chance.choice(known) if one.lasts_s is None else one.lasts_s for one in kept]
    users = _users(kept, chance)
    first_s = kept[0].created_s
    requested_s = sum(one.pod.gpus * lasts_s for one, lasts_s in zip(kept, lasting, strict=True))
    span_s = max(kept[-1].created_s - first_s, 1)
    factor = requested_s / (load * nodes * node.gpus * span_s)
    names = "drawn users" if not kept[0].user else "users of the trace"
    skipped = ", ".join(f"{number:,} {why}" for why, number in sorted(left_out.items())) or "none"
    found = [
        TraceJob(one.pod.name, user, round((one.created_s - first_s) * factor), lasts_s, one.pod.gpus,
                 one.pod.cpu_milli, one.pod.memory_mib)
        for one, user, lasts_s in zip(kept, users, lasting, strict=True)
    ]  # fmt: skip
    return Workload(
        tuple(sorted(found, key=lambda job: (job.submitted_s, job.name))), node, nodes, load,
        f"{len(kept):,} jobs, {len(set(users))} {names}, {nodes} nodes of {node.gpus} GPUs, load {load:g} over "
        f"{span_s * factor / 3600:.0f} h, times between creations x {factor:.3g}; {drawn:,} durations drawn; left out: "
        f"{skipped}",
    )  # fmt: skip


def _files(traces: Sequence[Path]) -> tuple[Path, Path]:
    """The files of pods and of nodes, told apart by their first lines."""
    found: dict[str, Path] = {}
    for path in (one / name for one in traces if one.is_dir() for name in (_PODS, _NODES)):
        found["pods" if path.name == _PODS else "nodes"] = path
    for path in (one for one in traces if not one.is_dir()):
        try:
            with path.open(newline="", encoding="utf-8-sig") as file:
                found["nodes" if "sn" in next(csv.reader(file), ()) else "pods"] = path
        except OSError as error:
            raise UsageError(f"{path} can't be read: {error.strerror}", hint=NEEDED) from error
    if len(found) < 2:
        raise UsageError("the trace has no file of pods, or none of nodes", hint=NEEDED)
    return found["pods"], found["nodes"]


def _timed(path: Path, chance: random.Random) -> list[TimedPod]:
    """The pods of a list with their times; see the top of the module for those without."""
    pods = read_pods(path)
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file))
    if "creation_time" not in rows[0]:
        created_s = list(accumulate(chance.expovariate(1 / _APART_S) for _ in pods))
        return [
            TimedPod(pod, row.get("user") or "", round(at_s), round(_duration_s(chance)))
            for pod, row, at_s in zip(pods, rows, created_s, strict=True)
        ]
    return [
        TimedPod(pod, row.get("user") or "", _second(path, row, "creation_time"), _lasted_s(path, row))
        for pod, row in zip(pods, rows, strict=True)
    ]


def _lasted_s(path: Path, row: Mapping[str, str]) -> int | None:
    if not row.get("scheduled_time") or not row.get("deletion_time"):
        return None
    return max(_second(path, row, "deletion_time") - _second(path, row, "scheduled_time"), 1)


def _second(path: Path, row: Mapping[str, str], column: str) -> int:
    try:
        return int(float(row[column]))
    except (ValueError, OverflowError) as error:
        raise UsageError(f"{path}: pod {row['name']}, column {column}: {row[column]!r} is no time in s") from error


def _duration_s(chance: random.Random) -> float:
    return max(1.0, chance.lognormvariate(_LOG_MEDIAN, _LOG_SPREAD))


def _first_dense(timed: Sequence[TimedPod]) -> int:
    """The first pod that begins a dense day; the first of all without one."""
    for at in range(len(timed) - _DENSE_PODS):
        if timed[at + _DENSE_PODS].created_s - timed[at].created_s <= _DENSE_S:
            return at
    return 0


def _left_out(one: TimedPod, node: TraceNode, left_out: Counter[str]) -> bool:
    """Whether a pod is none of the jobs, and counts why."""
    pod = one.pod
    if not pod.gpus:
        why = "without GPUs"
    elif (one.lasts_s or 0) > _LONGEST_S:
        why = "longer than a day"
    elif pod.gpus > node.gpus or pod.cpu_milli > node.cpu_milli or pod.memory_mib > node.memory_mib:
        why = "too large for a node"
    else:
        return False
    left_out[why] += 1
    return True


def _users(timed: Iterable[TimedPod], chance: random.Random) -> list[str]:
    """The users of pods in the order of their creation, drawn by submission where the list names none."""
    limits = list(accumulate(rank**-_ZIPF for rank in range(1, USERS + 1)))
    #: Requests → the last pod with them: its creation, and its user.
    last: dict[tuple[int, ...], tuple[int, str]] = {}
    users = []
    for one in timed:
        requests = (one.pod.gpus, one.pod.gpu_milli, one.pod.cpu_milli, one.pod.memory_mib)
        before_s, user = last.get(requests, (-_SUBMISSION_S - 1, ""))
        if one.user:
            user = one.user
        elif one.created_s - before_s > _SUBMISSION_S:
            user = f"user-{bisect.bisect(limits, chance.random() * limits[-1]) + 1:02}"
        last[requests] = one.created_s, user
        users.append(user)
    return users
