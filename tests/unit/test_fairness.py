"""The benchmark of fairness: jobs from a trace, what is measured on schedules, and the real cycle on small ones."""

import csv
from pathlib import Path

import pytest

from arranger.errors import UsageError
from arranger.scheduling.experiment import TraceNode
from benchmarks import fairness
from benchmarks.backfilling import Rule, simulate
from benchmarks.schedule_measures import entitled, jain, measures, quantile, user_slowdowns
from benchmarks.trace_jobs import USERS, TraceJob, Workload, read_workload

COLUMNS = (
    "name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "qos", "pod_phase", "creation_time",
    "deletion_time", "scheduled_time",
)  # fmt: skip


def write(path: Path, *rows: tuple[object, ...]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return path


def a_pod(number: int, *, gpus: int = 1, milli: int = 1000, cpu: int = 4000, at_s: int = 0, lasts_s: int | None = 600):
    """A line of a list of pods; without a duration it was never scheduled."""
    scheduled = "" if lasts_s is None else at_s + 5
    ended = at_s + 900 if lasts_s is None else at_s + 5 + lasts_s
    return (f"pod-{number:04}", cpu, 1024, gpus, milli, "", "LS", "Running", at_s, ended, scheduled)


def a_trace(folder: Path, *pods: tuple[object, ...]) -> Path:
    """A folder with a list of these pods, and nodes of two kinds: two of 8 GPUs and one of 2."""
    nodes = [(f"node-{number}", 96_000, 393_216, 8, "G2") for number in range(2)]
    write(
        folder / "openb_node_list_gpu_node.csv", ("sn", "cpu_milli", "memory_mib", "gpu", "model"),
        ("node-2", 16_000, 122_880, 2, "P100"), *nodes,
    )  # fmt: skip
    write(folder / "openb_pod_list_default.csv", COLUMNS, *pods)
    return folder


def a_job(name: str, user: str, *, at_s: int = 0, lasts_s: int = 3600, gpus: int = 1) -> TraceJob:
    return TraceJob(name, user, at_s, lasts_s, gpus, 1000, 1024)


def a_workload(*jobs: TraceJob, gpus: int = 4) -> Workload:
    return Workload(jobs, TraceNode("", 64_000, 65_536, gpus, "G2"), 1, 1.0, "")


# --- jobs of a trace ----------------------------------------------------------------------------------------------


def test_pods_with_gpus_become_jobs_with_the_times_of_the_trace(tmp_path: Path) -> None:
    pods = [
        a_pod(0, lasts_s=600), a_pod(1, at_s=100, milli=460, lasts_s=50), a_pod(2, at_s=150, gpus=0, milli=0),
        a_pod(3, at_s=200, gpus=8, lasts_s=86_401), a_pod(4, at_s=300, gpus=8, lasts_s=60),
        a_pod(5, at_s=400, cpu=97_000), a_pod(6, at_s=1000, lasts_s=None),
    ]  # fmt: skip
    workload = read_workload([a_trace(tmp_path, *pods)], jobs=100, nodes=1, load=0.5)
    assert [(job.name, job.gpus) for job in workload.jobs] == [
        ("pod-0000", 1), ("pod-0001", 1), ("pod-0004", 8), ("pod-0006", 1),
    ]  # fmt: skip
    known = [600, 50, 60]
    assert [job.lasts_s for job in workload.jobs[:3]] == known and workload.jobs[3].lasts_s in known
    assert workload.node.gpus == 8 and workload.nodes == 1
    requested_s = sum(job.gpus * job.lasts_s for job in workload.jobs)
    assert requested_s / (8 * workload.jobs[-1].submitted_s) == pytest.approx(0.5, abs=0.01)
    first, second = (workload.jobs[at].submitted_s / workload.jobs[-1].submitted_s for at in (1, 2))
    assert (first, second) == (pytest.approx(0.1, abs=0.01), pytest.approx(0.3, abs=0.01))
    assert "1 longer than a day, 1 too large for a node, 1 without GPUs" in workload.told


def test_drawn_users_submit_together_and_the_first_one_submits_most(tmp_path: Path) -> None:
    # Each submission is of two pods with the same requests, which no later submission has within a minute.
    pods = [a_pod(number, at_s=number // 2 * 100, cpu=1000) for number in range(4000)]
    workload = read_workload([a_trace(tmp_path, *pods)], jobs=4000, nodes=2, load=0.9)
    users = [job.user for job in sorted(workload.jobs, key=lambda job: job.name)]
    assert users[::2] == users[1::2]
    assert len(set(users)) == USERS and workload.largest_user == "user-01"
    assert 0.5 < users.count("user-01") / len(users) < 0.62
    assert workload == read_workload([tmp_path], jobs=4000, nodes=2, load=0.9)


def test_a_trace_that_names_users_keeps_them_and_one_without_times_gets_some(tmp_path: Path) -> None:
    pods = write(
        tmp_path / "pods.csv", (*COLUMNS[:5], "user"),
        *((f"pod-{number}", 1000, 1024, 1, 1000, f"u{number % 3}") for number in range(90)),
    )  # fmt: skip
    nodes = a_trace(tmp_path) / "openb_node_list_gpu_node.csv"
    workload = read_workload([nodes, pods], jobs=100, nodes=1, load=0.9)
    assert len(workload.jobs) == 90 and {job.user for job in workload.jobs} == {"u0", "u1", "u2"}
    assert len({job.lasts_s for job in workload.jobs}) > 50 and workload.jobs[-1].submitted_s > 0


def test_a_trace_without_nodes_or_with_a_wrong_time_says_what_is_wrong(tmp_path: Path) -> None:
    folder = a_trace(tmp_path, a_pod(0), ("pod-x", 1, 1, 1, 1000, "", "", "", "soon", "", ""))
    with pytest.raises(UsageError, match="pod-x, column creation_time: 'soon' is no time in s"):
        read_workload([folder], jobs=1, nodes=1, load=1)
    with pytest.raises(UsageError, match="no file of pods, or none of nodes") as missing:
        read_workload([folder / "openb_pod_list_default.csv"], jobs=1, nodes=1, load=1)
    assert missing.value.hint is not None and "--trace PATH" in missing.value.hint


# --- measures -----------------------------------------------------------------------------------------------------


def test_jains_index_is_1_for_equal_parts_and_1_of_n_if_one_gets_all() -> None:
    assert jain([0.5, 0.5, 0.5]) == pytest.approx(1) and jain([3, 0, 0, 0]) == pytest.approx(1 / 4)
    assert jain([1, 2, 3]) == pytest.approx(36 / 42) and jain([0, 0]) == 1


def test_users_are_entitled_to_equal_parts_but_to_no_more_than_they_request() -> None:
    assert entitled({"a": 100, "b": 1, "c": 3}, 8) == {"b": 1, "c": 3, "a": 4}
    assert entitled({"a": 100, "b": 50}, 8) == {"a": 4, "b": 4}
    assert entitled({"a": 1, "b": 2}, 8) == {"a": 1, "b": 2}


def test_a_quantile_is_the_smallest_value_that_so_many_do_not_exceed() -> None:
    assert [quantile(range(1, 101), part) for part in (0, 0.5, 0.99, 1)] == [1, 50, 99, 100]
    assert quantile([7], 0.99) == 7


def test_slowdowns_of_short_jobs_are_bounded() -> None:
    jobs = [a_job("a", "u", lasts_s=1), a_job("b", "u", lasts_s=100), a_job("c", "v", lasts_s=1)]
    assert user_slowdowns(jobs, {"a": 19, "b": 300, "c": 0}) == {"u": (2 + 4) / 2, "v": 1}


def test_the_measures_of_a_schedule_by_hand() -> None:
    """4 GPUs: `a` has all of them for an hour, while `b` waits for one; then `b` has one for an hour."""
    jobs = (a_job("a1", "a", gpus=2), a_job("a2", "a", gpus=2), a_job("b1", "b"), a_job("c1", "a", at_s=7200))
    found = measures(a_workload(*jobs), {"a1": 0, "a2": 0, "b1": 3600, "c1": 7200})
    assert (found.makespan_h, found.mean_wait_min, found.p50_wait_min, found.p99_wait_min) == (3, 15, 0, 60)
    assert found.utilisation_percent == pytest.approx(100 * (4 + 1) / 8)
    assert (found.large_wait_min, found.small_wait_min, found.wide_wait_min) == (0, 60, 0)
    assert (found.worst_user, found.worst_slowdown) == ("b", 2)
    # 5 GPUs are requested in the first hour: `a` is entitled to 3 and has 4, `b` to 1 and has none.
    assert found.jain_hour == found.jain_day == pytest.approx(jain([4 / 3, 0]))
    assert found.contended_percent == 50


# --- the real cycle -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_without_queues_the_real_cycle_does_on_one_node_what_first_fit_does(seed: int) -> None:
    pool = fairness.as_one_pool(fairness.made_up_workload(jobs=60, seed=seed))
    ours = fairness.scheduled(pool, fairness.NO_QUEUES)
    assert ours == simulate(pool.jobs, [fairness.one_pool(pool)], Rule.FIRST_FIT).starts_s


@pytest.mark.parametrize("variant", [v for v in fairness.VARIANTS if v.per_user or "user" in v.name], ids=str)
def test_with_queues_a_user_with_one_job_does_not_wait_behind_another_one_with_many(variant: fairness.Variant) -> None:
    many = [a_job(f"many-{number:02}", "many", at_s=number, lasts_s=1000 + number) for number in range(20)]
    workload = a_workload(*many, a_job("one", "one", at_s=100, lasts_s=10))
    assert fairness.scheduled(workload, fairness.NO_QUEUES)["one"] > 4000
    assert fairness.scheduled(workload, variant)["one"] == 1000


def test_a_queue_per_user_and_submitters_of_one_queue_get_the_same() -> None:
    workload = fairness.made_up_workload(jobs=80, seed=2)
    by_name = {variant.name: variant for variant in fairness.VARIANTS}
    per_user = fairness.scheduled(workload, by_name["queue per user"])
    assert per_user == fairness.scheduled(workload, by_name["userFairness"])
    assert per_user != fairness.scheduled(workload, fairness.NO_QUEUES)


def test_a_trace_runs_through_the_whole_benchmark(tmp_path: Path) -> None:
    pods = [a_pod(n, at_s=60 * n, cpu=1000 + n, gpus=8 if n % 20 == 9 else 1, lasts_s=3000) for n in range(60)]
    figures = fairness.run(quick=False, traces=[a_trace(tmp_path, *pods)])
    rows = {figure.row for figure in figures if figure.row}
    assert {"Arranger: no queues", "Arranger: DRF", "Arranger, no wide jobs: userFairness"} < rows
    assert {"Simulated: FIFO", "Simulated: EASY, drawn estimates, one pool"} < rows
    assert all(figure.holds is not False for figure in figures)
    assert {figure.name for figure in figures if figure.row == "Simulated: FIFO"} >= {
        "makespan", "GPUs used", "mean wait", "p50 wait", "p99 wait", "Jain, hours", "worst slowdown",
    }  # fmt: skip
