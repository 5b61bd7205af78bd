"""Small jobs that never stop coming, and a job of three whole nodes that is more important than they are.

Without a reservation it waits for as long as they come: each GPU that becomes free goes to a small job. With one, it
starts no later than first promised. Small jobs that end in time run meanwhile on the nodes that are kept for it, so
hardly any GPU time is lost.
"""

import math
import random
from typing import NamedTuple

import msgspec
import pytest

from arranger.projections.jobs.records import JobRecord
from arranger.scheduling.cycle import VERSIONS
from arranger.settings import Settings
from tests.jobs_over_time import JobsOverTime
from tests.world import shape

pytestmark = pytest.mark.slow

_NODES, _GPUS, _WIDE = 8, 8, 3
#: The shortest and the longest small jobs run for so long. Logarithms of run times are equally likely.
_LASTS_MS = (5_000, 120_000)
#: The time from one small job to the next, on average. They ask for a tenth more than all GPUs.
_BETWEEN_MS = 1_028
#: How long small jobs come before the large one, and at least after it.
_BEFORE_MS, _AFTER_MS = 180_000, 240_000


class Wait(NamedTuple):
    """How long the large job waited, and how long according to the first promise, in milliseconds; None for a job that
    didn't start, or that was promised nothing. `used` is the part of all GPUs that was used in the time asked for."""

    waited_ms: int | None
    promised_ms: int | None
    used: float


class Cluster:
    """Nodes on which small jobs run, and a stream of them."""

    def __init__(self, seed: int, queue_policy: str, reservations: int) -> None:
        settings = Settings(reservations=reservations, queue_policy=queue_policy)
        config = msgspec.structs.replace(
            settings.cycle_config(VERSIONS), preemption=None, dry_run=False, reasons_refresh_ms=1 << 50
        )
        self._chance = random.Random(seed)
        self._over_time = JobsOverTime(config, ended=lambda job: None)
        self.world = self._over_time.world
        for number in range(_NODES):
            self.world.node(f"n{number}", gpus=_GPUS, cpu=96)
        self._lasts_ms = {"large": 60_000}
        self._coming_ms = self.world.now_ms
        #: The first time that a reservation of the large job named for its start.
        self.promised_ms: int | None = None

    def large(self) -> JobRecord:
        """The job of three nodes. It doesn't say how long it runs."""
        whole = shape(cpu=1, gpus=_GPUS)
        return self.world.job("large", workers=_WIDE, worker=whole, min_workers=_WIDE, priority=9, equals=True)

    def _small(self) -> None:
        name = f"small-{len(self._lasts_ms):05}"
        shortest, longest = (math.log(of) for of in _LASTS_MS)
        lasts_s = round(math.exp(self._chance.uniform(shortest, longest)) / 1000)
        self._lasts_ms[name] = 1000 * lasts_s
        pod = shape(cpu=1, gpus=self._chance.choice((1, 1, 2, 4)))
        self.world.job(name, leader=pod, priority=3, expected_s=lasts_s, created=self.world.now_ms)

    def run(self, for_ms: int, large: JobRecord | None = None) -> float:
        """Let time pass, at most until the large job starts. Returns the GPU-milliseconds that were used."""
        used, world, until_ms = 0.0, self.world, self.world.now_ms + for_ms
        while world.now_ms < until_ms:
            self._over_time.cycle(lambda job: self._lasts_ms[job.seen.name])
            self._over_time.forget()
            if large is not None and large.placements:
                break
            if self.promised_ms is None and large is not None and large.uid in world.state.reservations:
                self.promised_ms = world.state.reservations[large.uid].decided.start_ms
            end_ms = self._over_time.next_end_ms()
            next_ms = min(until_ms, self._coming_ms, until_ms if end_ms is None else end_ms)
            used += self._using() * (next_ms - world.now_ms)
            world.now_ms = next_ms
            self._over_time.end_due()
            if self._coming_ms <= world.now_ms:
                self._small()
                self._coming_ms += round(self._chance.expovariate(1 / _BETWEEN_MS))
        return used

    def _using(self) -> int:
        return sum(
            dict(job.valid_spec.groups[group].shape.requests)["nvidia.com/gpu"]
            for job in self.world.state.jobs.values()
            for group, _ in job.placements
        )


def wait(cluster: Cluster, within_ms: int) -> Wait:
    """What becomes of the large job in that time."""
    cluster.run(_BEFORE_MS)
    world = cluster.world
    job, began_ms = cluster.large(), world.now_ms
    used = cluster.run(within_ms, job)
    lasted_ms = world.now_ms - began_ms
    promised_ms = cluster.promised_ms - began_ms if cluster.promised_ms is not None else None
    return Wait(lasted_ms if job.placements else None, promised_ms, used / lasted_ms / (_NODES * _GPUS))


@pytest.mark.parametrize("queue_policy", ["Priority", "DRF"])
def test_a_large_job_starts_as_promised_at_hardly_any_cost(queue_policy: str) -> None:
    ratios = []
    for seed in range(2):
        kept = wait(Cluster(seed, queue_policy, 1), _AFTER_MS)
        assert kept.waited_ms is not None and kept.promised_ms is not None
        assert kept.waited_ms <= kept.promised_ms <= _LASTS_MS[1]
        overtaken = wait(Cluster(seed, queue_policy, 0), kept.waited_ms)
        assert (overtaken.waited_ms, overtaken.promised_ms) == (None, None)
        ratios.append(kept.used / overtaken.used)
    assert sum(ratios) / len(ratios) >= 0.95
