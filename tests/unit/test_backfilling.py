"""The plain rules that Arranger's schedules are compared with do what their publications say."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.backfilling import Amounts, Rule, amounts_of, drawn_estimates, simulate
from benchmarks.trace_jobs import TraceJob
from tests.depth import extent

POOL: Amounts = (8, 64, 64)


def a_job(name: str, gpus: int, lasts_s: int, *, at_s: int = 0, cpu: int = 1) -> TraceJob:
    return TraceJob(name, "user", at_s, lasts_s, gpus, cpu, 1)


@st.composite
def workloads(draw: st.DrawFn) -> list[TraceJob]:
    """Jobs in the order of their submission, each of which an empty node can hold."""
    numbers = st.tuples(st.integers(1, 8), st.integers(1, 30), st.integers(0, 6), st.integers(1, 20))
    jobs, now_s = [], 0
    for number, (gpus, lasts_s, apart_s, cpu) in enumerate(draw(st.lists(numbers, min_size=1, max_size=25))):
        now_s += apart_s
        jobs.append(a_job(f"job-{number:02}", gpus, lasts_s, at_s=now_s, cpu=cpu))
    return jobs


def earliest_s(jobs: list[TraceJob], starts_s: dict[str, int], head: TraceJob, given_s: int) -> int:
    """When the first job would have started on one node, had no job after it started from `given_s` on."""
    before = jobs[: jobs.index(head)]
    holding = [
        (starts_s[job.name] + job.lasts_s, amounts_of(job))
        for job in jobs
        if job is not head
        and starts_s[job.name] + job.lasts_s > given_s
        and (starts_s[job.name] < given_s or job in before)
    ]
    for now_s in sorted({given_s, *(end_s for end_s, _ in holding)}):
        held = [amounts for end_s, amounts in holding if end_s > now_s]
        if all(sum(of[kind] for of in [*held, amounts_of(head)]) <= POOL[kind] for kind in range(3)):
            return now_s
    raise AssertionError("an empty node can hold each job")


@settings(max_examples=extent(200, soak=5000), deadline=None)
@given(jobs=workloads())
def test_under_easy_with_exact_estimates_no_backfilled_job_delays_the_first_one(jobs: list[TraceJob]) -> None:
    by_name = {job.name: job for job in jobs}
    schedule = simulate(jobs, [POOL], Rule.EASY)
    for promise in schedule.promises:
        head = by_name[promise.job]
        alone_s = earliest_s(jobs, schedule.starts_s, head, promise.given_s)
        assert promise.shadow_s == schedule.starts_s[head.name] == alone_s


@settings(max_examples=extent(100, soak=2000), deadline=None)
@given(jobs=workloads(), nodes=st.integers(1, 3), seed=st.integers(0, 5))
def test_under_easy_with_estimates_that_are_too_high_the_first_one_is_never_later_than_promised(
    jobs: list[TraceJob], nodes: int, seed: int
) -> None:
    schedule = simulate(jobs, [POOL] * nodes, Rule.EASY, estimates_s=drawn_estimates(jobs, factor=4, seed=seed))
    assert all(schedule.starts_s[promise.job] <= promise.shadow_s for promise in schedule.promises)


@settings(max_examples=extent(100, soak=2000), deadline=None)
@given(jobs=workloads(), rule=st.sampled_from(Rule))
def test_no_rule_gives_out_more_than_there_is_and_fifo_keeps_the_order(jobs: list[TraceJob], rule: Rule) -> None:
    starts_s = simulate(jobs, [POOL], rule).starts_s
    assert all(starts_s[job.name] >= job.submitted_s for job in jobs)
    for now_s in starts_s.values():
        running = [amounts_of(job) for job in jobs if starts_s[job.name] <= now_s < starts_s[job.name] + job.lasts_s]
        assert all(sum(of[kind] for of in running) <= POOL[kind] for kind in range(3))
    if rule is Rule.FIFO:
        assert [starts_s[job.name] for job in jobs] == sorted(starts_s.values())


def test_a_job_backfills_if_it_ends_in_time_or_takes_only_what_the_first_one_leaves() -> None:
    """By hand: 4 of 8 GPUs are busy until 10. The first job gets 6 then, and leaves 2."""
    jobs = [
        a_job("busy", 4, 10), a_job("first", 6, 10, at_s=1), a_job("too long", 3, 10, at_s=2),
        a_job("in time", 1, 8, at_s=2), a_job("extra", 2, 50, at_s=2), a_job("no extra left", 1, 9, at_s=2),
    ]  # fmt: skip
    schedule = simulate(jobs, [POOL], Rule.EASY)
    assert schedule.starts_s == {
        "busy": 0, "first": 10, "in time": 2, "extra": 2, "no extra left": 20, "too long": 20,
    }  # fmt: skip
    assert [(one.job, one.given_s, one.shadow_s) for one in schedule.promises][:1] == [("first", 1, 10)]
    assert simulate(jobs, [POOL], Rule.FIFO).starts_s["in time"] == 20
    assert simulate(jobs, [POOL], Rule.FIRST_FIT).starts_s == {
        "busy": 0, "too long": 2, "in time": 2, "extra": 10, "no extra left": 10, "first": 19,
    }  # fmt: skip


def test_on_nodes_the_first_job_reserves_one_and_the_others_are_free_for_all() -> None:
    jobs = [
        a_job("left", 5, 10), a_job("right", 6, 99), a_job("first", 8, 10, at_s=1), a_job("endless", 2, 99, at_s=2),
        a_job("not on the left", 3, 99, at_s=2),
    ]  # fmt: skip
    starts_s = simulate(jobs, [POOL, POOL], Rule.EASY).starts_s
    assert starts_s["first"] == 10 and starts_s["endless"] == 2 and starts_s["not on the left"] >= 20


def test_drawn_estimates_are_between_the_duration_and_that_many_times_more() -> None:
    jobs = [a_job(str(number), 1, 100) for number in range(1000)]
    drawn_s = drawn_estimates(jobs, factor=4).values()
    assert min(drawn_s) >= 100 and max(drawn_s) <= 500
    assert sum(drawn_s) / len(drawn_s) == pytest.approx(300, abs=15)
    assert set(drawn_estimates(jobs, factor=0).values()) == {100}


def test_a_job_that_no_node_could_hold_is_refused() -> None:
    with pytest.raises(ValueError, match="no node can hold large"):
        simulate([a_job("large", 9, 1)], [POOL, POOL], Rule.EASY)
