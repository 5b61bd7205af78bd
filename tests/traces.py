"""Traces for tests: a generated one, and the openb trace if a path to it is given."""

import csv
import os
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from arranger.scheduling.cluster.fragmentation import NO_FIT
from arranger.scheduling.experiment.trace import Experiment, Policy, TraceNode, TracePod

#: The variable with the folder of the openb trace's CSV files, which aren't part of this repository.
OPENB_VARIABLE = "OPENB_TRACE"

_PUBLISHED = "expected_analysis_allo_discrete.csv"

_NODES = (
    (8_000, 61_440, 1, "P100"),
    (16_000, 122_880, 2, "P100"),
    (104_000, 524_288, 2, "T4"),
    (96_000, 393_216, 8, "G2"),
)
_PODS = (
    (4_000, 8_192, 1, 1000, ()),
    (2_000, 8_192, 1, 500, ()),
    (8_000, 16_384, 1, 250, ("T4", "G2")),
    (1_000, 4_096, 1, 430, ()),
    (16_000, 32_768, 2, 1000, ()),
    (48_000, 131_072, 8, 1000, ("G2",)),
    (6_000, 16_384, 0, 0, ()),
    (4_000, 8_192, 1, 1000, ("A100",)),
)  # fmt: skip
_OFTEN = (30, 25, 15, 20, 3, 2, 10, 1)


def made_up(*, nodes: int = 40, pods: int = 300, seed: int = 1) -> tuple[list[TraceNode], list[TracePod]]:
    """Mixed nodes, and pods for more than all of their GPUs: shared, whole, many, none, choosy, impossible."""
    chance = random.Random(seed)
    return (
        [TraceNode(f"node-{number:03}", *chance.choice(_NODES)) for number in range(nodes)],
        [TracePod(f"pod-{number:04}", *chance.choices(_PODS, _OFTEN)[0]) for number in range(pods)],
    )


def place_by_full_scan(run: Experiment, nodes: list[TraceNode], score: Policy) -> Iterator[bool]:
    """Place an experiment's arrivals, scoring all nodes for each pod; yields whether each fitted."""
    cluster = run.cluster
    models = sorted({node.model for node in nodes})
    for number in run.arrivals.tolist():
        shape = run.shapes[number]
        fits = (cluster.free_cpu_milli >= shape.request.cpu_milli) & (cluster.free_memory_mib >= shape.memory_mib)
        if shape.request.total_milli:
            fits &= np.array([shape.request.accepts(model) for model in models])[cluster.model]
        scores, devices = score(cluster, shape, fits, run.mix)
        best = int(scores.argmax())
        if scores[best] != NO_FIT:
            cluster.take(best, shape, int(devices[best]))
        yield bool(scores[best] != NO_FIT)


def write_nodes(path: Path, nodes: list[TraceNode]) -> Path:
    rows = [(node.name, node.cpu_milli, node.memory_mib, node.gpus, node.model) for node in nodes]
    return _write(path, ("sn", "cpu_milli", "memory_mib", "gpu", "model"), rows)


def write_pods(path: Path, pods: list[TracePod]) -> Path:
    rows = [(p.name, p.cpu_milli, p.memory_mib, p.gpus, p.gpu_milli, "|".join(p.models)) for p in pods]
    return _write(path, ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec"), rows)


def _write(path: Path, columns: tuple[str, ...], rows: list[tuple[object, ...]]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([columns, *rows])
    return path


def openb_folder() -> Path | None:
    """The folder of the openb trace; None if it isn't set."""
    value = os.environ.get(OPENB_VARIABLE)
    return Path(value) if value else None


def openb_workloads(folder: Path) -> list[str]:
    """The lists of pods in the published table."""
    with (folder / _PUBLISHED).open(newline="") as file:
        return sorted({row["workload"] for row in csv.DictReader(file)})


def published_openb(folder: Path, *, pods: str, policy: str) -> float:
    """The mean of the published allocated GPU percents at the end, over all seeds, for a list of pods and a policy."""
    with (folder / _PUBLISHED).open(newline="") as file:
        found = [
            float(row["130"]) for row in csv.DictReader(file) if (row["workload"], row["sc_policy"]) == (pods, policy)
        ]
    return sum(found) / len(found)
