"""Who gives room in small random clusters: nobody in vain, nobody who may not, and it comes to an end.

Pods differ only in their GPUs, and all pods of a job are equal, so whether a quorum fits is a sum over the nodes.
"""

import itertools
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from arranger.events import kinds as k
from arranger.events.facts import PreemptionKind, Victim
from arranger.model.queue import Preemption, PreemptionMode
from arranger.projections.consistency import validate
from arranger.projections.jobs.records import JobRecord, expand
from arranger.scheduling.cycle import VERSIONS, take_cycle
from arranger.scheduling.queues.policies import seniority
from arranger.scheduling.room.vacating import leaving
from arranger.settings import Settings
from tests.world import World, shape

pytestmark = pytest.mark.slow

SHIPPED = msgspec.structs.replace(Settings(min_runtime_s=0).cycle_config(VERSIONS), dry_run=False)
WITHOUT = msgspec.structs.replace(SHIPPED, preemption=None, reservations=0)
GPU = "nvidia.com/gpu"

BY_CHANCE = settings(max_examples=100, print_blob=True, suppress_health_check=[HealthCheck.too_slow])

#: All 1,023 smaller parts of so many units are tried.
_EXHAUSTIVE = 10

Unit = list[tuple[str, int]]  # nodes and GPUs that leave together
Job = tuple[int, int, int, int, str, bool]  # GPUs of a pod, pods, quorum, priority, queue, whether it is preemptible

modes = st.sampled_from(PreemptionMode)
preemptions = st.one_of(st.just(Preemption()), st.builds(Preemption, modes, modes, modes))
queues = st.tuples(st.integers(1, 3), st.integers(0, 4), st.booleans(), st.sampled_from([0, 0, 25, 3600]), preemptions)


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    pods = draw(st.integers(1, 4))
    return (draw(st.integers(1, 3)), pods, draw(st.integers(1, pods)), draw(st.integers(1, 4)),
            draw(st.sampled_from("ab")), draw(st.integers(0, 4)) > 0)  # fmt: skip


def submit(of: World, name: str, job: Job, created: int) -> None:
    gpus, pods, least, priority, queue, preemptible = job
    of.job(name, equals=True, workers=pods, worker=shape(cpu=1, gpus=gpus), min_workers=least, priority=priority,
           of_queue=queue, preemptible=preemptible, created=created)  # fmt: skip


def fewer(units: list[Unit]) -> Iterator[Sequence[Unit]]:
    """Every smaller part of up to ten units; of more, all but one each."""
    for number in range(len(units) if len(units) <= _EXHAUSTIVE else 0):
        yield from itertools.combinations(units, number)
    yield from ([*units[:at], *units[at + 1 :]] for at in range(len(units)))


def indices(victim: Victim) -> list[int]:
    return [index for _, index in expand(victim.pods)]


class Watch:
    """One random cluster, with what its decisions must be."""

    def __init__(self, nodes: list[int], of_queues: list[tuple[int, int, bool, int, Preemption]]) -> None:
        self.of = World(config=WITHOUT)
        for number, gpus in enumerate(nodes):
            self.of.node(f"n{number}", cpu=64, gpus=gpus)
        for name, (weight, deserved, reclaimable, runtime_s, preemption) in zip("ab", of_queues, strict=True):
            self.of.queue(name, weight=weight, deserved=((GPU, deserved),), reclaimable=reclaimable,
                          min_runtime_s=runtime_s, preemption=preemption)  # fmt: skip
        #: Who took from whom.
        self.pairs: Counter[tuple[str, str]] = Counter()
        #: How often a guest left for its host (decision 75: what it took may have bought it no time at all).
        self.left: Counter[str] = Counter()

    def settle(self, *, exact: bool) -> None:
        """Repeat cycles; with `exact` each decision must take the least."""
        for _ in range(60):
            events = take_cycle(self.of.state, self.of.config, self.of.now_ms)
            free, given = self.free(), set[str]()
            for event in events:
                if isinstance(event, k.Preempted):
                    given.add(event.placed.job_uid)
                    self.check(event, free if exact and not self.awaited(free, event, given) else None)
                if isinstance(event, k.Placed):
                    self.take(free, event)
            if events:
                self.of.say(*events)
                if any(isinstance(event, k.Preempted) for event in events):
                    assert self.of.verdict("Preempted").accepted, self.of.verdict("Preempted").reason
                continue
            if not (self.of.control() or self.of.apply()):
                return
        raise AssertionError("it doesn't come to an end")

    def job(self, uid: str) -> JobRecord:
        return self.of.state.jobs[uid]

    def free(self) -> Counter[str]:
        """What is free on each node once the pods have left that leave anyway."""
        nodes = self.of.state.nodes
        found: Counter[str] = Counter()
        for node, row in nodes.rows.items():
            used, allocatable = nodes.amounts(row).get(GPU, (0, 0))
            found[node] = allocatable - used
        for pod in leaving(self.of.state):
            found[pod.node] += dict(pod.requests).get(GPU, 0)
        return found

    def awaited(self, free: Counter[str], event: k.Preempted, given: Collection[str]) -> bool:
        """Whether a job before this one waits for what others leave: nothing shows on which nodes. Any of
        another queue may be before it, by their shares."""
        by = self.job(event.placed.job_uid)
        waiting = [of for of in self.of.state.jobs.values() if not of.placements and of.uid not in given]
        before = [of for of in waiting if of.valid_spec.queue != by.valid_spec.queue or seniority(of) < seniority(by)]
        return any(self.fits(of, free, ()) for of in before)

    def take(self, free: Counter[str], event: k.Placed) -> None:
        group = self.job(event.job_uid).valid_spec.groups[1]
        for node in expand(event.pods).values():
            free[node] -= dict(group.shape.requests)[GPU]

    def check(self, event: k.Preempted, free: Counter[str] | None) -> None:
        by = self.job(event.placed.job_uid)
        assert event.victims
        for victim in event.victims:
            self.may_give(by, victim)
            self.pairs[by.uid, victim.job_uid] += 1
            self.left[victim.job_uid] += victim.kind.of_guest
        if free is not None:
            units = [unit for victim in event.victims for unit in self.units(victim)]
            assert self.fits(by, free, units)
            for part in fewer(units):
                assert not self.fits(by, free, part), f"{len(part)} of {len(units)} would do"
        if free is not None:
            self.take(free, event.placed)
            for victim in event.victims:
                self.give(free, victim)

    def give(self, free: Counter[str], victim: Victim) -> None:
        """The later decisions of the cycle find the room that is left of what the victim gave."""
        for unit in self.units(victim):
            for node, gpus in unit:
                free[node] += gpus

    def units(self, victim: Victim) -> list[Unit]:
        """What a victim loses, in the parts that can be spared alone: GPUs by node."""
        gpus = dict(self.job(victim.job_uid).valid_spec.groups[1].shape.requests)[GPU]
        nodes = [*expand(victim.pods).values()]
        of = [[node] for node in nodes] if victim.kind == PreemptionKind.SURPLUS else [nodes]
        return [[(node, gpus) for node in unit] for unit in of]

    def fits(self, by: JobRecord, free: Counter[str], units: Sequence[Unit]) -> bool:
        """Whether the quorum fits what is free once these units have left."""
        there = Counter(free)
        for unit in units:
            for node, gpus in unit:
                there[node] += gpus
        asked = dict(by.valid_spec.groups[1].shape.requests)[GPU]
        return sum(max(amount, 0) // asked for amount in there.values()) >= by.valid_spec.min_workers

    def may_give(self, by: JobRecord, victim: Victim) -> None:
        of, specs = self.job(victim.job_uid), self.of.state.queue_tree.specs
        if victim.kind.of_guest:  # it came on these terms, whatever its queue and priority
            assert by.uid in of.slots.hosts or of.slots.lent_by(by.uid)
            return
        mine, its = specs[by.valid_spec.queue], specs[of.valid_spec.queue]
        same = by.valid_spec.queue == of.valid_spec.queue
        assert of.valid_spec.preemptible and of.placements
        waits = of.slots.room is not None  # for room that it took: it hasn't begun
        assert waits or self.of.now_ms - of.began_ms >= its.min_runtime_s * 1000
        if same:
            assert of.valid_spec.priority < by.valid_spec.priority
            assert victim.kind != PreemptionKind.RECLAIM
        else:
            assert its.reclaimable and mine.preemption.reclaim == PreemptionMode.ALLOWED
            assert victim.kind != PreemptionKind.PRIORITY
        if victim.kind == PreemptionKind.SURPLUS:
            assert mine.preemption.surplus == PreemptionMode.ALLOWED
            there = {index: node for (_, index), node in of.placements.items()}
            kept = sorted(there.keys() - set(indices(victim)))
            assert len(kept) >= of.valid_spec.min_workers
            gone = {index: node for (_, index), node in expand(victim.pods).items()}
            later = [index for index in kept for first, node in gone.items() if index > first and there[index] == node]
            assert not later, "of workers on one node, those with the highest index go first"
        elif same:
            assert mine.preemption.priority == PreemptionMode.ALLOWED


@pytest.mark.parametrize("exact", [True, False], ids=["without reservations", "as shipped"])
@BY_CHANCE
@given(nodes=st.lists(st.integers(1, 5), min_size=1, max_size=3), of_queues=st.lists(queues, min_size=2, max_size=2),
       first=st.lists(jobs(), min_size=1, max_size=5), then=st.lists(jobs(), min_size=1, max_size=3),
       at_once=st.booleans())  # fmt: skip
@example(nodes=[1, 1], of_queues=[(1, 0, False, 0, Preemption())] * 2, at_once=False,
         first=[(1, 2, 1, 1, "a", True), (1, 1, 1, 1, "b", False)], then=[(1, 1, 1, 2, "a", True)])  # fmt: skip
def test_nobody_gives_room_in_vain_and_it_comes_to_an_end(
    exact: bool,
    nodes: list[int],
    of_queues: list[tuple[int, int, bool, int, Preemption]],
    first: list[Job],
    then: list[Job],
    at_once: bool,
) -> None:
    watch = Watch(nodes, of_queues)
    for number, job in enumerate(first):
        submit(watch.of, f"run{number}", job, number + 1)
        watch.settle(exact=False)
        watch.of.pass_time(10)
    watch.of.config = msgspec.structs.replace(SHIPPED, reservations=0) if exact else SHIPPED
    for number, job in enumerate(then):
        submit(watch.of, f"new{number}", job, 100 + number)
        if not at_once:
            watch.settle(exact=exact)
    for _ in range(3):
        watch.of.pass_time(31)
        watch.settle(exact=exact)
    validate(watch.of.state)
    assert not any((other, one) in watch.pairs for one, other in watch.pairs), "two took room from each other"
    # Who lost its room to a newer job may take it again from the same one, and so may a guest that left for its host.
    for (one, _), times in watch.pairs.items():
        assert times <= len(then) + watch.left[one], "one took room again and again from the same job"
    before = sum(watch.pairs.values())
    watch.settle(exact=exact)
    assert sum(watch.pairs.values()) == before


@BY_CHANCE
@given(nodes=st.lists(st.integers(2, 5), min_size=1, max_size=2),
       small=st.lists(st.tuples(st.integers(1, 2), st.integers(1, 3)), min_size=4, max_size=8),
       large=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 2), st.integers(5, 9)), min_size=2, max_size=4),
       )  # fmt: skip
@example(nodes=[3], small=[(1, 2), (2, 1), (1, 1), (1, 1)], large=[(1, 1, 5), (1, 1, 5), (1, 1, 5)])
def test_none_of_several_jobs_that_come_at_once_takes_more_than_it_needs(
    nodes: list[int], small: list[tuple[int, int]], large: list[tuple[int, int, int]]
) -> None:
    watch = Watch(nodes, [(1, 0, True, 0, Preemption())] * 2)
    for number, (gpus, priority) in enumerate(small):
        submit(watch.of, f"small{number}", (gpus, 1, 1, priority, "a", True), number + 1)
        watch.settle(exact=False)
    watch.of.pass_time(10)
    watch.of.config = msgspec.structs.replace(SHIPPED, reservations=0)
    for number, (gpus, pods, priority) in enumerate(large):
        submit(watch.of, f"large{number}", (gpus, pods, pods, priority, "a", True), 100 + number)
    watch.settle(exact=True)
    validate(watch.of.state)
