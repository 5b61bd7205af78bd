"""The openb lists of pods: those that the folder of the trace holds, and stand-ins for the other published ones.

The published table has 17 lists. The authors sampled them from the default list, to have more pods of some kind. Where
the folder lacks one, a list with the same shares is made here, also by sampling. It is not the published list: only the
shares are the same, as far as the sizes of the published files and the figures of the published policies show them.

    cpu250       25.0 % of the pods ask for no GPU
    gpushare40   pods that take a part of one GPU request 40 % of all GPUs; as many pods as in the default list
    multigpu20   pods of several GPUs request 20 % of all GPUs; the other pods are those of the default list
    gpuspec10    10 % of the pods with GPUs keep the GPU models that they ask for in the list gpuspec33
"""

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from arranger.cli.inputs.trace_files import read_pods
from arranger.scheduling.experiment import TracePod
from tests.traces import openb_workloads

_PREFIX = "openb_pod_list_"
DEFAULT, _SPECS = "default", "gpuspec33"

Pods = list[TracePod]


class PodList(NamedTuple):
    """A list of pods, named as in the published table, without the prefix. `made`: a stand-in made here."""

    name: str
    pods: Pods
    made: bool

    @property
    def workload(self) -> str:
        """The name in the published table."""
        return _PREFIX + self.name


def pod_lists(folder: Path) -> list[PodList]:
    """The default list, the other lists in the folder, and the stand-ins that can be made from them."""
    there = {path.stem.removeprefix(_PREFIX): read_pods(path) for path in sorted(folder.glob(f"{_PREFIX}*.csv"))}
    there = {DEFAULT: there.pop(DEFAULT), **there}
    found = [PodList(name, pods, made=False) for name, pods in there.items()]
    for name in (workload.removeprefix(_PREFIX) for workload in openb_workloads(folder)):
        kind = re.fullmatch(r"([a-z]+)(\d+)", name)
        if name in there or kind is None or (kind[1] == "gpuspec" and _SPECS not in there):
            continue
        source = there[_SPECS if kind[1] == "gpuspec" else DEFAULT]
        found.append(PodList(name, _MAKERS[kind[1]](source, int(kind[2]), random.Random(name)), made=True))
    return found


def _cpu(pods: Pods, permille: int, chance: random.Random) -> Pods:
    with_gpus, without = _parted(pods, lambda pod: pod.gpus > 0)
    return with_gpus + _sampled(without, round(len(with_gpus) * permille / (1000 - permille)), chance)


def _gpushare(pods: Pods, percent: int, chance: random.Random) -> Pods:
    with_gpus, without = _parted(pods, lambda pod: pod.gpus > 0)
    shared, whole = _parted(with_gpus, lambda pod: pod.gpu_milli < 1000)
    # x pods of `shared` and the rest of `whole`, so that the GPUs that both request are as percent to 100 - percent.
    a, b = percent * _gpus(whole) / len(whole), (100 - percent) * _gpus(shared) / len(shared)
    number = round(len(with_gpus) * a / (a + b))
    return without + _sampled(shared, number, chance) + _sampled(whole, len(with_gpus) - number, chance)


def _multigpu(pods: Pods, percent: int, chance: random.Random) -> Pods:
    several, others = _parted(pods, lambda pod: pod.gpus > 1)
    wanted = _gpus(others) * percent / (100 - percent)
    return others + _sampled(several, round(wanted * len(several) / _gpus(several)), chance)


def _gpuspec(pods: Pods, percent: int, chance: random.Random) -> Pods:
    choosy = [at for at, pod in enumerate(pods) if pod.models]
    keep = set(chance.sample(choosy, round(sum(pod.gpus > 0 for pod in pods) * percent / 100)))
    return [pod if at in keep else msgspec.structs.replace(pod, models=()) for at, pod in enumerate(pods)]


_MAKERS = {"cpu": _cpu, "gpushare": _gpushare, "multigpu": _multigpu, "gpuspec": _gpuspec}


def _parted(pods: Pods, belongs: Callable[[TracePod], bool]) -> tuple[Pods, Pods]:
    return [pod for pod in pods if belongs(pod)], [pod for pod in pods if not belongs(pod)]


def _sampled(pods: Pods, number: int, chance: random.Random) -> Pods:
    """Each pod at most once if they are enough, else all of them and random ones again."""
    if number <= len(pods):
        return chance.sample(pods, number)
    return pods + chance.choices(pods, k=number - len(pods))


def _gpus(pods: Pods) -> int:
    return sum(pod.gpus * pod.gpu_milli for pod in pods)
