"""The benchmarks run, at sizes that say nothing about speed."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from arranger.scheduling.experiment import TracePod
from benchmarks.__main__ import NAMES
from benchmarks.compare import by_turns, compared
from benchmarks.openb_lists import pod_lists
from benchmarks.report import Figure, Machine, Report, markdown
from tests.servers import in_ci
from tests.traces import OPENB_VARIABLE, made_up, write_pods

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[2]
#: The others start processes and servers of their own, which only works where a Redis can be started.
WITHOUT_SERVERS = ("fold", "cycle", "queues", "measures", "explaining", "search", "openb", "fairness", "guests")


def quick_run(tmp_path: Path, *names: str) -> dict[str, list[dict[str, object]]]:
    """The figures of a quick run by benchmark."""
    written = tmp_path / "report.json"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--quick", "--json", str(written), *names],
        cwd=REPOSITORY, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads(written.read_text())
    assert report["skipped"] == {}
    figures: dict[str, list[dict[str, object]]] = report["figures"]
    for name, found in figures.items():
        assert found, name
        for figure in found:
            assert f"| {name} " in done.stdout and str(figure["name"]) in done.stdout
    return figures


@pytest.mark.parametrize("name", WITHOUT_SERVERS)
def test_a_benchmark_of_the_core_runs_and_its_results_agree(name: str, tmp_path: Path) -> None:
    figures = {str(figure["name"]): figure for figure in quick_run(tmp_path, name)[name]}
    equal = {
        "fold": "restored equals encoded", "cycle": "  same nodes as the scan", "queues": "  they fill the cluster",
        "search": "  equal events each time", "measures": "  every pod and every job is counted",
        "openb": "same devices as that", "explaining": "  equal answers each time",
        "guests": "no fewer GPUs are used with Guests than with Known",
        "fairness": "no queues starts each job when first fit does, on one node",
    }[name]  # fmt: skip
    assert figures[equal]["value"] == 1.0


@pytest.mark.usefixtures("redis_server")
@pytest.mark.parametrize("name", [name for name in NAMES if name not in WITHOUT_SERVERS])
def test_a_benchmark_of_processes_runs(name: str, tmp_path: Path) -> None:
    if name in ("browsing", "job_page") and not in_ci() and shutil.which("chromium") is None:
        pytest.skip("NO BROWSER: run `python -m tests.browser`")
    assert quick_run(tmp_path, name).keys() == {name}


def test_stand_ins_for_published_lists_of_pods_have_their_shares(tmp_path: Path) -> None:
    _, pods = made_up(pods=2000)
    for name in ("default", "gpuspec33"):
        write_pods(tmp_path / f"openb_pod_list_{name}.csv", pods)
    names = ("cpu250", "default", "gpushare60", "gpuspec10", "gpuspec33", "multigpu30")
    table = "\n".join(["workload", *(f"openb_pod_list_{name}" for name in names)])
    (tmp_path / "expected_analysis_allo_discrete.csv").write_text(table)
    lists = {one.name: one for one in pod_lists(tmp_path)}
    assert {name: one.made for name, one in lists.items()} == {
        "default": False, "gpuspec33": False, "cpu250": True, "gpushare60": True, "gpuspec10": True, "multigpu30": True,
    }  # fmt: skip

    def part(name: str, of: Callable[[TracePod], int], among: Callable[[TracePod], int]) -> float:
        return sum(map(of, lists[name].pods)) / sum(map(among, lists[name].pods))

    def gpus(pod: TracePod) -> int:
        return pod.gpus * pod.gpu_milli

    assert part("cpu250", lambda pod: not pod.gpus, lambda pod: 1) == pytest.approx(0.25, abs=0.001)
    assert part("gpushare60", lambda pod: gpus(pod) * (pod.gpu_milli < 1000), gpus) == pytest.approx(0.6, abs=0.02)
    assert part("gpuspec10", lambda pod: bool(pod.models), lambda pod: pod.gpus > 0) == pytest.approx(0.1, abs=0.001)
    assert part("multigpu30", lambda pod: gpus(pod) * (pod.gpus > 1), gpus) == pytest.approx(0.3, abs=0.02)


def a_report(*figures: Figure) -> Report:
    where = Machine(
        date="2026-01-01 00:00 UTC", cpu="a cpu", cores=2, memory_gib=4.0, system="Linux 6", python="3.11.7",
        packages={"redis": "6.4.0"}, load_before=0.1, load_after=0.2,
    )  # fmt: skip
    return Report(machine=where, figures={"one": list(figures)}, skipped={"two": "no server"}, quick=False)


def test_a_missed_target_stands_out_in_the_table() -> None:
    missed, met = Figure(name="slow", value=2.5, unit="s", at_most=2), Figure(name="fast", value=0.8, at_least=0.7)
    assert (missed.holds, met.holds, Figure(name="free", value=1).holds) == (False, True, None)
    lines = markdown(a_report(missed, met)).splitlines()
    assert next(line for line in lines if "slow" in line).split("|")[3:6] == [" 2.5 s ", " ≤ 2    ", " NO  "]
    assert next(line for line in lines if "fast" in line).split("|")[3:6] == [" 0.8   ", " ≥ 0.7  ", " yes "]


def test_figures_with_a_row_are_a_table_of_their_own() -> None:
    cells = [
        Figure(row=row, name=name, value=value, unit=unit)
        for row, name, value, unit in (("a", "wait", 1.0, "s"), ("b", "wait", 2.0, "s"), ("b", "used", 3.0, "%"))
    ]
    first, second = markdown(a_report(Figure(name="rate", value=5), *cells)).split("\n\n")[1:3]
    assert "rate" in first and "wait" not in first
    assert [line.split("|")[1:-1] for line in second.splitlines() if "---" not in line] == [
        [" one ", " wait, s ", " used, % "], [" a   ", " 1       ", "         "], [" b   ", " 2       ", " 3       "],
    ]  # fmt: skip


def a_run(**values: float) -> Report:
    """`rate` and `time` in their units, and figures that are neither."""
    units = {"rate": "events/s", "time": "ms", "pods": ""}
    return a_report(*(Figure(name=name, value=value, unit=units[name]) for name, value in values.items()))


def test_trees_are_compared_by_medians_and_by_best_values_and_more_than_one_is_better() -> None:
    base = [a_run(rate=value, time=value, pods=1) for value in (100, 110, 90)]
    here = [a_run(rate=value, time=value, pods=2) for value in (50, 55, 120)]
    rate, time = compared(base, here)
    assert (rate.places, rate.base, rate.here, rate.ratio) == (("one", "", "rate"), 100, 55, 0.55)
    assert rate.best == pytest.approx(120 / 110) and not rate.worse(0.05), "one round was good enough"
    assert (time.ratio, time.best) == (pytest.approx(100 / 55), pytest.approx(90 / 50))
    [slow, _] = compared(base, [a_run(rate=value, time=value) for value in (94, 96, 104)])
    assert slow.worse(0.03) and not slow.worse(0.06)


@pytest.mark.parametrize(
    ("slow_rounds", "asked", "worse"),
    [
        (0, ["one two"] * 4, False),
        (2, ["one two"] * 4 + ["one"] * 4, False),
        (9, ["one two"] * 4 + ["one"] * 8, True),
    ],
)
def test_a_benchmark_that_is_worse_runs_again_before_that_counts(
    slow_rounds: int, asked: list[str], worse: bool
) -> None:
    ran: list[tuple[int, str]] = []

    def run(which: int, names: Sequence[str]) -> Report:
        before = sum(tree == which for tree, _ in ran)
        ran.append((which, " ".join(names)))
        slow = which and before < slow_rounds
        report = a_run(time=200 if slow else 100)
        [(_, figures)] = report.figures.items()
        same = a_run(time=100).figures["one"]
        return msgspec.structs.replace(report, figures={name: figures if name == "one" else same for name in names})

    found, reports = by_turns(run, ["one", "two"], 2, 0.05)
    assert [names for _, names in ran] == asked and len(reports) == len(ran)
    assert [which for which, _ in ran[:4]] == [0, 1, 1, 0]
    assert [one.worse(0.05) for one in found if one.places[0] == "one"] == [worse]


def test_figures_of_other_sizes_and_those_that_are_missing_are_not_compared() -> None:
    of_one_size = a_report(
        Figure(name="time", value=1, unit="s", note="100 jobs"), Figure(name="old", value=1, unit="s")
    )
    assert compared([of_one_size], [a_report(Figure(name="time", value=9, unit="s", note="200 jobs"))]) == []


@pytest.mark.skipif(not (REPOSITORY / ".git").exists(), reason="a tree without its history")
def test_a_revision_is_compared_with_this_tree_by_turns() -> None:
    def trees() -> set[str]:
        command = ["git", "worktree", "list"]
        found = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
        return {*found.stdout.splitlines()}

    command, before = [sys.executable, "-m", "benchmarks.compare"], trees()
    options = ["fold", "--quick", "--rounds", "1", "--tolerance", "100"]
    done, wrong = (
        subprocess.run([*command, base, *options], cwd=REPOSITORY, capture_output=True, text=True, check=False)
        for base in ("HEAD", "no-such-revision")
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == ["HEAD: fold", "this tree: fold"]
    assert "| fold " in done.stdout and "decode" in done.stdout and "WORSE" not in done.stdout
    assert wrong.returncode == 2 and "BASE is no revision of this repository" in wrong.stderr
    assert trees() <= before


def test_without_a_trace_fairness_says_what_to_give() -> None:
    environment = {name: value for name, value in os.environ.items() if name != OPENB_VARIABLE}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "fairness"],
        cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False, env=environment,
    )  # fmt: skip
    assert done.returncode == 2 and "fairness needs a trace: --trace PATH" in done.stderr
    assert "creation_time" in done.stderr and "sn, cpu_milli" in done.stderr


def test_the_table_says_what_was_skipped_and_on_which_machine() -> None:
    table = markdown(a_report(Figure(name="rate", value=1234.5, unit="/s")))
    assert "skipped: two: no server" in table
    assert "a cpu, 2 cores, 4.0 GiB" in table and "1,234 /s" in table
