"""Random clusters and jobs for the tests of the scheduling engine: small enough to be crowded, with many ties."""

import dataclasses
import functools
from collections.abc import Iterable, Sequence

from hypothesis import strategies as st

from arranger.model.node import Taint
from arranger.model.pod import HostPort, PodRules, PodShape, PodTerm, Preference, Requirement, SpreadRule
from arranger.model.validation import BUILT_IN_POLICIES
from arranger.projections.jobs.records import JobRecord
from tests.world import GIB, World, shape

SHAPES = (
    shape(cpu=1), shape(cpu=2, memory=GIB), shape(gpus=1), shape(cpu=0.5, gpus=2), shape(),
    shape(cpu=1, selector={"pool": "1"}), shape(memory=3 * GIB), PodShape((("rdma/hca", 1),)),
)  # fmt: skip

POD_POLICIES = ("", "BinPack", "Gang", "LeaderFirst", "MinFragment", "JobAffinity", "JobAntiAffinity", "MostAllocated")

#: These, and the policies that `one_by_one` doesn't implement.
ALL_POLICIES = (*POD_POLICIES, *(name for name in BUILT_IN_POLICIES.pod if name not in POD_POLICIES))


@dataclasses.dataclass(frozen=True)
class NodeDraw:
    """A node; `trouble` 0 is not ready, 1 cordoned, 2 tainted."""

    cpu: int
    memory: int
    gpus: int
    pods: int
    hca: int
    pool: str
    trouble: int
    stranger: int


@dataclasses.dataclass(frozen=True)
class JobDraw:
    """A job, or `alike` equal ones. `sets` are (pods, number of the shape)."""

    leader: int
    sets: tuple[tuple[int, int], ...]
    quorum: int
    priority: int
    created: int
    policy: str
    queue: str = ""
    alike: int = 1

    @property
    def min_workers(self) -> int:
        """The quorum, at most the number of workers."""
        return min(self.quorum, sum(count for count, _ in self.sets))

    def grown(self, more: Sequence[int], quorum: int) -> "JobDraw":
        """The job after an edit that adds workers to its sets and to its quorum."""
        sets = tuple((count + more[at] if at < len(more) else count, of) for at, (count, of) in enumerate(self.sets))
        return dataclasses.replace(self, sets=sets, quorum=self.quorum + quorum)


nodes_drawn = st.lists(
    st.builds(NodeDraw, cpu=st.integers(0, 6), memory=st.integers(0, 8), gpus=st.integers(0, 4),
              pods=st.integers(0, 6), hca=st.integers(0, 2), pool=st.sampled_from("01"), trouble=st.integers(0, 9),
              stranger=st.integers(0, 3)),
    max_size=7,
)  # fmt: skip


def jobs_drawn(
    *, policies: Sequence[str] = POD_POLICIES, queues: Sequence[str] = ("",), alike: int = 1, most: int = 6
) -> st.SearchStrategy[list[JobDraw]]:
    """Lists of jobs with these policies."""
    return _jobs_drawn(tuple(policies), tuple(queues), alike, most)


@functools.cache  # making a strategy takes as long as drawing from it a few times
def _jobs_drawn(
    policies: tuple[str, ...], queues: tuple[str, ...], alike: int, most: int
) -> st.SearchStrategy[list[JobDraw]]:
    one = st.builds(JobDraw, leader=st.integers(0, 7),
                    sets=st.lists(st.tuples(st.integers(1, 8), st.integers(0, 7)), max_size=3).map(tuple),
                    quorum=st.integers(0, 9), priority=st.integers(1, 2), created=st.integers(0, 2),
                    policy=st.sampled_from(policies), queue=st.sampled_from(queues),
                    alike=st.integers(1, alike))  # fmt: skip
    return st.lists(one, min_size=1, max_size=most)


def observed(
    nodes: Sequence[NodeDraw], jobs: Sequence[JobDraw], order: Iterable[int] | None = None
) -> tuple[World, list[JobRecord]]:
    """A world of these nodes and jobs, observed in this order of their numbers; nodes have the lowest numbers."""
    world = World()
    for number in order if order is not None else range(len(nodes) + len(jobs)):
        if number < len(nodes):
            see_node(world, number, nodes[number])
        else:
            see_jobs(world, number - len(nodes), jobs[number - len(nodes)])
    return world, [world.state.jobs[uid] for at, job in enumerate(jobs) for uid in uids(at, job)]


def uids(number: int, job: JobDraw) -> list[str]:
    """The UIDs of a drawn job and its copies."""
    return [f"uid-j{number}"] + [f"uid-j{number}-{copy}" for copy in range(1, job.alike)]


def see_node(world: World, number: int, node: NodeDraw) -> None:
    """Observe a node, and the foreign pod on it."""
    taints = (Taint("infra", "", "NoSchedule"),) if node.trouble == 2 else ()
    world.node(f"n{number}", cpu=node.cpu, memory=node.memory * GIB, gpus=node.gpus, pods=node.pods,
               ready=node.trouble != 0, cordoned=node.trouble == 1, taints=taints,
               labels={"pool": node.pool}, **{"rdma/hca": node.hca})  # type: ignore[arg-type]  # fmt: skip
    if node.stranger:
        world.pod(f"s{number}", f"n{number}", cpu=node.stranger / 2)


def see_jobs(world: World, number: int, job: JobDraw) -> None:
    """Observe a job and its copies; call again to change them."""
    sets = [(f"set{i}", count, SHAPES[of]) for i, (count, of) in enumerate(job.sets)]
    for uid in uids(number, job):
        world.job(uid.removeprefix("uid-"), leader=SHAPES[job.leader], workers=sets, min_workers=job.min_workers,
                  priority=job.priority, created=job.created, policy=job.policy, queue=job.queue)  # fmt: skip


def mixed(*, nodes: int = 60, jobs: int = 70) -> World:
    """One fixed crowded world with every policy, for plans that are compared across processes."""
    world = World()
    for number in range(nodes):
        draw = NodeDraw(cpu=number % 9, memory=(3 * number) % 11, gpus=number % 5, pods=number % 13, hca=number % 3,
                        pool=str(number % 2), trouble=(7 * number) % 17, stranger=number % 4)  # fmt: skip
        see_node(world, number, draw)
    for number in range(jobs):
        sets = tuple((1 + (number + 3 * at) % 7, (5 * number + at) % len(SHAPES)) for at in range(number % 4))
        draw_job = JobDraw(leader=number % len(SHAPES), sets=sets, quorum=number % 5, priority=1 + number % 3,
                           created=number % 6, policy=ALL_POLICIES[number % len(ALL_POLICIES)],
                           queue=("", "Priority", "DRF")[number % 3], alike=1 + number % 2)  # fmt: skip
        see_jobs(world, number, draw_job)
    return world


# --- pods with rules about each other, or with preferences ----------------------------------------------------------

_APP = (Requirement("app", "In", ("rl",)),)
_RULES = (
    PodRules(host_ports=(HostPort(80),)),
    PodRules(anti_affinity=(PodTerm("pool", _APP),)),
    PodRules(affinity=(PodTerm("pool", _APP),)),
    PodRules(spread=(SpreadRule("pool", 1, _APP),)),
)
_POOL = (Preference(7, (Requirement("pool", "In", ("1",)),)),)

#: Small shapes, with and without rules, labels and preferences.
_ASKING = tuple(
    shape(cpu=cpu, gpus=gpus, rules=rules, labels=labels, preferred=preferred)
    for cpu, gpus in ((1, 0), (2, 1))
    for rules in (None, None, *_RULES)
    for labels in (None, {"app": "rl"})
    for preferred in ((), _POOL)
)


@st.composite
def asking_worlds(draw: st.DrawFn, policies: Sequence[str] = ALL_POLICIES) -> World:
    """A crowded cluster with jobs of such pods."""
    world = World()
    for number, node in enumerate(draw(nodes_drawn)):
        see_node(world, number, node)
        if number % 3 == 2:
            taints = [Taint("slow", "", "PreferNoSchedule")]
            world.node(f"n{number}", cpu=4, gpus=2, labels={"pool": node.pool}, taints=taints)
    for number in range(draw(st.integers(1, 4))):
        sets = draw(st.lists(st.tuples(st.integers(1, 5), st.sampled_from(_ASKING)), max_size=2))
        workers = [(f"s{at}", count, of) for at, (count, of) in enumerate(sets)]
        leader, quorum = draw(st.sampled_from(_ASKING)), draw(st.integers(0, 6))
        policy, queue = draw(st.sampled_from(policies)), draw(st.sampled_from(["", "DRF"]))
        for copy in range(draw(st.integers(1, 3))):
            world.job(f"j{number}-{copy}", leader=leader, workers=workers, policy=policy, queue=queue,
                      min_workers=min(quorum, sum(count for count, _ in sets)))  # fmt: skip
    return world
