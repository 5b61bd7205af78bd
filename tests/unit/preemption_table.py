"""Cases in which room is taken back, or isn't, as other schedulers have them in their tests and in reports of loops.

Each case restates facts: nodes, queues, jobs that run, jobs that wait, who gives room to whom, and who runs in the end.
`source` says whose case it is and about what. The cases are in `preemption_kube`, `preemption_volcano`,
`preemption_kueue`, `preemption_kai` and `preemption_loops`; `test_preemption_cases` runs them.

A case that Arranger decides in another way has `others`, what the origin decides, and says why.

Amounts of CPU are in cores, all others in units. Sizes that others write as parts of a core or GPU are multiplied.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from arranger.model.pod import PodRules
from arranger.model.queue import Preemption, PreemptionMode

Amounts = Mapping[str, int]
#: Of a victim: the indices of the workers that leave, the first to leave first, or of a whole job how.
Took = tuple[int, ...] | str
#: Job that waits → its victims.
Takes = Mapping[str, Mapping[str, Took]]

GPU = "nvidia.com/gpu"
PRIORITY, RECLAIM = "Priority", "Reclaim"
NOBODY: Takes = MappingProxyType({})
NO_AMOUNTS: Amounts = MappingProxyType({})
NO_LABELS: Mapping[str, str] = MappingProxyType({})
NEVER = Preemption(PreemptionMode.NEVER, PreemptionMode.NEVER, PreemptionMode.NEVER)


def cpu(amount: int, **more: int) -> Amounts:
    return {"cpu": amount, **more}


def gpu(amount: int) -> Amounts:
    return {"cpu": 1, GPU: amount}


def gpus(nodes: int, each: int) -> Mapping[str, Amounts]:
    """So many nodes n1, n2, … with so many GPUs each."""
    return {f"n{number + 1}": {"cpu": 100, GPU: each} for number in range(nodes)}


def cores(nodes: int, each: int) -> Mapping[str, Amounts]:
    """So many nodes n1, n2, … with so many cores each."""
    return {f"n{number + 1}": cpu(each) for number in range(nodes)}


class Queue(NamedTuple):
    """A queue; `never` switches off all that its jobs may take."""

    deserved: Amounts = NO_AMOUNTS
    weight: int = 1
    parent: str = ""
    capability: Amounts = NO_AMOUNTS
    guarantee: Amounts = NO_AMOUNTS
    reclaimable: bool = True
    min_runtime_s: int = 0
    max_running: int | None = None
    preemption: Preemption = Preemption()


class Job(NamedTuple):
    """A job of equal pods, of which `least` are the quorum; 0 for all. `on` are the nodes on which it started."""

    name: str
    pod: Amounts = MappingProxyType({"cpu": 1, GPU: 1})
    priority: int = 5
    on: str = ""
    pods: int = 1
    least: int = 0
    queue: str = ""
    preemptible: bool = True
    expected_s: int | None = None
    #: The last checkpoint, in seconds before the waiting jobs come; 0 for none.
    checkpoint_s: int = 0
    labels: Mapping[str, str] = NO_LABELS
    selector: Mapping[str, str] = NO_LABELS
    rules: PodRules | None = None


class Case(NamedTuple):
    """The running jobs started one after the other, 10 seconds apart. `ends` are those that have just ended, and whose
    pods still leave. Then the waiting jobs come, and the late ones while the victims' pods leave.

    `runs` are the jobs that run in the end, with the number of their pods where not all run: `low:2 high`.
    """

    name: str
    source: str
    nodes: Mapping[str, Amounts]
    running: Sequence[Job]
    waiting: Sequence[Job]
    takes: Takes
    runs: str
    others: Takes | None = None
    why: str = ""
    queues: Mapping[str, Queue] = MappingProxyType({})
    late: Sequence[Job] = ()
    ends: Sequence[str] = ()
    #: Node → what pods of other schedulers request there.
    foreign: Mapping[str, Amounts] = NO_LABELS  # type: ignore[assignment]
    labels: Mapping[str, Mapping[str, str]] = MappingProxyType({})
    after_s: int = 10
