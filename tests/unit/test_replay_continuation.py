"""What would have come of it: with nothing otherwise it is what the log says; with something otherwise it differs."""

import random
from typing import Any

import msgspec
import pytest

from arranger.events import kinds as k
from arranger.events.log import Entry
from arranger.model.job import Dependency, Stage
from arranger.model.pod import Phase
from arranger.model.queue import Preemption
from arranger.projections import snapshot
from arranger.projections.jobs.parts import LEADER
from arranger.projections.jobs.run_times import JobKind
from arranger.projections.state import State
from arranger.replay.reading.history import Journey, Point
from arranger.replay.reading.recording import Recording
from arranger.replay.what_if import continuation
from arranger.replay.what_if.continuation import Continuation, Future
from arranger.replay.what_if.one_cycle import Variation, vary
from arranger.replay.what_if.overrides import Overrides
from arranger.replay.what_if.utilisation import Meter, Utilisation, likeness, typical_pods
from arranger.scheduling.queues.registry import BUILT_IN
from tests.world import World, shape

#: A moment in a timeline: what happens, to which job.
Step = tuple[float, str, Any]


class Timeline:
    """A world in which jobs come at times and run for so many seconds from when they have nodes."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.began_ms = world.now_ms
        self._runs: dict[str, float] = {}
        self._ends: dict[str, float] = {}
        self._steps: list[tuple[float, int, Any]] = []

    def at(self, second: float, happens: Any) -> None:
        self._steps.append((second, len(self._steps), happens))

    def job(self, second: float, name: str, *, runs: float | None, **fields: Any) -> None:
        """A job that comes then and runs so long, None for ever."""
        if runs is not None:
            self._runs[name] = runs
        self.at(second, lambda: self.world.job(name, created=self.world.now_ms, **fields))

    def play(self) -> World:
        world = self.world
        while self._steps or self._ends:
            moments = [step[0] for step in self._steps] + list(self._ends.values())
            now = min(moments)
            world.now_ms = self.began_ms + round(now * 1000)
            due = sorted(step for step in self._steps if step[0] == now)
            self._steps = [step for step in self._steps if step[0] != now]
            for _, _, happens in due:
                happens()
            for name in sorted(name for name, end in self._ends.items() if end == now):
                del self._ends[name]
                self._end(name)
            world.settle()
            self._note_starts(now)
        return world

    def _end(self, name: str) -> None:
        job = self.world.state.jobs.get(f"uid-{name}")
        if job is not None and LEADER in job.bound:
            self.over(name, Phase.SUCCEEDED)

    def over(self, name: str, phase: Phase) -> None:
        """The leader ends; what follows for the job is decided and done before anybody else gets its room."""
        self.world.change_pod(self.world.state.jobs[f"uid-{name}"].bound[LEADER], phase=phase, ready=False)
        while self.world.control() or self.world.apply():
            pass

    def _note_starts(self, now: float) -> None:
        for name in list(self._runs):
            job = self.world.state.jobs.get(f"uid-{name}")
            if job is not None and job.quorum_placed():
                self._ends[name] = now + self._runs.pop(name)


def read_on(entries: list[Entry], offset: int, *, lasting_ms: int | None = None) -> tuple[State, Future, Recording]:
    """The state at an offset, and what the log says came after."""
    journey = Journey(State(), Point(offset=offset))
    for entry in entries:
        if not journey.feed(entry):
            break
    state = journey.state
    recording = Recording(snapshot.restore(snapshot.encode(state)), begin_ms=state.time_ms)
    for entry in entries:
        if entry.first > state.offset:
            recording.feed(entry)
    recording.finish()
    return state, Future(recording.observations, recording.intervals, lasting_ms), recording


def utilisation(
    world: World, offset: int, *, until_ms: int | None = None, lasting_ms: int | None = None, **otherwise: Any
) -> tuple[Utilisation, Recording]:
    """How it goes on from an offset, with something otherwise."""
    state, future, recording = read_on(world.entries, offset, lasting_ms=lasting_ms)
    variation = Variation(**otherwise)
    began_ms = state.time_ms
    vary(state, variation, began_ms)
    config, by = variation.overrides.of(world.config, BUILT_IN)
    meter = Meter(typical_pods([(shape(cpu=1, gpus=1), 1)]), began_ms)
    continuation = Continuation(
        state, future, config, meter, begin_ms=began_ms, until_ms=until_ms, variation=variation, policies=by
    )
    return continuation.run(), recording


def second(world: World, moment_ms: int, timeline: Timeline) -> float:
    return (moment_ms - timeline.began_ms) / 1000


def one_node() -> Timeline:
    """A node of 4 GPUs. `first` holds it for 100 s; `large`, then `small` and `tiny` come meanwhile."""
    world = World()
    world.node("n1", gpus=4)
    timeline = Timeline(world)
    timeline.job(0, "first", runs=100, leader=shape(gpus=3))
    timeline.job(10, "large", runs=50, leader=shape(gpus=3))
    timeline.job(20, "small", runs=30, leader=shape(gpus=2))
    timeline.job(30, "tiny", runs=10, leader=shape(gpus=2))
    return timeline


def random_timeline(seed: int) -> Timeline:
    """Jobs of many sizes, some elastic, some of other policies, on nodes that come, go and are cordoned; strangers."""
    chance = random.Random(seed)
    world = World()
    for number in range(4):
        world.node(f"n{number}", gpus=chance.choice([2, 4, 8]), cpu=64)
    timeline = Timeline(world)
    for number in range(40):
        gpus = chance.choice([1, 1, 2, 4])
        workers = chance.choice([0, 1, 3])
        timeline.job(
            chance.uniform(0, 200), f"j{number}", runs=chance.uniform(5, 60),  # never two things at one moment
            leader=shape(cpu=1, gpus=chance.choice([0, 1])), workers=workers, worker=shape(cpu=1, gpus=gpus),
            min_workers=chance.randint(0, workers), priority=chance.randint(1, 3),
            queue=chance.choice(["", "", "DRF"]), policy=chance.choice(["", "LeaderFirst"]),
        )  # fmt: skip
    for number in range(6):
        timeline.at(chance.uniform(0, 200), lambda n=number: world.pod(f"s{n}", f"n{n % 4}", cpu=2))
    timeline.at(60, lambda: world.node("n9", gpus=4))
    timeline.at(90, lambda: world.node("n9", gpus=4, cordoned=True))
    return timeline


# --- nothing otherwise ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_with_nothing_otherwise_every_job_starts_and_ends_when_it_did(seed: int) -> None:
    timeline = random_timeline(seed)
    world = timeline.play()
    for part in (7, 3, 2):
        offset = world.state.offset // part
        found, recording = utilisation(world, offset, until_ms=world.now_ms)
        starts = recording.starts(recording.end_ms)
        assert starts == found.starts and len(starts) > 5
        alike = likeness(starts, found.starts)
        assert (alike.common, alike.equal, alike.only_log, alike.only_here) == (len(starts), len(starts), 0, 0)
        ended = [job for job in world.state.jobs.values() if job.ended]
        assert found.makespan_ms == max(job.times.completion_ms for job in ended) - found.begin_ms


def test_jobs_that_wait_for_others_start_and_fail_when_these_end() -> None:
    world = World()
    world.node("n1", gpus=8)
    timeline = Timeline(world)
    timeline.job(0, "prep", runs=100, leader=shape(gpus=1))
    timeline.job(0, "bad", runs=None, leader=shape(gpus=1), restart_limit=0)
    timeline.job(10, "train", runs=50, leader=shape(gpus=1), after=[Dependency("prep")])
    timeline.job(10, "eval", runs=20, leader=shape(gpus=1), after=[Dependency("train"), Dependency("bad")])
    timeline.at(120, lambda: timeline.over("bad", Phase.FAILED))
    timeline.play()
    assert {name: world.state.jobs[f"uid-{name}"].stage for name in ("prep", "train", "eval")} == {
        "prep": "Succeeded", "train": "Succeeded", "eval": "Failed"
    }  # fmt: skip
    found, recording = utilisation(world, 12, until_ms=world.now_ms)
    assert found.starts == recording.starts(recording.end_ms) and found.waiting_at_end == 0
    assert second(world, found.starts["uid-train", 0], timeline) == 100


@pytest.mark.parametrize(("lasting_ms", "fails"), [(None, True), (61_000, True), (60_000, False)])
def test_an_attempt_without_a_recorded_end_fails_at_its_deadline(lasting_ms: int | None, fails: bool) -> None:
    world = World()
    world.node("n1", gpus=1)
    prep = world.job("prep", leader=shape(gpus=1), workers=0, min_workers=0, deadline_s=60)
    world.job("other", leader=shape(gpus=1), workers=0, min_workers=0, priority=1)
    world.job("train", leader=shape(gpus=1), workers=0, min_workers=0, after=[Dependency("prep")])
    world.settle()
    assert prep.stage == Stage.RUNNING
    found, _ = utilisation(world, world.state.offset, lasting_ms=lasting_ms)
    first = "other" if fails else "train"
    starts = {uid: moment_ms - world.now_ms for (uid, _), moment_ms in found.starts.items()}
    assert starts[f"uid-{first}"] == 60_000 and ("uid-train" in starts) == (not fails)
    assert "default/prep" not in found.endless_jobs


def test_from_a_recorded_cycle_on_it_begins_with_that_very_cycle() -> None:
    world = random_timeline(3).play()
    cycles = [(entry, e) for entry in world.entries for e in entry.batch.events if isinstance(e, k.CycleTaken)]
    for entry, taken in cycles[5::9]:
        state, future, _ = read_on(world.entries, taken.base)
        recording = Recording(snapshot.restore(snapshot.encode(state)), begin_ms=taken.time_ms)
        for later in world.entries:
            if later.first > taken.base:
                recording.feed(later)
        recording.finish()
        future = Future(recording.observations, recording.intervals)
        meter = Meter(None, taken.time_ms)
        continuation = Continuation(state, future, taken.config, meter, begin_ms=taken.time_ms, until_ms=world.now_ms)
        found = continuation.run(cycle_first=True)
        assert found.starts == recording.starts(recording.end_ms)
        placed = [e for e in entry.batch.events if isinstance(e, k.Placed)]
        assert all(found.starts.get((e.job_uid, e.attempt), taken.time_ms) == taken.time_ms for e in placed)


def test_an_idle_gpu_is_a_fragment_only_to_pods_that_ask_for_gpus() -> None:
    actors, learner = (shape(cpu=2), 64), (shape(cpu=8, gpus=1), 1)
    for cpu, pods, fragmented in (
        (64, [actors, learner], 0),  # the learner can use every GPU, whatever its actors are
        (4, [actors, learner], 1),  # too few cpus beside the GPUs
        (64, [actors, learner, (shape(cpu=8, gpus=8), 3)], 0.75),  # of four pods that ask for GPUs, three need 8
        (64, [actors], 0),  # nobody asks for GPUs
    ):
        world = World()
        world.node("n1", cpu=cpu, gpus=4)
        meter = Meter(typical_pods(pods), world.now_ms)
        meter.sample(world.state, world.now_ms)
        assert meter.utilisation(world.state, world.now_ms + 1000).gpu_fragmentation == fragmented


def test_the_figures_are_those_of_a_small_case_worked_out_by_hand() -> None:
    timeline = one_node()
    world = timeline.play()
    first = next(entry for entry in world.entries if any(isinstance(e, k.JobSeen) for e in entry.batch.events))
    found, _ = utilisation(world, first.last)
    starts = {uid.removeprefix("uid-"): second(world, moment, timeline) for (uid, _), moment in found.starts.items()}
    # `small` goes first by no key: `large` is older, and has room from 100 on; then both small ones.
    assert starts == {"first": 0, "large": 100, "small": 150, "tiny": 150}
    assert (found.started, found.ended, found.waiting_at_end, found.endless) == (4, 4, 0, 0)
    assert found.wait_mean_ms == (0 + 90 + 130 + 120) * 1000 // 4
    assert (found.wait_p50_ms, found.wait_p95_ms) == (90_000, 130_000)
    assert found.makespan_ms == 180_000
    used = 3 * 100 + 3 * 50 + 2 * 30 + 2 * 10
    assert found.gpu_utilisation == pytest.approx(used / (4 * 180))
    assert found.gpu_fragmentation == 0
    assert found.curve[0].gpus_used == 3 and found.curve[-1].gpus_used == 0


# --- something otherwise -------------------------------------------------------------------------------------


def began(timeline: Timeline) -> int:
    """The offset after the first job came, before anything was placed."""
    entries = timeline.world.entries
    return next(entry.last for entry in entries if any(isinstance(e, k.JobSeen) for e in entry.batch.events))


def started(world: World, timeline: Timeline, **otherwise: Any) -> dict[str, float]:
    found, _ = utilisation(world, began(timeline), **otherwise)
    return {uid.removeprefix("uid-"): second(world, moment, timeline) for (uid, _), moment in found.starts.items()}


def test_another_queue_policy_lets_others_start_first() -> None:
    timeline = one_node()
    world = timeline.play()
    by_drf = started(world, timeline, overrides=Overrides(queue_policy="DRF"))
    assert by_drf == {"first": 0, "small": 100, "tiny": 100, "large": 130}


def test_a_job_that_is_not_there_stays_away_though_the_log_says_that_it_came() -> None:
    timeline = one_node()
    world = timeline.play()
    assert started(world, timeline, without_jobs=("uid-large",)) == {"first": 0, "small": 100, "tiny": 100}


def test_a_node_more_is_used_from_the_point_on() -> None:
    timeline = one_node()
    world = timeline.play()
    seen = next(e for entry in world.entries for e in entry.batch.events if isinstance(e, k.NodeSeen))
    more = msgspec.structs.replace(seen, name="n2", uid="uid-n2")
    assert started(world, timeline, added=(more,)) == {"first": 0, "large": 10, "small": 60, "tiny": 60}


def test_a_node_that_is_not_there_is_not_seen_later_either() -> None:
    timeline = one_node()
    timeline.world.node("n2", gpus=4)
    timeline.at(15, lambda: timeline.world.node("n2", gpus=4, labels={"zone": "a"}))
    world = timeline.play()
    assert started(world, timeline)["large"] == 10
    assert started(world, timeline, without_nodes=("n2",)) == {"first": 0, "large": 100, "small": 150, "tiny": 150}


def test_a_job_that_already_ran_at_the_point_goes_on_for_the_rest_of_its_time() -> None:
    timeline = one_node()
    world = timeline.play()
    running = next(
        entry.last for entry in world.entries if any(getattr(e, "uid", "") == "uid-small" for e in entry.batch.events)
    )
    found, recording = utilisation(world, running)
    assert found.begin_ms == timeline.began_ms + 20_000
    assert found.starts == recording.starts(recording.end_ms)
    assert {uid for uid, _ in found.starts} == {"uid-large", "uid-small", "uid-tiny"}
    # `large` has waited since 10 s, before the point.
    assert found.wait_p50_ms == 120_000 and found.wait_p95_ms == 130_000


def test_what_the_log_shows_no_end_of_lasts_to_the_horizon_or_as_long_as_one_says() -> None:
    timeline = one_node()
    timeline.job(40, "endless", runs=None, leader=shape(gpus=1))
    timeline.job(50, "never", runs=None, leader=shape(gpus=4))
    world = timeline.play()
    horizon_ms = timeline.began_ms + 300_000
    found, _ = utilisation(world, began(timeline), until_ms=horizon_ms)
    assert (found.endless, found.waiting_at_end, found.end_ms) == (1, 1, horizon_ms)
    assert found.wait_p95_ms == 250_000, "`never` has waited since 50 s"
    found, _ = utilisation(world, began(timeline), until_ms=horizon_ms, lasting_ms=60_000)
    assert (found.endless, found.waiting_at_end) == (0, 0)
    assert found.starts["uid-never", 0] == timeline.began_ms + 180_000


def test_only_ends_that_the_log_has_are_evidence_of_how_long_jobs_run() -> None:
    """`first` ends as in the log; `never` got no nodes there, and lasts as long as one says."""
    timeline = one_node()
    kind = {"image": "train:1", "user": "ann"}
    timeline.job(40, "endless", runs=None, leader=shape(gpus=1))
    timeline.job(50, "never", runs=None, leader=shape(gpus=4), **kind)
    timeline.job(60, "last", runs=None, leader=shape(gpus=4), **kind, after=(Dependency("never"),))
    timeline.job(0, "known", runs=70, leader=shape(gpus=1), **kind)
    world = timeline.play()
    state, future, _ = read_on(world.entries, began(timeline), lasting_ms=60_000)
    meter = Meter(typical_pods([(shape(cpu=1, gpus=1), 1)]), state.time_ms)
    until_ms = timeline.began_ms + 400_000
    Continuation(state, future, world.config, meter, begin_ms=state.time_ms, until_ms=until_ms).run()
    assert state.jobs["uid-never"].stage == state.jobs["uid-last"].stage == Stage.SUCCEEDED
    assert state.run_times == {JobKind("ann", "", "train:1"): (70_000,)}


def test_a_job_that_runs_when_the_log_ends_is_assumed_to_succeed_and_not_to_be_deleted() -> None:
    timeline = one_node()
    timeline.job(40, "endless", runs=None, leader=shape(gpus=1))
    timeline.job(50, "next", runs=None, leader=shape(gpus=1), after=(Dependency("endless"),))
    world = timeline.play()
    found, _ = utilisation(world, began(timeline), until_ms=timeline.began_ms + 300_000, lasting_ms=60_000)
    assert second(world, found.starts["uid-next", 0], timeline) == 100


@pytest.mark.parametrize(("ends", "starts_s"), [(False, 60), (True, 200)])
def test_pods_of_others_without_an_end_in_the_log_last_as_long_as_one_says(*, ends: bool, starts_s: int) -> None:
    world = World()
    world.node("n1", gpus=2)
    world.pod_to_place("other", of=shape(gpus=2))
    world.cycle()
    world.pod_to_place("other", "n1", of=shape(gpus=2))
    began_ms, offset = world.now_ms, world.state.offset
    world.job("next", leader=shape(gpus=1))
    world.pass_time(200)
    told: dict[str, Any] = {"phase": "Succeeded"} if ends else {"priority": 1}
    world.pod_asking("other", "n1", of=shape(gpus=2), **told)
    found, _ = utilisation(world, offset, until_ms=began_ms + 600_000, lasting_ms=60_000)
    assert found.starts["uid-next", 0] == began_ms + 1000 * starts_s
    assert found.waiting_at_end == 0 and found.endless == 0


def test_the_horizon_cuts_everything_off() -> None:
    timeline = one_node()
    world = timeline.play()
    found, _ = utilisation(world, began(timeline), until_ms=timeline.began_ms + 120_000)
    assert (found.started, found.ended, found.waiting_at_end) == (2, 1, 2)
    assert found.gpu_utilisation == pytest.approx(3 / 4)
    assert found.makespan_ms == 100_000


def test_an_attempt_that_was_scheduled_again_is_so_here_after_as_long() -> None:
    timeline = one_node()
    world = timeline.world
    timeline.at(40, lambda: timeline.over("first", Phase.FAILED))
    timeline.play()
    assert world.state.jobs["uid-first"].attempt == 1
    found, recording = utilisation(world, began(timeline))
    assert found.starts == recording.starts(recording.end_ms)
    assert ("uid-first", 1) in found.starts
    by_drf, _ = utilisation(world, began(timeline), overrides=Overrides(queue_policy="DRF"))
    assert by_drf.starts["uid-small", 0] == timeline.began_ms + 40_000


def test_a_job_deleted_while_it_ran_runs_as_long_and_one_deleted_while_it_waited_goes_then() -> None:
    timeline = one_node()
    world = timeline.world
    timeline.at(60, lambda: world.job_gone(world.state.jobs["uid-small"]))

    def delete_running() -> None:
        job = world.state.jobs["uid-large"]
        world.job_gone(job)
        for uid in list(world.state.pods_of.get("uid-large", {})):
            world.pod_gone(uid)

    timeline.at(120, delete_running)
    timeline.play()
    assert started(world, timeline) == {"first": 0, "large": 100, "tiny": 120}
    seen = next(e for entry in world.entries for e in entry.batch.events if isinstance(e, k.NodeSeen))
    more = msgspec.structs.replace(seen, name="n2", uid="uid-n2", facts=seen.facts)
    with_more = started(world, timeline, added=(more,))
    assert with_more["large"] == 10 and with_more["small"] == 30 and "tiny" in with_more


def test_a_policy_for_every_job_goes_for_those_too_that_come_later() -> None:
    timeline = one_node()
    timeline.job(40, "own", runs=5, leader=shape(gpus=1), queue="Priority", priority=9)
    world = timeline.play()
    found, _ = utilisation(world, began(timeline), overrides=Overrides(queue_policy="DRF", every_job=True))
    alone, _ = utilisation(world, began(timeline), overrides=Overrides(queue_policy="DRF"))
    assert len(found.starts) == len(alone.starts) == 5
    state, future, _ = read_on(world.entries, began(timeline))
    config, by = Overrides(queue_policy="DRF").of(world.config, BUILT_IN)
    varied = Variation(Overrides(queue_policy="DRF", every_job=True))
    vary(state, varied, state.time_ms)
    meter = Meter(None, state.time_ms)
    begin_ms = state.time_ms
    Continuation(state, future, config, meter, begin_ms=begin_ms, until_ms=None, variation=varied, policies=by).run()
    spec = state.jobs["uid-own"].spec
    assert spec is not None and spec.queue_policy == ""


# --- until nothing more happens ------------------------------------------------------------------------------


def reserved_for_ever(**behind: Any) -> tuple[Timeline, World]:
    """A node whose first job never ends, though it is expected to after 60 s; `large` waits for its room, with a
    reservation, and `behind` for what the reservation keeps."""
    world = World()
    world.config = msgspec.structs.replace(world.config, reservations=1, reservation_refresh_ms=30_000, guests=False)
    world.node("n1", gpus=4)
    timeline = Timeline(world)
    timeline.job(0, "first", runs=None, leader=shape(gpus=3), expected_s=60)
    timeline.job(10, "large", runs=None, leader=shape(gpus=4))
    if behind:
        timeline.job(20, "behind", runs=None, leader=shape(gpus=1), priority=1, **behind)
    return timeline, timeline.play()


def test_a_run_without_a_horizon_ends_once_nothing_but_a_reservation_moves() -> None:
    timeline, world = reserved_for_ever()
    assert world.state.reservations["uid-large"].decided.start_ms == timeline.began_ms + 60_000
    found, _ = utilisation(world, began(timeline))
    assert second(world, found.end_ms, timeline) == 10, "nothing came of the times after that"
    assert found.endless_jobs == ("default/first",) and found.waiting_jobs == ("default/large",)
    assert found.starts == {("uid-first", 0): timeline.began_ms} and found.wait_p95_ms == 0


def test_a_run_goes_on_while_a_moved_reservation_may_let_a_job_go_first() -> None:
    """Room is kept for `large` until 60 s, 120 s, 240 s, 480 s, and then until 960 s: 300 s fit before that."""
    timeline, world = reserved_for_ever(expected_s=300)
    found, _ = utilisation(world, began(timeline))
    assert found.starts["uid-behind", 0] == timeline.began_ms + 480_000
    assert second(world, found.end_ms, timeline) == 480
    assert found.endless_jobs == ("default/first", "default/behind") and found.waiting_jobs == ("default/large",)
    month = 30 * 86_400
    timeline, world = reserved_for_ever(expected_s=month)
    found, _ = utilisation(world, began(timeline))
    assert second(world, found.starts["uid-behind", 0], timeline) > month


def test_an_attempt_beyond_the_log_does_not_begin_again_for_ever() -> None:
    """`first` failed after 40 s and was to begin again, and the log ends before it did."""
    world = World()
    world.config = msgspec.structs.replace(world.config, room_bound_ms=60_000)
    world.node("n1", gpus=4)
    timeline = Timeline(world)
    timeline.job(0, "first", runs=None, leader=shape(gpus=4), priority=1)
    timeline.job(10, "large", runs=None, leader=shape(gpus=4))
    timeline.at(40, lambda: timeline.over("first", Phase.FAILED))
    timeline.play()
    otherwise = Overrides(preemption=Preemption())
    found, _ = utilisation(world, began(timeline), lasting_ms=100_000, overrides=otherwise)
    starts = {attempt: second(world, at, timeline) for (uid, attempt), at in found.starts.items() if uid == "uid-first"}
    assert starts[0] == 0 and starts[1] == 110 and len(starts) == 3, "taken room from, as in the log, and once more"
    assert (found.ended, found.waiting_at_end, found.endless) == (2, 0, 0)


def test_a_run_in_which_only_reservations_move_ends_after_so_many_times(monkeypatch: pytest.MonkeyPatch) -> None:
    timeline, world = reserved_for_ever(expected_s=30 * 86_400)
    monkeypatch.setattr(continuation, "_MOST_IDLE", 4)
    found, _ = utilisation(world, began(timeline))
    assert ("uid-behind", 0) not in found.starts and second(world, found.end_ms, timeline) == 20
