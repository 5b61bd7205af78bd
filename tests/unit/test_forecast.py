"""Forecasts of the pure core: when waiting jobs start if nothing new comes, and how sure that is."""

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arranger.events.kinds import Placed, Reserved
from arranger.model.config import CycleConfig
from arranger.model.job import Dependency, OnFailure, Stage
from arranger.model.pod import PodTimes
from arranger.model.queue import Preemption
from arranger.model.steps import Steps
from arranger.projections import snapshot
from arranger.projections.consistency import validate
from arranger.projections.jobs.records import JobRecord, has_started
from arranger.replay.forecast import starts
from arranger.replay.forecast.ends import Ends, EndScenario
from arranger.replay.forecast.starts import Forecast, JobForecast, Unknown, forecast
from arranger.replay.what_if import hypothesis
from arranger.replay.what_if.continuation import Continuation
from arranger.replay.what_if.hypothesis import job_gone
from arranger.scheduling.cluster.view import ClusterView
from arranger.scheduling.cycle import VERSIONS, Cycles, take_cycle
from arranger.scheduling.room.short_jobs import ShortJobs
from arranger.scheduling.room.too_large import TooLarge
from tests.jobs_over_time import JobsOverTime
from tests.world import World, shape

CONFIG = CycleConfig(
    versions=VERSIONS,
    refusal_avoid_ms=60_000,
    reservations=1,
    reservation_refresh_ms=30_000,
    search_steps=30_000,
    preemption=Preemption(),
    room_bound_ms=60_000,
    learned_runtimes=True,
)
GPU = shape(cpu=1, gpus=1)


def world(nodes: int = 1, *, gpus: int = 4, **config: object) -> World:
    of = World(config=msgspec.structs.replace(CONFIG, **config))
    for number in range(nodes):
        of.node(f"n{number}", cpu=64, gpus=gpus)
    return of


def submit(of: World, name: str, gpus: int, **spec: object) -> JobRecord:
    return of.job(name, leader=shape(cpu=1, gpus=gpus), **spec)  # type: ignore[arg-type]


def running(of: World, name: str, gpus: int, **spec: object) -> JobRecord:
    job = submit(of, name, gpus, **spec)
    of.settle()
    assert job.stage == Stage.RUNNING
    return job


def ran(of: World, *lasted_s: int) -> None:
    """Earlier jobs of one kind that have succeeded after these times."""
    for number, lasts_s in enumerate(lasted_s):
        job = running(of, f"old{number}", 1, image="train:1", user="ann")
        of.pass_time(lasts_s)
        of.change_pod(job.bound[0, 0], phase="Succeeded", ready=False)
        of.settle()
        assert job.stage == Stage.SUCCEEDED


def forecast_of(of: World, *, first: int = 100, until_ms: int | None = None) -> Forecast:
    return forecast(of.state, of.config, of.now_ms, first=first, until_ms=until_ms)


def by_name(found: Forecast) -> dict[str, JobForecast]:
    return {one.job.removeprefix("default/"): one for one in found.jobs}


def seconds(of: World, moment_ms: int) -> float:
    return (moment_ms - of.now_ms) / 1000


# --- exact ends --------------------------------------------------------------------------------------------------


def _jobs(
    seed: int, *, jobs: int, reservations: int, least_s: int | None = None
) -> tuple[JobsOverTime, dict[str, int]]:
    """A cluster in the middle of its work, whose jobs say exactly how long they run, and these times in ms. They take
    room from each other once they have had their nodes for `least_s`; None for never."""
    chance = random.Random(seed)
    preemption = Preemption() if least_s is not None else None
    config = msgspec.structs.replace(CONFIG, reservations=reservations, preemption=preemption)
    over = JobsOverTime(config, ended=lambda job: None)
    if least_s is not None:
        over.world.queue("default", min_runtime_s=least_s)
    lasts_ms: dict[str, int] = {}
    for number in range(chance.randint(1, 3)):
        over.world.node(f"n{number}", cpu=64, gpus=8 if not number else chance.choice([2, 4]))
    for number in range(jobs):
        name = f"j{number}"
        runs_s = chance.randint(5, 500)
        lasts_ms[name] = 1000 * runs_s
        workers = chance.choice([0, 0, 1, 3])
        over.world.job(
            name, leader=shape(cpu=1, gpus=chance.choice([0, 1, 2])), workers=workers, worker=GPU, min_workers=workers,
            priority=chance.randint(1, 3), expected_s=runs_s,
        )  # fmt: skip
        over.cycle(lambda job: lasts_ms[job.seen.name])
        over.world.now_ms += chance.randint(0, 20_000)
        over.end_due()
    over.cycle(lambda job: lasts_ms[job.seen.name])
    return over, lasts_ms


@pytest.mark.slow
@settings(max_examples=25)
@given(seed=st.integers(0, 1 << 30), reservations=st.integers(0, 2))
def test_with_exact_ends_and_no_arrivals_each_job_starts_when_it_was_forecast(seed: int, reservations: int) -> None:
    over, lasts_ms = _jobs(seed, jobs=20, reservations=reservations)
    over.cycle(lambda job: lasts_ms[job.seen.name])  # where a reservation was used, the next cycle makes another one
    found = forecast_of(over.world)
    began: dict[str, int] = {}
    reserved: dict[int, None] = {}  # a cycle is due at each time that was ever promised
    while (end_ms := over.next_end_ms()) is not None:
        over.world.now_ms = min([end_ms, *(start_ms for start_ms in reserved if start_ms > over.world.now_ms)])
        over.end_due()
        while placed := over.cycle(lambda job: lasts_ms[job.seen.name]):
            began.update((job.seen.name, over.world.now_ms) for job in placed)
            reserved.update((of.decided.start_ms, None) for of in over.world.state.reservations.values())
        reserved.update((of.decided.start_ms, None) for of in over.world.state.reservations.values())
    assert {name: one.expected_ms for name, one in by_name(found).items() if one.expected_ms} == began


class _EverySecond(Continuation):
    """Takes a cycle in every second of the first half an hour too."""

    def __init__(self, *of: Any, begin_ms: int, **more: Any) -> None:
        super().__init__(*of, begin_ms=begin_ms, **more)
        for second in range(1800):
            self._at(begin_ms + 1000 * second, "", -1)


@settings(max_examples=10)
@given(seed=st.integers(0, 1 << 30), least_s=st.sampled_from([0, 60, 400]))
def test_a_cycle_is_taken_whenever_it_may_give_nodes(seed: int, least_s: int) -> None:
    over, _ = _jobs(seed, jobs=20, reservations=0, least_s=least_s)
    found = forecast_of(over.world)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(starts, "Continuation", _EverySecond)
        assert forecast_of(over.world) == found


@pytest.mark.parametrize("seed", range(4))
def test_the_state_is_as_before(seed: int) -> None:
    over, _ = _jobs(seed, jobs=20, reservations=1)
    before = snapshot.encode(over.world.state)
    assert forecast_of(over.world).jobs
    assert snapshot.encode(over.world.state) == before
    validate(over.world.state)


def test_a_copy_in_steps_is_the_state_and_changes_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hypothesis, "_AT_ONCE", 3)
    over, _ = _jobs(1, jobs=20, reservations=1)
    state, copying = over.world.state, Steps(hypothesis.copy_bit_by_bit(over.world.state))
    before = snapshot.encode(state)
    assert sum(1 for _ in copying) >= len(state.jobs) // 3
    copy = copying.result
    assert snapshot.encode(copy) == before
    hypothesis.say(copy, over.world.now_ms, [event for job in state.jobs.values() for event in job_gone(job, state)])
    assert not copy.jobs and snapshot.encode(state) == before


@settings(max_examples=10)
@given(seed=st.integers(0, 1 << 30))
def test_the_range_has_the_expected_start(seed: int) -> None:
    over, _ = _jobs(seed, jobs=20, reservations=1)
    for one in forecast_of(over.world).jobs:
        assert one.earliest_ms <= one.expected_ms or not one.expected_ms
        assert one.latest_ms >= one.expected_ms or not one.latest_ms
        assert (one.why is None) == bool(one.latest_ms)


# --- the range ---------------------------------------------------------------------------------------------------


def test_a_job_starts_between_a_tenth_and_twice_of_what_the_one_before_says() -> None:
    of = world()
    running(of, "first", 4, expected_s=100)
    submit(of, "second", 4)
    of.settle()
    second = by_name(forecast_of(of))["second"]
    times = (second.earliest_ms, second.expected_ms, second.latest_ms)
    assert [seconds(of, time_ms) for time_ms in times] == [10, 100, 200]
    assert second.why is None and second.queue_position == 1


def test_a_deadline_is_the_latest_end() -> None:
    of = world()
    running(of, "first", 4, expected_s=100, deadline_s=120)
    submit(of, "second", 4)
    of.settle()
    assert seconds(of, by_name(forecast_of(of))["second"].latest_ms) == 120


def test_behind_a_job_of_which_nothing_is_known_a_start_is_unknown_at_worst() -> None:
    of = world()
    running(of, "first", 4)
    of.pass_time(300)
    submit(of, "second", 4, expected_s=50)
    submit(of, "third", 4)
    of.settle()
    found = forecast_of(of)
    second = by_name(found)["second"]
    assert (seconds(of, second.earliest_ms), seconds(of, second.expected_ms)) == (1, 300)  # as long again
    assert (second.latest_ms, second.why) == (0, Unknown.ENDLESS)
    assert found.endless == ("default/first",)
    assert seconds(of, by_name(found)["third"].expected_ms) == 350


def test_a_job_that_has_outlived_its_expectation_may_end_at_once() -> None:
    of = world()
    running(of, "first", 4, expected_s=100)
    of.pass_time(150)
    submit(of, "second", 4)
    of.settle()
    second = by_name(forecast_of(of))["second"]
    assert [seconds(of, ms) for ms in (second.earliest_ms, second.expected_ms, second.latest_ms)] == [1, 50, 250]


def test_earlier_jobs_of_the_kind_give_the_median_and_the_range() -> None:
    of = world(gpus=1)
    ran(of, 10, 20, 30, 40, 100)
    running(of, "first", 1, image="train:1", user="ann")
    of.pass_time(15)
    submit(of, "second", 1)
    of.settle()
    second = by_name(forecast_of(of))["second"]
    assert [seconds(of, ms) for ms in (second.earliest_ms, second.expected_ms, second.latest_ms)] == [5, 15, 185]


def test_ends_that_the_forecast_assumes_are_no_evidence_for_jobs_of_that_kind() -> None:
    """Three jobs that are assumed to end say as little of the next one as if they were of another kind."""
    of = world(gpus=3)
    for number in range(3):
        running(of, f"first{number}", 1, image="train:1", user="ann")
    of.pass_time(20)
    submit(of, "second", 3, image="train:1", user="ann", created=1)
    submit(of, "third", 3, created=2)
    of.settle()
    found = forecast_of(of)
    second, third = by_name(found)["second"], by_name(found)["third"]
    assert seconds(of, second.expected_ms) == 20 and second.guess
    assert (third.expected_ms, third.why) == (0, Unknown.ENDLESS), "nothing is known of the end of `second`"


def guessing(of: World) -> dict[str, JobForecast]:
    """The forecast where a job without a known end and one of 300 s fill two nodes, and two jobs wait that fit one."""
    running(of, "forever", 4)
    running(of, "known", 4, expected_s=300)
    of.pass_time(10)
    submit(of, "first", 2, expected_s=300, priority=5)
    submit(of, "second", 2, expected_s=300, priority=4)
    of.settle()
    return by_name(forecast_of(of))


def test_a_start_that_supposes_an_end_of_which_nothing_is_known_is_a_guess_also_with_a_latest_time() -> None:
    of = world(nodes=2)
    found = guessing(of)
    for name in ("first", "second"):
        one = found[name]
        assert (seconds(of, one.expected_ms), seconds(of, one.latest_ms), one.why) == (10, 590, None)
        assert one.guess, name


def test_a_start_that_needs_no_unknown_end_is_no_guess_though_such_a_job_ends_before() -> None:
    """The job without a known end holds no GPU: whoever waits for GPUs waits for the other one."""
    of = world()
    of.job("forever", leader=shape(cpu=1))
    of.settle()
    running(of, "known", 4, expected_s=300)
    of.pass_time(10)
    submit(of, "first", 2)
    of.settle()
    first = by_name(forecast_of(of))["first"]
    assert seconds(of, first.expected_ms) == 290 and not first.guess


def test_a_chain_of_jobs_of_a_kind_is_expected_to_run_as_the_earlier_ones_did_each_time() -> None:
    of = world(gpus=1)
    ran(of, 10, 20, 30, 40, 100)
    running(of, "first", 1, image="train:1", user="ann")
    for number, name in enumerate(("second", "third", "fourth"), start=1):
        submit(of, name, 1, image="train:1", user="ann", created=number)
    of.settle()
    found = by_name(forecast_of(of))
    assert [seconds(of, found[name].expected_ms) for name in ("second", "third", "fourth")] == [30, 60, 90]
    assert [seconds(of, found[name].latest_ms) for name in ("second", "third", "fourth")] == [200, 400, 600]


# --- what else keeps jobs waiting --------------------------------------------------------------------------------


def test_a_job_that_fits_no_node_never_starts() -> None:
    of = world()
    running(of, "first", 4, expected_s=100)
    submit(of, "huge", 5)
    of.settle()
    huge = by_name(forecast_of(of))["huge"]
    assert (huge.earliest_ms, huge.expected_ms, huge.latest_ms, huge.why) == (0, 0, 0, Unknown.INFEASIBLE)


def test_a_start_that_no_end_of_a_job_brings_is_not_put_down_to_jobs_that_may_never_end() -> None:
    of = world(2)
    of.queue("default")
    of.queue("small", capability=(("nvidia.com/gpu", 2),))
    of.quota("cap", {"requests.nvidia.com/gpu": 2}, namespace="lab")
    running(of, "hog", 4)
    submit(of, "dep", 1, after=[Dependency("missing")])
    submit(of, "capped", 3, of_queue="small")
    submit(of, "over", 3, namespace="lab")
    submit(of, "late", 1, after=[Dependency("hog")])
    of.queue("entitled", guarantee=(("nvidia.com/gpu", 2),))
    submit(of, "all", 4, workers=1, worker=shape(cpu=1, gpus=4), min_workers=1)
    of.settle()
    found = by_name(forecast_of(of))
    whys = {name.rpartition("/")[2]: one.why for name, one in found.items()}
    assert whys["late"] == Unknown.ENDLESS, "it starts once hog ends, of which nothing is known"
    assert whys["dep"] == Unknown.HELD
    assert whys["capped"] == whys["over"] == Unknown.LIMIT
    assert whys["all"] == Unknown.GUARANTEES


def test_a_forecast_ends_where_nothing_but_the_revision_of_a_reservation_is_to_come() -> None:
    """The leader's pod is gone, and no decision says so yet. A forecast makes none, so the job seems to leave its
    nodes, half a minute later each time: ten years were forecast in such steps."""
    of = world(reservations=1)
    lost = of.job("lost", leader=GPU, workers=3, worker=GPU, min_workers=3)
    of.settle()
    submit(of, "waits", 4)
    of.cycle()
    of.pod_gone(lost.bound[0, 0])
    of.pass_time(31)
    of.cycle()
    assert of.state.reservations["uid-waits"].decided.start_ms
    of.pass_time(31)
    assert by_name(forecast_of(of))["waits"].why == Unknown.ENDLESS


def test_a_job_waits_for_the_one_that_it_comes_after() -> None:
    of = world()
    running(of, "first", 1, expected_s=100)
    submit(of, "second", 1, after=[Dependency("first")])
    of.settle()
    assert seconds(of, by_name(forecast_of(of))["second"].expected_ms) == 100


@pytest.mark.parametrize(("expected_s", "starts_s"), [(300, 0), (30, 30), (20, 20), (None, 30)])
def test_what_must_not_fail_first_starts_if_it_is_expected_to_end_by_its_deadline(
    expected_s: int | None, starts_s: int
) -> None:
    of = world()
    running(of, "first", 1, expected_s=expected_s, deadline_s=30)
    submit(of, "second", 1, after=[Dependency("first")])
    submit(of, "third", 1, after=[Dependency("second")])
    submit(of, "anyway", 1, after=[Dependency("first", OnFailure.IGNORE)])
    of.settle()
    found = by_name(forecast_of(of))
    second, third = found["second"], found["third"]
    assert seconds(of, found["anyway"].expected_ms) == (starts_s or 30)
    if starts_s:
        assert (seconds(of, second.expected_ms), seconds(of, second.latest_ms)) == (starts_s, 30)
        return
    assert (second.expected_ms, second.latest_ms, seconds(of, second.earliest_ms)) == (0, 0, 3)
    assert (second.why, second.failing) == (Unknown.DEPENDENCY_OVERDUE, "first")
    assert (third.expected_ms, third.why, third.failing) == (0, Unknown.DEPENDENCY_FAILS, "second")


def test_a_job_whose_deadline_is_over_has_failed_at_best() -> None:
    of = world()
    running(of, "first", 1, deadline_s=30)
    second = submit(of, "second", 1, after=[Dependency("first")])
    of.cycle()
    of.pass_time(31)
    found = by_name(forecast_of(of))["second"]
    assert (found.earliest_ms, found.expected_ms, found.latest_ms) == (0, 0, 0)
    assert found.why == Unknown.DEPENDENCY_OVERDUE
    of.settle()
    assert second.stage == Stage.FAILED


def test_a_job_that_waits_to_start_is_expected_to_reach_its_deadline_too() -> None:
    of = world()
    running(of, "hog", 4, expected_s=10)
    submit(of, "first", 4, expected_s=300, deadline_s=30)
    submit(of, "second", 4, after=[Dependency("first")])
    submit(of, "behind", 4, priority=1)
    of.settle()
    found = by_name(forecast_of(of))
    assert (found["second"].expected_ms, found["second"].why) == (0, Unknown.DEPENDENCY_OVERDUE)
    assert seconds(of, found["behind"].expected_ms) == 40


def test_after_a_job_that_is_given_up_another_one_fails() -> None:
    of = world()
    submit(of, "large", 8)
    submit(of, "second", 1, after=[Dependency("large")])
    of.settle()
    found = by_name(forecast_of(of))
    assert found["large"].why == Unknown.INFEASIBLE
    assert (found["second"].why, found["second"].failing) == (Unknown.DEPENDENCY_FAILS, "large")


def test_a_preempted_job_is_placed_again_once_the_other_one_ends() -> None:
    of = world()
    first = running(of, "first", 4, priority=1, expected_s=100)
    submit(of, "urgent", 4, priority=9, expected_s=60)
    of.cycle()
    assert first.preempted
    found = by_name(forecast_of(of))
    assert seconds(of, found["urgent"].earliest_ms) == 0
    assert 0 < seconds(of, found["urgent"].expected_ms) <= 30  # the grace period of the pods that leave
    assert seconds(of, found["first"].expected_ms) == 60  # a job is expected to end by the time that it has nodes


def test_a_pod_that_is_being_deleted_is_gone_by_the_end_of_its_own_grace_period() -> None:
    of = world()
    first = running(of, "first", 4, priority=1, expected_s=100)
    submit(of, "urgent", 4, priority=9, expected_s=60)
    of.cycle()
    [pod] = [uid for uid, pod in of.state.pods.items() if pod.owner is not None and pod.owner.job_uid == first.uid]
    of.change_pod(pod, deleting=True, times=PodTimes(leave_by_ms=of.now_ms + 12_000))
    of.pass_time(7)
    assert seconds(of, by_name(forecast_of(of))["urgent"].expected_ms) == 5
    of.pass_time(7)  # and it is still there: "at once" would be said at every call
    late = by_name(forecast_of(of))["urgent"]
    assert [seconds(of, moment_ms) for moment_ms in (late.earliest_ms, late.expected_ms, late.latest_ms)] == [0, 2, 4]


def test_a_job_that_would_take_room_starts_at_once() -> None:
    of = world()
    running(of, "first", 4, priority=1, expected_s=100)
    submit(of, "urgent", 4, priority=9)
    assert seconds(of, by_name(forecast_of(of))["urgent"].latest_ms) == 0


def test_a_job_takes_room_as_soon_as_others_are_kept_no_longer() -> None:
    of = world()
    of.queue("default", min_runtime_s=25)
    running(of, "first", 4, priority=1, expected_s=300)
    of.pass_time(5)
    submit(of, "urgent", 4, priority=9)
    of.settle()
    urgent = by_name(forecast_of(of))["urgent"]
    assert [seconds(of, ms) for ms in (urgent.earliest_ms, urgent.expected_ms, urgent.latest_ms)] == [20, 20, 20]
    assert seconds(of, urgent.promised_ms) == 295, "a reservation counts on nobody who gives room"


def test_who_took_nodes_is_kept_for_a_while_too() -> None:
    of = world(min_runtime_ms=60_000)
    first = running(of, "first", 4, priority=1, expected_s=300)
    submit(of, "second", 4, priority=5, expected_s=300)
    of.cycle()
    of.pod_gone(next(iter(of.state.pods_of[first.uid])))
    of.settle()
    submit(of, "urgent", 4, priority=9)
    of.settle()
    assert seconds(of, by_name(forecast_of(of))["urgent"].expected_ms) == 60


def test_a_job_gets_a_node_that_it_avoids_as_soon_as_it_does_so_no_longer() -> None:
    of = world()
    first = running(of, "first", 4)
    of.change_pod(first.bound[0, 0], phase="Failed", ready=False, reason="OutOfcpu")
    of.settle()
    assert not first.placements and first.refusals
    assert seconds(of, by_name(forecast_of(of))["first"].expected_ms) == 60


def test_one_looks_no_further_than_asked() -> None:
    of = world()
    running(of, "first", 4, expected_s=100)
    submit(of, "second", 4)
    of.settle()
    second = by_name(forecast_of(of, until_ms=of.now_ms + 50_000))["second"]
    assert (seconds(of, second.earliest_ms), second.expected_ms, second.why) == (10, 0, Unknown.LATER)


def test_nobody_looks_further_ahead_than_ten_years() -> None:
    of, year_s = world(), 365 * 86_400
    running(of, "first", 4, expected_s=9 * year_s)
    submit(of, "second", 4, expected_s=2 * year_s)
    submit(of, "third", 4)
    of.settle()
    found = by_name(forecast_of(of))
    assert seconds(of, found["second"].expected_ms) == 9 * year_s
    assert (found["third"].expected_ms, found["third"].why) == (0, Unknown.NEVER)


def test_the_first_jobs_of_the_order_are_the_first_ones() -> None:
    of = world()
    running(of, "first", 4, expected_s=100)
    for number in range(5):
        submit(of, f"j{number}", 4, priority=number + 1, expected_s=10)
        of.pass_time(1)
    of.settle()
    found = forecast(of.state, msgspec.structs.replace(of.config, preemption=None), of.now_ms, first=2)
    assert [one.job for one in found.jobs] == ["default/j4", "default/j3"]
    assert found.waiting == 5
    whole = forecast(of.state, msgspec.structs.replace(of.config, preemption=None), of.now_ms, first=9)
    assert whole.jobs[:2] == found.jobs


def test_suspended_and_started_jobs_have_no_forecast() -> None:
    of = world()
    running(of, "first", 4, expected_s=100)
    submit(of, "second", 4, suspend=True)
    of.settle()
    assert forecast_of(of).jobs == ()


# --- ends --------------------------------------------------------------------------------------------------------


def test_in_a_large_cluster_ends_are_moved_by_no_more_than_an_eighth() -> None:
    of = world()
    job = running(of, "first", 4, expected_s=5_000)
    exact = Ends(EndScenario.EXPECTED, of.config, begin_ms=of.now_ms)
    coarse = Ends(EndScenario.EXPECTED, of.config, begin_ms=of.now_ms, exact=False)
    for later_ms in (0, 1, 999, 12_345, 4_000_000):
        true_ms = later_ms + (exact.lasts_ms(of.state, job, of.now_ms + later_ms) or 0)
        moved_ms = later_ms + (coarse.lasts_ms(of.state, job, of.now_ms + later_ms) or 0)
        assert true_ms <= moved_ms <= true_ms * 9 / 8
    assert has_started(job)


@pytest.mark.slow
@settings(max_examples=25)
@given(seed=st.integers(0, 1 << 30), reservations=st.integers(0, 2))
def test_a_cycle_that_leaves_out_tries_places_the_same_pods(seed: int, reservations: int) -> None:
    over, lasts_ms = _jobs(seed, jobs=20, reservations=reservations)
    of = over.world
    too_large = TooLarge([job for job in of.state.jobs.values() if job.active])
    quick = Cycles(too_large=too_large)
    while (end_ms := over.next_end_ms()) is not None:
        of.now_ms = end_ms
        over.end_due()
        whole = take_cycle(of.state, of.config, of.now_ms)
        quick.note(of.state.jobs)
        short = quick.take(of.state, of.config, of.now_ms)
        kinds = Placed, Reserved
        assert [of_one for of_one in short if isinstance(of_one, kinds)] == [
            of_one for of_one in whole if isinstance(of_one, kinds)
        ]
        over.cycle(lambda job: lasts_ms[job.seen.name])


def test_only_a_lower_priority_or_another_queue_gives_room() -> None:
    of = world()
    low, high = submit(of, "low", 1, priority=1), submit(of, "high", 1, priority=2)
    jobs = TooLarge([low, high])
    assert (jobs.may_take_room(of.state, low), jobs.may_take_room(of.state, high)) == (False, True)
    other = submit(of, "other", 1, priority=9, of_queue="other")
    assert TooLarge([low, high, other]).may_take_room(of.state, low)


def test_the_jobs_that_lack_nodes_are_looked_for_among_those_that_changed() -> None:
    of = world()
    first, second = submit(of, "first", 4), submit(of, "second", 4)
    jobs = ShortJobs()
    assert jobs.of(of.state) is None  # nobody tells what changes
    jobs.note(of.state.jobs)
    assert jobs.of(of.state) == [first, second]
    of.settle()
    assert first.placements and jobs.of(of.state) == [first, second]
    jobs.note([first.uid])
    assert jobs.of(of.state) == [second]


def test_a_quorum_that_asks_for_more_than_is_free_is_too_large() -> None:
    of = world(nodes=2)
    running(of, "first", 3, expected_s=100)
    large, fitting = submit(of, "large", 6), submit(of, "fitting", 4)
    jobs, view = TooLarge([large, fitting]), ClusterView.of(of.state)
    assert (jobs.holds(large, view), jobs.holds(fitting, view)) == (True, False)


@pytest.mark.parametrize("group", ["", "team"])
def test_pods_of_others_that_arranger_placed_end_too(group: str) -> None:
    of = world()
    for name in ("a", "b"):
        of.pod_to_place(name, of=shape(cpu=1, gpus=2), group=group, least=2)
    of.cycle()
    for name in ("a", "b"):
        of.pod_to_place(name, "n0", of=shape(cpu=1, gpus=2), group=group, least=2)
    of.pass_time(60)
    waits = submit(of, "waits", 4)
    of.settle()
    assert not waits.placements
    found = by_name(forecast_of(of))["waits"]
    assert (seconds(of, found.expected_ms), seconds(of, found.earliest_ms), found.latest_ms) == (60, 1, 0)
    assert found.why == Unknown.ENDLESS
