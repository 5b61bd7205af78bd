"""The complete search for a quorum: cycles on random clusters of 100 nodes with one job of 40 pods, in the thread's own
time, where the simple ways don't place it.

The nodes are nearly full, so that the quorum is about as large as what is left; a second series has rules among the
pods. Figures are of the whole cycle, with the shipped settings, each the least of several. How many quorums fit is
compared with a solver in decision 24.
"""

import random
import time

import msgspec

from arranger.events import kinds as k
from arranger.model.job import CleanPodPolicy, JobSpec, PodGroup
from arranger.model.node import NodeFacts
from arranger.model.pod import PodRules, PodShape, PodTerm, Requirement, Selector, SpreadRule
from arranger.projections.state import State
from arranger.scheduling.cycle import VERSIONS, take_cycle
from arranger.settings import Settings
from benchmarks.report import Figure
from benchmarks.workload import GIB, TOLD_MS, History, uid

_TIMES = 5
_NODES, _PODS = 100, 40
#: Free whole processors of a node, in three kinds of clusters.
_FREE = ((0, 0, 1, 1, 2, 2, 3, 4, 5, 6, 8), (0, 0, 0, 0, 0, 1, 1, 2, 3, 4), (0, 0, 0, 0, 0, 0, 0, 2, 4, 8))


def run(*, quick: bool) -> list[Figure]:
    """The benchmark."""
    plain, ruled = (20, 5) if quick else (1000, 300)
    return [*_series(plain, with_rules=False), *_series(ruled, with_rules=True)]


def _series(clusters: int, *, with_rules: bool) -> list[Figure]:
    placed, equal = 0, True
    proved_ms: list[float] = []
    bound_ms: list[float] = []
    for number in range(clusters):
        spent_ms, events, same = _cycle(_state(random.Random(f"search {number}"), with_rules=with_rules))
        if not any(isinstance(event, k.CycleTaken) and event.search_steps for event in events):
            continue
        equal &= same
        placed += any(isinstance(event, k.Placed) for event in events)
        for event in events:
            if isinstance(event, k.Waits):
                (bound_ms if event.shortage.searched else proved_ms).append(spent_ms)
    of = "rules among pods" if with_rules else "no rules among pods"
    note = f"{clusters:,} clusters of {_NODES} nodes, quorums of up to {_PODS} pods"
    ends = f"{placed} placed, {len(proved_ms)} proved not to fit, {len(bound_ms)} ended at the bound"
    failed_ms = proved_ms + bound_ms
    return [
        Figure(name=f"{of}: cycles with a complete search", value=placed + len(failed_ms), note=note),
        Figure(name="  equal events each time", value=float(equal), at_least=1.0),
        Figure(name="  a failed search, mean", value=sum(failed_ms) / max(len(failed_ms), 1), unit="ms", note=ends),
        Figure(name="  a failed search, longest", value=max(failed_ms, default=0.0), unit="ms", at_most=20),
    ]


def _cycle(state: State) -> tuple[float, tuple[k.Event, ...], bool]:
    """The milliseconds of a cycle, its events, and whether they are the same each time."""
    config, spent_ms = Settings().cycle_config(VERSIONS), []
    found = []
    for _ in range(_TIMES):
        began_s = time.thread_time()
        found.append(take_cycle(state, config, TOLD_MS))
        spent_ms.append(1000 * (time.thread_time() - began_s))
    return min(spent_ms), found[0], all(events == found[0] for events in found)


def _state(rng: random.Random, *, with_rules: bool) -> State:
    history, free = History(), rng.choice(_FREE)
    term = history.terms[k.Watched.NODE]
    history.say(
        *(
            k.NodeSeen(term, f"node-{n:03}", uid("node", n), "1", _facts(rng, 1000 * rng.choice(free)))
            for n in range(_NODES)
        )
    )
    cuts = sorted(rng.sample(range(1, _PODS - 1), rng.randrange(4)))
    counts = [end - begin for begin, end in zip([0, *cuts], [*cuts, _PODS - 1], strict=True)]
    sets = [PodGroup(f"set-{n}", count, _shape(rng, with_rules)) for n, count in enumerate(counts)]
    least = rng.randint(_PODS // 2, _PODS - 1)
    groups = (PodGroup("learner", 1, _shape(rng, with_rules)), *sets)
    spec = JobSpec(groups, least, 5, "", "", 3, CleanPodPolicy.ALL, False)
    term = history.terms[k.Watched.JOB]
    history.say(k.JobSeen(term, "default", "job", uid("job", 0), "1", 1, TOLD_MS, False, spec, (), ""))
    history.listed()
    return history.state()


def _facts(rng: random.Random, cpu: int) -> NodeFacts:
    amounts = (("cpu", cpu), ("memory", 64 * GIB), ("nvidia.com/gpu", rng.choice([0, 0, 0, 1, 2, 4])))
    pods = ("pods", rng.choice([110, 110, 2, 3]))
    labels = (("disk", rng.choice(["ssd", "hdd"])), ("zone", rng.choice("abcd")))
    return NodeFacts((*amounts, pods), ready=True, cordoned=False, labels=labels)


def _shape(rng: random.Random, with_rules: bool) -> PodShape:
    requests = (("cpu", 1000 * rng.randint(1, 4)), ("nvidia.com/gpu", rng.choice([0, 0, 0, 1, 2])))
    selector = (("disk", rng.choice(["ssd", "hdd"])),) if rng.random() < 0.3 else ()
    shape = PodShape(tuple(each for each in requests if each[1]), selector, labels=(("app", rng.choice("ab")),))
    if not with_rules or rng.random() < 0.4:
        return shape
    apps: Selector = (Requirement("app", "In", (rng.choice("ab"),)),)
    rules = (
        PodRules(affinity=(PodTerm("zone", apps),)),
        PodRules(anti_affinity=(PodTerm(rng.choice(["zone", "disk"]), apps),)),
        PodRules(spread=(SpreadRule("zone", rng.randint(1, 2), apps),)),
    )
    return msgspec.structs.replace(shape, rules=rng.choice(rules))
