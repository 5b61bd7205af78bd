"""Shares change hands while members are late: controllers that decide on the same jobs do no harm, in any order.

Every controller here believes that all jobs are its own and has folded the log only so far, as one that was paused past
its heartbeats and wakes up, or several in the middle of a rebalance. The log is the arbiter.
"""

from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arranger.clock import SystemClock
from arranger.events import kinds as k
from arranger.model.job import Stage
from arranger.model.pod import Phase
from arranger.projections.fold import apply_entry
from arranger.projections.state import Changes, State
from arranger.workers.deciding.controller import Controller
from arranger.workers.members.membership import owner
from tests.parts import parts
from tests.world import World, shape

#: What controllers decide: with the nodes of its quorum a job starts.
ORDER = [Stage.RUNNING, Stage.SUCCEEDED]


class Everyone:
    """A membership whose every share is ours."""

    def owns(self, key: str, role: str) -> bool:
        return True


class Pausing(SystemClock):
    """A clock whose seconds pass when a test says so, with the time of the world."""

    def __init__(self, world: World) -> None:
        self.now_s = 0.0
        self._world = world

    def now_ms(self) -> int:
        return self._world.now_ms

    def monotonic_s(self) -> float:
        return self.now_s


class Late:
    """A controller and its own projection, which is behind the world's log for as long as nobody lets it read on."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._read = 0
        self.state = State()
        self.clock = Pausing(world)
        self.controller = Controller(parts(follower=self, membership=Everyone(), clock=self.clock))
        self.read_on()

    def read_on(self, entries: int = 10**9) -> None:
        """Fold some more of the log."""
        changes = Changes()
        for entry in self._world.entries[self._read :][:entries]:
            apply_entry(self.state, entry, changes)
            self._read += 1
        self.controller.changed(changes)

    def decide(self) -> list[k.Event]:
        """Decide on every job as far as it knows, and append that."""
        self.controller.changed(Changes(jobs=dict.fromkeys(self.state.jobs)))
        events = self.controller.decide() if self.state.synced else []
        if events:
            self._world.say(*events)
        return events


@pytest.fixture
def world() -> World:
    found = World()
    found.node("n1")
    return found


def test_a_controller_that_wakes_up_late_changes_nothing_by_what_it_still_decides(world: World) -> None:
    job = world.job("j", workers=1, min_workers=1)
    world.cycle()
    for _ in range(2):  # its leader runs, and then its worker
        world.apply()
    sleeper, other = Late(world), Late(world)
    assert [event.stage for event in other.decide() if isinstance(event, k.StageDecided)] == ["Running"]
    assert job.stage == Stage.RUNNING
    before = (job.stage, job.attempt, job.version, job.leader.address, dict(job.placements), dict(job.bound))
    (late,) = sleeper.decide()
    assert isinstance(late, k.StageDecided) and late.stage == "Running"
    verdict = world.verdict("StageDecided")
    assert not verdict.accepted and f"the job changed at offset {job.version}" in verdict.reason
    assert before == (job.stage, job.attempt, job.version, job.leader.address, dict(job.placements), dict(job.bound))
    sleeper.read_on()
    assert sleeper.decide() == [], "once it has read on it knows better"


@pytest.mark.parametrize(("workers", "at_once"), [(10, True), (200, False)])
def test_a_large_job_rests_between_looks_and_no_decision_on_it_is_lost(
    world: World, workers: int, at_once: bool
) -> None:
    world.node("n2", cpu=1000, pods=1000)
    job = world.job("j", workers=workers, min_workers=workers, worker=shape(cpu=0.1))
    world.settle()
    assert job.stage == Stage.RUNNING
    controller = Late(world)
    assert controller.decide() == []
    world.change_pod(job.bound[0, 0], phase=Phase.SUCCEEDED)
    controller.read_on()
    decided = controller.controller.decide()
    assert bool(decided) == at_once
    if not at_once:
        assert controller.controller.decide() == []
        controller.clock.now_s += 0.01
        decided = controller.controller.decide()
    (decision,) = decided
    assert isinstance(decision, k.StageDecided) and decision.stage == "Succeeded"


def test_a_late_decision_to_give_a_job_up_does_not_end_its_next_attempt(world: World) -> None:
    job = world.job("j", restart_limit=1)
    world.cycle()
    other = Late(world)
    other.decide()
    world.apply()
    world.change_pod(job.bound[0, 0], phase=Phase.FAILED)
    other.read_on()
    sleeper = Late(world)
    other.decide()  # a new attempt
    assert (job.stage, job.attempt) == (Stage.RESCHEDULING, 1)
    (late,) = sleeper.decide()
    assert isinstance(late, k.StageDecided) and late.stage == "Rescheduling" and late.attempt == 0
    assert not world.verdict("StageDecided").accepted
    assert (job.stage, job.attempt, job.leader.restarts) == (Stage.RESCHEDULING, 1, 1), "the restart was counted once"


steps = st.lists(
    st.one_of(
        st.tuples(st.just("read"), st.integers(0, 2), st.integers(1, 6)),
        st.tuples(st.just("decide"), st.integers(0, 2), st.just(0)),
        st.tuples(st.just("outside"), st.just(0), st.just(0)),
        st.tuples(st.just("finish"), st.integers(0, 3), st.just(0)),
    ),
    max_size=60,
)


@settings(max_examples=60)
@given(steps)
def test_whoever_decides_and_however_late_each_job_takes_each_step_once_and_in_order(drawn: list[tuple]) -> None:  # type: ignore[type-arg]
    world = World()
    world.node("n1")
    jobs = [world.job(f"j{number}", workers=1, min_workers=1) for number in range(4)]
    world.cycle()
    members = [Late(world) for _ in range(3)]
    for what, which, count in drawn:
        if what == "read":
            members[which].read_on(count)
        elif what == "decide":
            members[which].decide()
        elif what == "outside":
            world.apply()
        else:
            finish(world, which)
    for _ in range(12):  # nobody is late for ever
        for member in members:
            member.read_on()
            member.decide()
        world.apply()
        for which in range(len(jobs)):
            finish(world, which)
    assert {job.stage for job in jobs} == {Stage.SUCCEEDED}
    for uid, accepted in accepted_stages(world).items():
        assert accepted == ORDER, uid


def finish(world: World, which: int) -> None:
    """The leader of a job that runs ends well."""
    job = world.state.jobs[f"uid-j{which}"]
    leader = job.bound.get((0, 0))
    if job.stage == Stage.RUNNING and leader is not None and world.state.pods[leader].phase == Phase.RUNNING:
        world.change_pod(leader, phase=Phase.SUCCEEDED)


def accepted_stages(world: World) -> dict[str, list[str]]:
    """The stages that the log accepted for each job, in its order."""
    accepted = {verdict.offset for verdict in world.verdicts if verdict.accepted}
    found: dict[str, list[str]] = defaultdict(list)
    for entry in world.entries:
        for offset, event in enumerate(entry.batch.events, start=entry.first):
            if isinstance(event, k.StageDecided) and offset in accepted:
                found[event.job_uid].append(event.stage)
    return found


def test_a_member_that_comes_takes_its_part_and_moves_no_other_key() -> None:
    keys = [f"uid-{number}" for number in range(3000)]
    three = {key: owner(key, ["a", "b", "c"]) for key in keys}
    four = {key: owner(key, ["a", "b", "c", "d"]) for key in keys}
    moved = [key for key in keys if three[key] != four[key]]
    assert {four[key] for key in moved} == {"d"}
    assert 0.8 < len(moved) / (len(keys) / 4) < 1.2
    assert {three[key] for key in moved} == {"a", "b", "c"}, "each gives a part"
