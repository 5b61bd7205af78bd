"""The trace experiment: what arrives, that nothing is overbooked, and that nothing but the seed decides."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest

from arranger.cli.inputs.trace_files import read_nodes, read_pods
from arranger.errors import UsageError
from arranger.model.config import CycleConfig
from arranger.scheduling.cluster.fragmentation import GPU_MILLI, fragments
from arranger.scheduling.experiment import POLICIES, Experiment, TraceNode, TraceOutcome, TracePod
from tests.traces import (
    OPENB_VARIABLE,
    made_up,
    openb_folder,
    place_by_full_scan,
    published_openb,
    write_nodes,
    write_pods,
)

every_policy = pytest.mark.parametrize("policy", list(POLICIES))


def experiment(
    nodes: list[TraceNode], pods: list[TracePod], *, policy: str = "BestFit", load: float = 1.3, seed: int = 42
) -> Experiment:
    return Experiment(nodes, pods, policy=policy, score=POLICIES[policy], load=load, seed=seed)


def pod(name: str, *, gpus: int = 1, gpu_milli: int = 1000, cpu: int = 1000, models: tuple[str, ...] = ()) -> TracePod:
    return TracePod(name, cpu, 1024, gpus, gpu_milli, models)


def node(name: str, *, gpus: int = 8, cpu: int = 96_000, model: str = "A") -> TraceNode:
    return TraceNode(name, cpu, 393_216, gpus, model)


@every_policy
def test_no_node_or_device_is_overbooked_and_shared_pods_share_one_device(policy: str) -> None:
    run = experiment(*made_up(), policy=policy)
    outcome = run.run()
    cluster = run.cluster
    assert (cluster.free_cpu_milli >= 0).all()
    assert (cluster.free_memory_mib >= 0).all()
    assert ((cluster.devices >= 0) & (cluster.devices <= GPU_MILLI)).all()
    used = int(cluster.gpus.sum()) * GPU_MILLI - int(cluster.devices.sum())
    assert outcome.allocated_percent == pytest.approx(100 * used / (int(cluster.gpus.sum()) * GPU_MILLI))
    assert 60 < outcome.allocated_percent < 100
    assert outcome.placed_pods < outcome.arrived_pods


@every_policy
def test_scores_kept_from_earlier_pods_decide_as_scoring_every_node_for_every_pod(policy: str) -> None:
    nodes, pods = made_up(nodes=15, pods=120)
    kept, again = (experiment(nodes, pods, policy=policy) for _ in range(2))
    outcome = kept.run()
    placed = sum(place_by_full_scan(again, nodes, POLICIES[policy]))
    assert placed == outcome.placed_pods
    assert (again.cluster.devices == kept.cluster.devices).all()
    assert (again.cluster.free_cpu_milli == kept.cluster.free_cpu_milli).all()
    lost = int(fragments(again.cluster.states, again.mix).sum())
    assert outcome.fragmented_idle_percent == pytest.approx(
        100 * lost / (int(again.cluster.devices.sum()) * again.mix.total_weight)
    )


def test_every_pod_arrives_before_any_arrives_again() -> None:
    nodes, pods = [node("n", gpus=64, cpu=10**6)], [pod(str(number), cpu=number) for number in range(1, 33)]
    run = experiment(nodes, pods, load=1.0)
    cpus = [run.shapes[number].request.cpu_milli for number in run.arrivals.tolist()]
    assert len(cpus) == 64
    assert sorted(cpus[:32]) == list(range(1, 33))
    assert cpus[:32] != list(range(1, 33))
    assert set(cpus[32:]) <= set(range(1, 33))
    assert max(Counter(cpus[32:]).values()) > 1  # drawn, not dealt


def test_arrivals_end_before_the_pod_that_would_exceed_the_load() -> None:
    nodes, pods = made_up(nodes=20, pods=400)
    full = experiment(nodes, pods, load=3.0).run()
    assert 299 < full.arrived_percent <= 300
    some = experiment(nodes, pods, load=0.5).run()
    assert 40 < some.arrived_percent <= 50
    assert some.arrived_pods < len(pods)


def test_a_load_below_the_first_pod_places_nothing() -> None:
    outcome = experiment([node("n")], [pod("a")], load=0.01).run(lambda arrived: None)
    assert (outcome.arrived_pods, outcome.placed_pods, outcome.allocated_percent, outcome.curve) == (0, 0, 0.0, ())


def test_pods_of_models_that_no_node_has_are_lost() -> None:
    nodes = [node("a", model="A"), node("b", model="B")]
    outcome = experiment(nodes, [pod("x", models=("C", "D"))], load=1.0).run()
    assert (outcome.arrived_pods, outcome.placed_pods) == (16, 0)
    run = experiment(nodes, [pod("x", models=("C", "B"))], load=1.0)
    assert run.run().placed_pods == 8
    assert {int(free.sum()) for free in run.cluster.devices} == {0, 8 * GPU_MILLI}


def test_many_gpus_are_whole_devices() -> None:
    # Whichever comes first, the other doesn't fit: half a GPU and two whole ones are more than two devices hold.
    run = experiment([node("a", gpus=2)], [pod("s", gpu_milli=500), pod("w", gpus=2)], load=1.25)
    outcome = run.run()
    assert outcome.arrived_pods == 2
    assert outcome.placed_pods == 1


def test_shared_pods_fill_a_device_before_they_begin_another() -> None:
    run = experiment([node("a", gpus=4)], [pod(str(number), gpu_milli=300) for number in range(6)], load=0.45)
    assert run.run().placed_pods == 6
    assert run.cluster.devices.tolist() == [[100, 100, 1000, 1000]]


def test_the_curve_tells_what_was_allocated_when_so_much_had_arrived() -> None:
    outcome = experiment([node("a"), node("b")], [pod(str(number)) for number in range(16)], load=1.0).run()
    # 16 GPUs: each pod is 6.25 %, rounded half up.
    assert [sample.arrived_percent for sample in outcome.curve] == [
        6, 13, 19, 25, 31, 38, 44, 50, 56, 63, 69, 75, 81, 88, 94, 100,
    ]  # fmt: skip
    assert [sample.allocated_percent for sample in outcome.curve] == [6.25 * number for number in range(1, 17)]
    assert {sample.fragmented_percent for sample in outcome.curve} == {0.0}


def test_progress_adds_up_to_the_arrivals() -> None:
    told: list[int] = []
    run = experiment(*made_up())
    outcome = run.run(told.append)
    assert sum(told) == outcome.arrived_pods == len(run.arrivals)
    assert len(told) > 50


def test_the_seed_alone_decides() -> None:
    nodes, pods = made_up()
    assert experiment(nodes, pods).run() == experiment(list(reversed(nodes)), pods).run()
    first, second = (experiment(nodes, pods, seed=seed).run() for seed in (42, 43))
    assert first.curve != second.curve


def test_best_fit_is_the_published_formula() -> None:
    nodes = [node("a", gpus=8, cpu=96_000), node("b", gpus=2, cpu=104_000), node("c", gpus=1, cpu=8_000)]
    run = experiment(nodes, [pod("x", cpu=4000, gpu_milli=500)])
    scores, devices = POLICIES["BestFit"](run.cluster, run.shapes[0], np.ones(3, bool), run.mix)
    expected = {
        (cpu, gpus): int(100 * (1 - 0.5 * (cpu - 4000) / 128_000 - 0.5 * (1000 * gpus - 500) / 8000))
        for cpu, gpus in ((96_000, 8), (104_000, 2), (8_000, 1))
    }
    keys = zip(run.cluster.cpu_milli.tolist(), run.cluster.gpus.tolist(), strict=True)
    assert scores.tolist() == [expected[key] for key in keys]
    assert devices.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("nodes", "pods", "says"),
    [
        ([node("a", gpus=0)], [pod("x")], "the nodes of the trace have no GPUs"),
        ([node("a")], [pod("x", gpus=0, gpu_milli=0)], "no pod of the trace asks for a GPU"),
    ],
)
def test_a_trace_without_gpus_means_nothing(nodes: list[TraceNode], pods: list[TracePod], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        experiment(nodes, pods)


def test_another_process_hash_seed_and_processor_give_the_same(tmp_path: Path) -> None:
    nodes, pods = made_up()
    arguments = ["--trace-nodes", str(write_nodes(tmp_path / "nodes.csv", nodes))]
    arguments += ["--trace-pods", str(write_pods(tmp_path / "pods.csv", pods)), "-o", "json"]
    for policy in POLICIES:
        arguments += ["--policy", policy]
    wide = "AVX2 FMA3 AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL"
    answers = [_simulate(arguments, {"PYTHONHASHSEED": "0"})]
    answers.append(_simulate(arguments, {"PYTHONHASHSEED": "1", "NPY_DISABLE_CPU_FEATURES": wide}))
    assert answers[0] == answers[1]
    assert len(answers[0]) == len(POLICIES)
    ours = experiment(nodes, pods, policy="FragmentGradient").run()
    assert answers[0][0]["allocated_percent"] == ours.allocated_percent
    assert [sample["fragmented_percent"] for sample in answers[0][0]["curve"]] == [
        sample.fragmented_percent for sample in ours.curve
    ]


def _simulate(arguments: list[str], environ: dict[str, str]) -> list[dict[str, object]]:
    command = [sys.executable, "-W", "ignore", "-m", "arranger.cli.main", "simulate", *arguments]
    done = subprocess.run(command, env=os.environ | environ, capture_output=True, text=True, check=True)
    runs: list[dict[str, object]] = json.loads(done.stdout)["runs"]
    for run in runs:
        assert run.pop("pods_per_s") > 0  # type: ignore[operator]
    return runs


# --- the published trace -----------------------------------------------------------------------------------

openb = pytest.mark.skipif(
    openb_folder() is None, reason=f"NO OPENB TRACE: set {OPENB_VARIABLE} to the folder with its CSV files"
)


@openb
@pytest.mark.parametrize(("policy", "published"), [("FragmentGradient", "06-FGD"), ("BestFit", "05-BestFit")])
def test_the_published_figures_come_out_again_from_the_openb_trace(policy: str, published: str) -> None:
    folder = openb_folder()
    assert folder is not None
    nodes, pods = read_nodes(folder / "openb_node_list_gpu_node.csv"), read_pods(folder / "openb_pod_list_default.csv")
    outcomes: list[TraceOutcome] = [experiment(nodes, pods, policy=policy, seed=seed).run() for seed in range(42, 52)]
    mean = fmean(outcome.allocated_percent for outcome in outcomes)
    assert mean == pytest.approx(published_openb(folder, pods="openb_pod_list_default", policy=published), abs=0.5)
    if policy == "FragmentGradient":
        assert mean >= 95.4


@openb
@pytest.mark.parametrize(
    "workload", ["openb_pod_list_default", "openb_pod_list_gpuspec33", "openb_pod_list_multigpu50"]
)
def test_the_default_policy_allocates_at_least_what_best_fit_does(workload: str) -> None:
    folder = openb_folder()
    assert folder is not None
    nodes, pods = read_nodes(folder / "openb_node_list_gpu_node.csv"), read_pods(folder / f"{workload}.csv")
    ours, best_fit = (
        fmean(experiment(nodes, pods, policy=policy, seed=seed).run().allocated_percent for seed in range(42, 45))
        for policy in (CycleConfig().pod_policy, "BestFit")
    )
    assert ours >= max(best_fit, published_openb(folder, pods=workload, policy="05-BestFit")) - 0.1
