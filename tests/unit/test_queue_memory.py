"""What cycles keep of queues, and what equal jobs of several queues share, changes no result."""

from collections.abc import Callable, Iterator
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arranger.events import kinds as k
from arranger.model.config import CycleConfig
from arranger.model.job import JobSpec
from arranger.model.pod import Phase, PodTimes
from arranger.model.queue import NonPreemptible, Preemption
from arranger.projections import snapshot
from arranger.projections.state import State
from arranger.scheduling import queues_view
from arranger.scheduling.cycle import Cycles, take_cycle
from arranger.scheduling.placing.placement_try import CycleObserver
from arranger.scheduling.queues.fair_shares import QueueClaims
from arranger.scheduling.queues.limits import QueueAccount, QueueRoom
from arranger.scheduling.queues.offer import offered
from arranger.scheduling.queues.standing import KeptQueues, QueueStanding
from arranger.scheduling.queues.waiting import considered, waiting_jobs
from arranger.scheduling.search.quorum_memory import _asked, _without_queue
from arranger.scheduling.search.quorum_search import QuorumSearch
from tests.depth import extent
from tests.queue_shares import queue_shares
from tests.reasons import lacking_quota
from tests.world import World, shape

GPU = "nvidia.com/gpu"
by_chance = settings(max_examples=extent(30, 3_000), deadline=None, print_blob=True)
NAMES = ["default", "a", "b", "c", "d"]


class Life:
    """A world with queues in which things happen at random."""

    def __init__(self, seed: int, *, fair: bool = True) -> None:
        self.rng = Random(seed)
        self.fair = fair
        self.there = World()
        for name in ("n1", "n2", "n3"):
            self._node(name)
        for name in NAMES[1:]:
            self._queue(name)
        self._actions: tuple[Callable[[], object], ...] = (
            self._job, self._job, self._job, self._job_gone, self._queue_changed, self._queue_gone, self._move,
            self._node_changed, self._stranger, self.there.cycle, self.there.settle, self._time,
        )  # fmt: skip

    def steps(self, count: int) -> Iterator[State]:
        for _ in range(count):
            self.rng.choice(self._actions)()
            yield self.there.state

    def _node(self, name: str) -> None:
        ready = self.rng.random() < 0.8
        self.there.node(name, cpu=64, gpus=self.rng.choice((0, 0, 4, 8)), ready=ready)

    def _queue(self, name: str) -> None:
        rng, below = self.rng, NAMES[1 : NAMES.index(name)]
        most = rng.choice((None, None, rng.randint(1, 16)))
        promised = rng.choice((0, 0, rng.randint(0, 4 if most is None else min(most, 4))))
        self.there.queue(
            name,
            parent=rng.choice(["", *below]),
            weight=rng.randint(1, 4),
            capability=((GPU, most),) if most is not None else (),
            guarantee=((GPU, promised),) if promised else (),
            deserved=((GPU, promised + 1),) if rng.random() < 0.3 and (most is None or most > promised) else (),
            max_running=rng.choice((None, None, None, rng.randint(0, 4))),
            max_priority=rng.choice((None, None, 4)),
            user_fairness=self.fair and rng.random() < 0.3,
            queue_policy=rng.choice(("", "DRF")),
            non_preemptible=rng.choice([*NonPreemptible]),
        )

    def _job(self) -> None:
        rng = self.rng
        workers = rng.randint(0, 4)
        self.there.job(
            f"j{rng.randint(0, 30)}", of_queue=rng.choice(["", *NAMES]), workers=workers,
            min_workers=rng.randint(0, workers), leader=shape(cpu=1), worker=shape(cpu=1, gpus=rng.randint(0, 3)),
            created=rng.randint(0, 5), user=rng.choice(("ann", "ben")), priority=rng.randint(3, 6),
            preemptible=rng.random() < 0.6,
        )  # fmt: skip

    def _job_gone(self) -> None:
        if jobs := self.there.state.jobs:
            self.there.job_gone(jobs[self.rng.choice(sorted(jobs))])

    def _queue_changed(self) -> None:
        self._queue(self.rng.choice(NAMES[1:]))

    def _queue_gone(self) -> None:
        if len(queues := self.there.state.queues) > 2:
            self.there.queue_gone(self.rng.choice(sorted(queues)))

    def _move(self) -> None:
        self.there.namespace("default", queue=self.rng.choice(NAMES))

    def _node_changed(self) -> None:
        self._node(self.rng.choice(("n1", "n2", "n3")))

    def _stranger(self) -> None:
        name = f"stranger-{self.rng.randint(0, 3)}"
        if f"uid-{name}" in self.there.state.pods:
            self.there.pod_gone(f"uid-{name}")
        else:
            self.there.pod(name, self.rng.choice(("n1", "n2")), gpus=self.rng.randint(0, 3))

    def _time(self) -> None:
        self.there.pass_time(self.rng.choice((1, 20)))


seeds = st.integers(0, 2**32)


@by_chance
@given(seeds)
def test_shares_that_are_kept_up_to_date_are_those_found_from_nothing(seed: int) -> None:
    kept = KeptQueues()
    for state in Life(seed).steps(25):
        jobs, _ = considered(state, waiting_jobs(state, state.time_ms))
        one, other = (QueueStanding(state, jobs, state.time_ms, of) for of in (kept, None))
        assert (one.shares, one.total, one.lines, one.used) == (other.shares, other.total, other.lines, other.used)


@by_chance
@given(seeds)
def test_shares_are_those_of_what_the_queues_are_seen_to_demand(seed: int) -> None:
    kept = KeptQueues()
    for state in Life(seed, fair=False).steps(15):
        jobs, _ = considered(state, waiting_jobs(state, state.time_ms))
        standing, views, tree = QueueStanding(state, jobs, state.time_ms, kept), queues_view(state).queues, {}
        for name, view in views.items():
            spec = state.queue_tree.specs.get(name) if view.path else None
            if spec is not None:
                limits = {field: dict(getattr(spec, field)) for field in ("guarantee", "deserved", "capability")}
                tree[name] = QueueClaims(
                    name=name, parent=spec.parent, weight=spec.weight, **limits, demand=view.own_demand
                )
            elif view.own_demand:
                tree[name] = QueueClaims(name=name, demand=view.own_demand)
        shares = queue_shares(tree.values(), standing.total)
        assert {name: of for name, of in standing.shares.items() if name in shares} == shares


@by_chance
@given(seeds)
def test_a_process_that_keeps_the_queues_says_what_one_that_does_not_would_say(seed: int) -> None:
    life, cycles = Life(seed), Cycles()
    for state in life.steps(20):
        config, now_ms = life.there.config, life.there.now_ms
        assert cycles.take(state, config, now_ms) == take_cycle(state, config, now_ms)


@by_chance
@given(seeds)
def test_equal_jobs_of_several_queues_are_tried_as_each_for_itself(seed: int) -> None:
    """With an observer, no result is used for another job."""
    life = Life(seed)
    for copy in range(12):
        life.there.job(f"alike-{copy:02}", of_queue=NAMES[copy % 5], workers=3, worker=shape(gpus=1), min_workers=2)
    for state in life.steps(6):
        config, now_ms = life.there.config, life.there.now_ms
        assert take_cycle(state, config, now_ms, CycleObserver()) == take_cycle(state, config, now_ms)


@by_chance
@given(seeds)
def test_what_limits_leave_is_known_whoever_took_what(seed: int) -> None:
    life = Life(seed, fair=False)
    *_, state = life.steps(10)
    room = QueueRoom(state, state.time_ms)
    accounts = {name: QueueAccount(room, name) for name in state.queue_tree.paths}
    taken: list[tuple[str, str, int]] = []
    for _ in range(150):
        name, amount = life.rng.choice(sorted(accounts)), life.rng.randint(0, 2)
        if taken and life.rng.random() < 0.5:
            back, resource, of_it = taken.pop()
            accounts[back].take(resource, -of_it)
        else:
            accounts[name].take(GPU, amount)
            taken.append((name, GPU, amount))
        seen = life.rng.choice(sorted(accounts))
        limits = [limit.left for limit in room.limits(seen, GPU)]
        assert accounts[seen].limited == bool(limits) == (GPU in accounts[seen].left)
        asked = life.rng.randint(0, 9)
        assert not limits or accounts[seen].leaves(GPU, asked) == (asked <= min(limits))


def test_undoing_what_lay_within_a_guarantee_leaves_nothing_to_others() -> None:
    there = World()
    there.node("n1", gpus=8)
    there.queue("a", guarantee=((GPU, 4),))
    there.queue("b")
    room = QueueRoom(there.state, there.state.time_ms)
    one, other = QueueAccount(room, "a"), QueueAccount(room, "b")
    one.take(GPU, 2)
    assert other.leaves(GPU, 4)
    one.take(GPU, -2)
    assert other.leaves(GPU, 4) and not other.leaves(GPU, 5)


@pytest.mark.parametrize("field", JobSpec.__struct_fields__)
def test_jobs_are_alike_if_they_differ_in_nothing_but_the_queue(field: str) -> None:
    there = World()
    spec = there.job("j", of_queue="a").valid_spec
    other = msgspec.structs.replace(spec, **{field: "another"})
    assert (_without_queue(spec) == _without_queue(other)) == (field == "queue")
    assert (_asked(spec) == _asked(other)) == (field in ("queue", "priority"))


def test_thousands_of_equal_jobs_in_many_queues_are_searched_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    there, tried = World(), []
    there.node("n1", cpu=8)
    for number in range(20):
        there.queue(f"q{number}", capability=(("cpu", 999_000),))
        for copy in range(3):
            there.job(f"j{number}-{copy}", of_queue=f"q{number}", leader=shape(cpu=9))
    search = QuorumSearch.place
    monkeypatch.setattr(QuorumSearch, "place", lambda *of: tried.append(of[1]) or search(*of))
    there.cycle()
    assert len(tried) == 2, "once on the present nodes, and once without the pods there"


# --- what the nodes offer -------------------------------------------------------------------------------------------


def test_what_pods_of_other_programs_hold_is_nobodys_share_and_fulfils_no_guarantee() -> None:
    there = World()
    there.node("n1", gpus=8)
    there.pod("stranger", "n1", gpus=6)
    there.queue("a", guarantee=((GPU, 2),))
    there.queue("b")
    first = there.job("first", of_queue="b", leader=shape(gpus=2))
    there.cycle()
    assert not first.placements, "the two GPUs are a's"
    lack = lacking_quota(first.waits)
    assert lack is not None and (lack.left, lack.hard) == (0, 2)
    second = there.job("second", of_queue="a", leader=shape(gpus=2))
    there.cycle()
    assert second.placements
    there.job("third", of_queue="b", leader=shape(gpus=4))
    shares = {name: view.share[GPU] for name, view in queues_view(there.state).queues.items()}
    assert shares == {"a": 2, "b": 0, "default": 0}
    there.pod_gone("uid-stranger")
    there.cycle()
    assert first.placements


def test_a_resource_that_no_node_has_any_more_decides_nothing() -> None:
    """A projection that began at a snapshot doesn't know of it, and has to plan the same."""
    there = World()
    there.node("n1", cpu=8, gpus=4)
    there.queue("a")
    there.queue("b")
    there.job("first", of_queue="b", leader=shape(cpu=1, gpus=1))
    there.job("more", of_queue="a", leader=shape(cpu=2))
    there.cycle()
    there.node("n1", cpu=8)
    there.job("second", of_queue="b", leader=shape(cpu=1), created=1)
    there.job("third", of_queue="a", leader=shape(cpu=1), created=2)
    assert GPU not in offered(there.state, there.now_ms)
    restored = snapshot.restore(snapshot.encode(there.state))
    assert offered(restored, there.now_ms) == offered(there.state, there.now_ms)
    assert queues_view(restored).queues == queues_view(there.state).queues
    assert take_cycle(restored, there.config, there.now_ms) == take_cycle(there.state, there.config, there.now_ms)


def test_the_offer_stays_the_same_while_a_job_ends() -> None:
    there = World()
    there.node("n1", cpu=64, gpus=8)
    job = there.job("a", leader=shape(gpus=1), workers=2, min_workers=2, worker=shape(gpus=2))
    there.cycle()
    there.settle()
    amounts = [offered(there.state, there.now_ms)[GPU]]
    leader, *workers = [there.pods_of(job)[slot].uid for slot in sorted(there.pods_of(job))]
    there.change_pod(workers[0], phase=Phase.SUCCEEDED)
    amounts.append(offered(there.state, there.now_ms)[GPU])
    there.change_pod(leader, phase=Phase.SUCCEEDED)
    amounts.append(offered(there.state, there.now_ms)[GPU])
    there.control()
    assert job.ended and not job.placements and there.used("n1", GPU) == 2
    amounts.append(offered(there.state, there.now_ms)[GPU])
    there.job_gone(job)
    amounts.append(offered(there.state, there.now_ms)[GPU])
    assert amounts == [8, 8, 8, 8, 8], "one finished pod with a slot, then one that leaves without one"


def test_what_pods_of_other_programs_hold_is_not_offered() -> None:
    there = World()
    there.node("n1", cpu=64, gpus=8)
    there.pod("other", node="n1", gpus=3)
    there.pod("unbound", gpus=1)
    there.pod_to_place("mine", "n1", of=shape(gpus=2))
    assert offered(there.state, there.now_ms)[GPU] == 5
    assert there.state.queue_use.copy() == there.state.queue_use
    there.node("n1", cpu=64, gpus=8, ready=False)
    assert offered(there.state, there.now_ms)[GPU] == 2, "what our own pod holds"
    there.pod_gone("uid-other")
    assert offered(there.state, there.now_ms)[GPU] == 2
    there.node("n1", cpu=64, gpus=8)
    assert offered(there.state, there.now_ms)[GPU] == 8
    assert offered(snapshot.restore(snapshot.encode(there.state)), there.now_ms) == offered(there.state, there.now_ms)


def test_what_leaves_a_node_that_is_not_ready_is_not_offered() -> None:
    there = World()
    there.node("n1", cpu=64, gpus=8)
    job = there.job("a", workers=2, min_workers=2, worker=shape(gpus=2))
    there.cycle()
    there.settle()
    there.pod("other", node="n1", gpus=1)
    there.node("n2", gpus=4)
    there.node("n1", cpu=64, gpus=8, ready=False)
    assert offered(there.state, there.now_ms)[GPU] == 8, "what the job has on n1, and n2"
    leader = there.pods_of(job)[min(there.pods_of(job))].uid
    there.change_pod(leader, phase=Phase.SUCCEEDED)
    there.control()
    assert job.ended and there.used("n1", GPU) == 5
    assert offered(there.state, there.now_ms)[GPU] == 4


def test_a_pod_that_hangs_on_a_node_with_less_than_is_used_makes_no_offer_of_slots_whose_pods_have_ended() -> None:
    there = World()
    there.node("n1", cpu=64, gpus=8)
    gone, ending = (there.job(name, leader=shape(gpus=4)) for name in ("gone", "ending"))
    there.settle()
    (pod,) = there.pods_of(ending).values()
    there.job_gone(gone)
    there.pass_time(600)
    there.node("n1", cpu=64, gpus=2)
    assert offered(there.state, there.now_ms)[GPU] == 4, "what `ending` has"
    there.change_pod(pod.uid, phase=Phase.SUCCEEDED)
    assert offered(there.state, there.now_ms)[GPU] == 0
    there.node("n2", gpus=8)
    there.job("other", leader=shape(gpus=8))
    there.settle()
    there.node("n2", gpus=0)
    assert offered(there.state, there.now_ms)[GPU] == 8, "what `other` has on n2, and nothing more on n1"


def test_jobs_on_a_node_that_is_not_ready_take_nothing_from_the_ready_ones() -> None:
    there = World()
    there.node("n1", gpus=8)
    there.queue("a", guarantee=((GPU, 4),))
    there.queue("b")
    there.job("first", of_queue="b", leader=shape(gpus=4))
    there.cycle()
    there.node("n1", gpus=8, ready=False)
    there.node("n2", gpus=8)
    assert offered(there.state, there.now_ms)[GPU] == 12
    second = there.job("second", of_queue="b", leader=shape(gpus=4), created=1)
    third = there.job("third", of_queue="b", leader=shape(gpus=1), created=2)
    there.cycle()
    assert second.placements and not third.placements, "4 of the 8 free ones are a's"


def shrunk(gpus: int) -> World:
    """`first` of queue b holds 8 GPUs on n1, which then has so many; n2 and n3 are idle. Queue a has 15 guaranteed."""
    there = World()
    there.node("n1", gpus=8)
    there.queue("a", guarantee=((GPU, 15),))
    there.queue("b", deserved=((GPU, 8),))
    there.job("first", of_queue="b", leader=shape(gpus=8))
    there.node("n2", gpus=8)
    there.node("n3", gpus=8)
    there.cycle()
    there.settle()
    there.node("n1", cpu=8, gpus=gpus)
    return there


@pytest.mark.parametrize("gpus", [8, 7, 0])
def test_what_a_job_holds_beyond_its_ready_node_takes_nothing_from_other_nodes(gpus: int) -> None:
    """volcano-sh/volcano #5911: one GPU of a node dies, or its device plugin restarts, while a pod holds all 8."""
    there = shrunk(gpus)
    assert there.used("n1", GPU) == 8
    assert offered(there.state, there.now_ms)[GPU] == 24
    second = there.job("second", of_queue="b", leader=shape(gpus=1), created=1)
    third = there.job("third", of_queue="b", leader=shape(gpus=1), created=2)
    there.cycle()
    assert second.placements and not third.placements, "1 of the 16 idle ones isn't a's"
    assert offered(snapshot.restore(snapshot.encode(there.state)), there.now_ms) == offered(there.state, there.now_ms)


def test_pods_of_others_beyond_their_ready_node_take_nothing_from_other_nodes() -> None:
    there = World()
    there.node("n1", gpus=8)
    there.node("n2", gpus=8)
    there.pod("other", node="n1", gpus=4)
    there.pod_to_place("mine", "n1", of=shape(gpus=3))
    assert offered(there.state, there.now_ms)[GPU] == 12
    there.node("n1", gpus=2)
    assert offered(there.state, there.now_ms)[GPU] == 8 + 3, "ours holds 3"
    there.pod_gone("uid-mine")
    assert offered(there.state, there.now_ms)[GPU] == 8, "what the other one has beyond its node is nobody's loss"


def test_no_queue_gives_room_below_its_share_because_a_node_has_lost_its_gpus() -> None:
    """The device plugin of n1 restarts: queue a still has what it deserves, and b, which has more, gives room to c."""
    there = World(config=CycleConfig(preemption=Preemption()))
    for name in ("n1", "n2", "n3", "n4"):
        there.node(name, gpus=8)
    for name, deserved in (("a", 16), ("b", 8), ("c", 8)):
        there.queue(name, deserved=((GPU, deserved),))
    for number, of_queue in enumerate(("a", "a", "b", "b")):
        there.job(
            f"{of_queue}{number}",
            of_queue=of_queue,
            leader=shape(gpus=8),
            created=number,
            priority=4 + (number // 2) * 2,
        )
    there.cycle()
    there.settle()
    (node,) = there.state.jobs["uid-a0"].placements.values()
    there.node(node, gpus=0)
    there.job("first", of_queue="c", leader=shape(gpus=4), created=9)
    found = there.cycle()
    (taken,) = [of for of in found if isinstance(of, k.Preempted)]
    assert [of.job_uid[:5] for of in taken.victims] == ["uid-b"]


def test_a_pod_that_hangs_on_a_node_that_has_lost_its_gpus_takes_nothing_from_other_nodes() -> None:
    there = World()
    there.node("n1", gpus=8)
    there.node("n2", gpus=8)
    job = there.job("a", leader=shape(gpus=8))
    there.cycle()
    there.settle()
    (node,) = job.placements.values()
    (pod,) = there.pods_of(job).values()
    there.change_pod(pod.uid, deleting=True, times=PodTimes(leave_by_ms=there.now_ms))
    there.job_gone(job)
    there.pass_time(600)
    assert offered(there.state, there.now_ms)[GPU] == 8, "its room is nobody's"
    there.node(node, gpus=0)
    assert offered(there.state, there.now_ms)[GPU] == 8
