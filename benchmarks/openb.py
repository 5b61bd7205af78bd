"""Placing the pods of the openb trace, against the published table of what each policy allocates.

The trace isn't part of this repository: `OPENB_TRACE` names a folder with its CSV files and the published table.
`benchmarks/openb_lists.py` makes stand-ins for the published lists of pods that the folder lacks.
Orders of arrival are ours, so single seeds can't agree with the published ones; means of ten can. Only deciding is
timed, without reading and preparing, as the time that it had a core to itself: it is one thread that waits for nothing.
"""

import time
from pathlib import Path
from statistics import fmean, median, stdev

from arranger.cli.inputs.trace_files import read_nodes
from arranger.model.config import CycleConfig
from arranger.scheduling.experiment import POLICIES, Experiment, TraceNode, TraceOutcome, TracePod
from benchmarks.openb_lists import DEFAULT, PodList, pod_lists
from benchmarks.report import Figure
from tests.servers import ServersUnavailable
from tests.traces import OPENB_VARIABLE, made_up, openb_folder, place_by_full_scan, published_openb

_LOAD = 1.3
#: Of the default list, and of each other list.
_MANY, _FEW = range(42, 52), range(42, 45)
_PUBLISHED = {"FragmentGradient": "06-FGD", "BestFit": "05-BestFit"}
_DEFAULT_POLICY = CycleConfig().pod_policy
_OURS = ("BinPack", "MinFragment", "LeaderFirst", "JobAntiAffinity")

#: As much as the scan of every node for every pod is given to do.
_SCANNED_LOAD = 0.2

#: Each seed's outcome, and the seconds of a core that deciding took.
Runs = list[tuple[TraceOutcome, float]]


def run(*, quick: bool) -> list[Figure]:
    """The benchmark; `quick` takes a small made-up trace, which nothing is published about."""
    if quick:
        nodes, pods = made_up()
        return [
            *(_allocated(policy, "a made-up trace", _runs(nodes, pods, policy, _FEW[:2])) for policy in POLICIES),
            *_against_scan(nodes, pods),
        ]
    folder = openb_folder()
    if folder is None:
        raise ServersUnavailable(f"set {OPENB_VARIABLE} to the folder with the CSV files of the openb trace")
    nodes = read_nodes(folder / "openb_node_list_gpu_node.csv")
    lists = pod_lists(folder)
    figures = [figure for one in lists for figure in _of_list(folder, nodes, one)]
    pods = next(one.pods for one in lists if one.name == DEFAULT)
    figures += [_allocated(policy, DEFAULT, _runs(nodes, pods, policy, _MANY)) for policy in _OURS]
    return [*figures, *_against_scan(nodes, pods)]


def _of_list(folder: Path, nodes: list[TraceNode], one: PodList) -> list[Figure]:
    """The default policy beside the published ones; of a stand-in for a published list only this."""
    seeds = _MANY if one.name == DEFAULT else _FEW
    runs = {policy: _runs(nodes, one.pods, policy, seeds) for policy in (*_PUBLISHED, _DEFAULT_POLICY)}
    published = {policy: published_openb(folder, pods=one.workload, policy=name) for policy, name in _PUBLISHED.items()}
    figures = [] if one.made else _against_published(one.name, runs, published)
    best = _mean(runs["BestFit"]) if one.made else max(_mean(runs["BestFit"]), published["BestFit"])
    others = ", ".join(
        f"{policy} {_mean(runs[policy]):.2f} (published {theirs:.2f})" for policy, theirs in published.items()
    )
    ours = _mean(runs[_DEFAULT_POLICY])
    figures.append(
        Figure(
            name=f"{_DEFAULT_POLICY}, {'like ' if one.made else ''}{one.name}, above BestFit", value=ours - best,
            unit="points", at_least=-0.1, note=f"{ours:.2f} %, {others}",
        )
    )  # fmt: skip
    return figures


def _against_published(short: str, every: dict[str, Runs], published: dict[str, float]) -> list[Figure]:
    figures: list[Figure] = []
    for policy, theirs in published.items():
        runs = every[policy]
        ours, known = _mean(runs), (short, policy) == (DEFAULT, "FragmentGradient")
        figures.append(_allocated(policy, short, runs, at_least=95.4 if known else None))
        figures.append(
            Figure(
                name=f"{policy}, {short}, from the published", value=abs(ours - theirs), unit="points", at_most=0.5,
                note=f"{ours:.2f} %, published {theirs:.2f} %",
            )
        )  # fmt: skip
        if short == DEFAULT:
            speeds = [outcome.arrived_pods / took_s for outcome, took_s in runs]
            note = f"median of {len(runs)} seeds, {min(speeds):,.0f} to {max(speeds):,.0f}"
            goal = 5_000 if known else None
            figures.append(Figure(name=f"{policy}, pods", value=median(speeds), unit="/s", at_least=goal, note=note))
    return figures


def _runs(nodes: list[TraceNode], pods: list[TracePod], policy: str, seeds: range, *, load: float = _LOAD) -> Runs:
    found: Runs = []
    for seed in seeds:
        experiment = Experiment(nodes, pods, policy=policy, score=POLICIES[policy], load=load, seed=seed)
        began_s = time.thread_time()
        outcome = experiment.run()
        found.append((outcome, time.thread_time() - began_s))
    return found


def _mean(runs: Runs) -> float:
    return fmean(outcome.allocated_percent for outcome, _ in runs)


def _allocated(policy: str, short: str, runs: Runs, *, at_least: float | None = None) -> Figure:
    spread = stdev(outcome.allocated_percent for outcome, _ in runs)
    fragmented = fmean(outcome.fragmented_percent for outcome, _ in runs)
    return Figure(
        name=f"{policy}, {short}, allocated", value=_mean(runs), unit="%", at_least=at_least,
        note=f"{len(runs)} seeds, standard deviation {spread:.2f}; {fragmented:.2f} % of all GPUs fragmented",
    )  # fmt: skip


def _against_scan(nodes: list[TraceNode], pods: list[TracePod]) -> list[Figure]:
    """Ours and the scan of every node for every pod, on the same first arrivals."""
    policy = "FragmentGradient"
    ours, scanned = (
        Experiment(nodes, pods, policy=policy, score=POLICIES[policy], load=_SCANNED_LOAD, seed=42) for _ in range(2)
    )
    began_s = time.thread_time()
    ours.run()
    between_s = time.thread_time()
    count = len(list(place_by_full_scan(scanned, nodes, POLICIES[policy])))
    scan_s, ours_s = time.thread_time() - between_s, between_s - began_s
    same = (ours.cluster.devices == scanned.cluster.devices).all()
    return [
        Figure(name="every node scored for every pod", value=count / scan_s, unit="/s", note=f"{count:,} pods, numpy"),
        Figure(name="times faster than that", value=scan_s / ours_s, note="on the same pods"),
        Figure(name="same devices as that", value=float(same), at_least=1.0),
    ]
