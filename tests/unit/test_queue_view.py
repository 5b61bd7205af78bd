"""The view of queues: what each uses, demands and is entitled to, its jobs, and who holds what."""

from collections import Counter
from collections.abc import Iterable, Mapping

from hypothesis import example, given, settings

from arranger.model.config import CycleConfig
from arranger.model.pod import PodShape
from arranger.model.queue import NamespaceRule, QueueState
from arranger.projections.derived.queue_counts import sum_of
from arranger.projections.derived.queue_membership import DenialKind
from arranger.projections.queues.tree import QueueProblemKind
from arranger.scheduling import HolderKind, QueuesView, QueueView, holders, in_order, positions, queues_view
from tests.random_worlds import LONG, Step, live_through, steps
from tests.world import World, shape

GPU = "nvidia.com/gpu"
ONE = shape(cpu=1, gpus=1)


def world(nodes: int = 2, gpus: int = 8) -> World:
    made = World()
    for number in range(nodes):
        made.node(f"n{number}", cpu=32, gpus=gpus)
    return made


def gpus(view: QueuesView, *names: str) -> list[tuple[int, ...]]:
    """Used, demanded and shared GPUs of each queue."""
    queues = [view.queues[name] for name in names]
    return [tuple(amounts.get(GPU, 0) for amounts in (of.used, of.demand, of.share)) for of in queues]


def jobs(view: QueueView) -> tuple[int, ...]:
    return (view.waiting, view.running, view.own_waiting, view.own_running)


def test_without_queues_there_is_only_default() -> None:
    there = world()
    there.job("a", leader=ONE, workers=3)
    there.cycle()
    view = queues_view(there.state)
    assert [*view.queues] == ["default"] and view.total[GPU] == 16 and "pods" not in view.total
    assert gpus(view, "default") == [(4, 4, 4)] and jobs(view.queues["default"]) == (0, 1, 0, 1)
    assert not view.queues["default"].created and view.queues["default"].depth == 1


def test_a_queue_counts_the_jobs_below_it_and_its_own_apart() -> None:
    there = world()
    there.queue("research", weight=3)
    there.queue("robots", parent="research")
    there.queue("vision")
    there.job("big", leader=ONE, workers=9, min_workers=9, of_queue="robots")
    there.job("own", leader=ONE, workers=1, min_workers=1, of_queue="research")
    there.cycle()
    there.job("later", leader=ONE, workers=5, min_workers=5, of_queue="vision")
    there.job("late", leader=ONE, workers=1, min_workers=1, of_queue="robots")
    view = queues_view(there.state)
    assert [*view.queues] == ["default", "research", "robots", "vision"]
    research = view.queues["research"]
    assert (research.own_used[GPU], research.own_demand[GPU]) == (2, 2)
    assert gpus(view, "research", "robots", "vision") == [(12, 14, 12), (10, 12, 10), (0, 6, 4)]
    assert jobs(research) == (1, 2, 0, 1) and jobs(view.queues["robots"]) == (1, 1, 1, 1)
    assert view.queues["robots"].path == ("robots", "research") and view.queues["robots"].depth == 2


def test_children_follow_their_parent_and_queues_without_a_way_to_the_root_are_last() -> None:
    there = world()
    there.queue("b", parent="z")
    there.queue("a", parent="none")
    there.queue("c")
    there.queue("z")
    there.job("lost", leader=ONE, of_queue="missing")
    view = queues_view(there.state)
    assert [*view.queues] == ["c", "default", "z", "b", "a", "missing"]
    unusable, missing = view.queues["a"], view.queues["missing"]
    assert unusable.problem is not None and unusable.problem.kind == QueueProblemKind.UNKNOWN_PARENT
    assert (unusable.depth, unusable.share, unusable.created) == (0, {}, True)
    assert missing.spec is None and not missing.created and missing.denials == {DenialKind.NO_QUEUE: 1}


def test_jobs_that_cannot_use_their_queue_wait_there_and_demand_nothing() -> None:
    there = world()
    there.queue("closed", state=QueueState.CLOSED)
    there.queue("below", parent="closed")
    there.queue("others", namespaces=NamespaceRule(("vision",)))
    for name in ("below", "below", "others"):
        there.job(f"j{there.state.offset}", leader=ONE, of_queue=name)
    there.job("suspended", leader=ONE, of_queue="others", suspend=True)
    view = queues_view(there.state)
    assert gpus(view, "closed", "below", "others") == [(0, 0, 0)] * 3
    assert view.queues["below"].closed == "closed" and view.queues["below"].denials == {DenialKind.CLOSED: 2}
    assert jobs(view.queues["closed"]) == (2, 0, 0, 0)
    assert view.queues["others"].denials == {DenialKind.NOT_ADMITTED: 1} and view.queues["others"].waiting == 1


def test_what_is_probably_misspelt_is_not_demanded_and_what_nodes_may_still_bring_is() -> None:
    there = world()
    there.queue("robots")
    for name in ("nvidia.com/gpus", "amd.com/gpu"):
        asked = PodShape(tuple(sorted([("cpu", 1000), (name, 4)])))
        there.job(name.replace("/", "-"), leader=asked, of_queue="robots")
    assert queues_view(there.state).queues["robots"].demand == {"amd.com/gpu": 4, "cpu": 2000}


def test_the_total_is_that_of_ready_nodes_and_workers_that_still_lack_nodes_are_demanded() -> None:
    there = world()
    there.node("n1", cpu=32, gpus=8, ready=False)
    there.job("elastic", leader=ONE, workers=11, min_workers=3)
    there.cycle()
    view = queues_view(there.state)
    assert view.total[GPU] == 8
    assert gpus(view, "default") == [(8, 12, 8)] and jobs(view.queues["default"]) == (0, 1, 0, 1)
    there.node("n1", cpu=32, gpus=8)
    assert queues_view(there.state).total[GPU] == 16


def test_claims_of_queues_come_from_their_specs() -> None:
    there = world(nodes=3)
    there.queue("a", weight=3)
    there.queue("b", deserved=((GPU, 10),))
    there.queue("c", guarantee=((GPU, 4),))
    for name in "abc":
        there.job(name, leader=ONE, workers=23, min_workers=23, of_queue=name)
    assert [share for *_, share in gpus(queues_view(there.state), *"abc")] == [6, 12, 6]
    there.queue("a", weight=3, capability=((GPU, 4),))
    assert [share for *_, share in gpus(queues_view(there.state), *"abc")] == [4, 13, 7]


def test_the_position_of_a_job_counts_the_jobs_of_its_queue() -> None:
    there = world()
    there.queue("a")
    for number, name in enumerate(("default", "a", "a", "default")):
        there.job(f"j{number}", leader=ONE, of_queue=name, priority=9 - number)
    found = positions(there.state, in_order(there.state, CycleConfig()))
    assert found == {
        "uid-j0": ("default", 1), "uid-j1": ("a", 1), "uid-j2": ("a", 2), "uid-j3": ("default", 2),
    }  # fmt: skip


def test_holders_are_grouped_by_queue_namespace_user_or_job_with_all_other_pods_at_the_end() -> None:
    there = world()
    there.queue("rl")
    there.queue("robots", parent="rl")
    there.job("a", leader=ONE, workers=2, of_queue="robots", user="ann")
    there.job("b", leader=ONE, workers=1, of_queue="rl", namespace="vision")
    there.job("c", leader=ONE, of_queue="rl", user="ann", namespace="vision")
    there.job("waits", leader=shape(gpus=9), user="bob")
    there.settle()
    there.pod("foreign", "n1", gpus=3)
    there.pod("ended", "n1", gpus=3, phase="Succeeded")
    there.pod("waiting", gpus=3)

    def held(by: HolderKind, within: str = "") -> list[tuple[str, int, int, int, str]]:
        found = holders(there.state, by, within=within)
        return [(of.name, of.amounts[GPU], of.jobs, of.pods, of.queue) for of in found]

    others = ("", 3, 0, 1, "")
    assert held(HolderKind.QUEUE) == [("rl", 3, 2, 3, ""), ("robots", 3, 1, 3, ""), others]
    assert held(HolderKind.NAMESPACE) == [("default", 3, 1, 3, ""), ("vision", 3, 2, 3, ""), others]
    assert held(HolderKind.USER) == [("ann", 4, 2, 4, ""), ("vision", 2, 1, 2, ""), others]
    assert held(HolderKind.JOB) == [
        ("default/a", 3, 1, 3, "robots"), ("vision/b", 2, 1, 2, "rl"), ("vision/c", 1, 1, 1, "rl"), others,
    ]  # fmt: skip
    assert held(HolderKind.USER, within="rl") == held(HolderKind.USER)[:-1]
    assert held(HolderKind.JOB, within="robots") == [("default/a", 3, 1, 3, "robots")]


def _sum(amounts: Iterable[Mapping[str, int]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for each in amounts:
        total.update(each)
    return +total


@settings(max_examples=100, deadline=None)
@given(steps(least=0))
@example(list(LONG))
@example([("pod gone", 0, 0), ("job gone", 0, 0)])
def test_in_any_history_queues_add_up_to_their_parents_and_to_what_jobs_hold(history: list[Step]) -> None:
    there = world(nodes=3)
    there.queue("a", user_fairness=True)
    there.queue("b", parent="a", max_waiting=1)
    for number, name in enumerate(("a", "b", "default", "b", "b")):
        there.job(f"first-{number}", leader=ONE, workers=3 + number, min_workers=number, of_queue=name)
    there.settle()
    state = live_through(history, there).state
    view = queues_view(state)
    for of in view.queues.values():
        below = [child for child in view.queues.values() if child.path[1:2] == (of.name,)]
        assert _sum([of.own_used, *(child.used for child in below)]) == _sum([of.used])
        assert _sum([of.own_demand, *(child.demand for child in below)]) == _sum([of.demand])
        assert of.own_waiting + sum(child.waiting for child in below) == of.waiting
        assert of.own_running + sum(child.running for child in below) == of.running
        assert all(amount <= of.demand.get(name, 0) for name, amount in of.share.items())
        assert sum(of.denials.values()) <= of.own_waiting
    placed = [job for job in state.jobs.values() if job.placements]
    kept = _sum(sum_of(job, job.placements) for job in placed)
    assert _sum(of.own_used for of in view.queues.values()) == kept
    assert sum(of.own_running for of in view.queues.values()) == len(placed)
    held = {of.name: of for of in holders(state, HolderKind.JOB) if of.name}
    for job in placed:  # the room of a pod that has ended is nobody's
        of, slots = held.get(f"{job.seen.namespace}/{job.seen.name}"), [*state.slots_in_use(job)]
        assert (of.amounts, of.pods) == (sum_of(job, slots), len(slots)) if of is not None else not slots
    for by in HolderKind:
        assert _sum(of.amounts for of in holders(state, by)) == _sum(
            of.amounts for of in holders(state, HolderKind.JOB)
        )
