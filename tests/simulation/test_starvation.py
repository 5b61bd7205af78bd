"""No job waits for ever: small jobs come without end, and every large job starts whose quorum fits an empty cluster.

The real fold and the real cycle on a virtual clock. Small jobs always wait, and each end makes room for one of them at
once, so all nodes of a large job are never free at the same time by chance.
"""

import random
from itertools import count

import msgspec
import pytest

from arranger.model.config import CycleConfig
from arranger.projections.consistency import validate
from arranger.projections.jobs.records import JobRecord
from arranger.scheduling.cycle import VERSIONS
from arranger.settings import Settings
from tests.jobs_over_time import JobsOverTime
from tests.world import shape

#: As shipped, but nobody gives room to others: that would be another way out.
SHIPPED = msgspec.structs.replace(Settings().cycle_config(VERSIONS), preemption=None, dry_run=False)
NODES, GPUS = 3, 4
#: So many small jobs wait at any time.
WAIT = 5
#: Small jobs last for between these times, in seconds.
SHORT_S, LONG_S = 10, 60
STEP_S = 5
#: A large job comes when others wait and run. Those before it begin first: at most WAIT small ones, each of which may
#: last LONG_S after all that run now, and the large ones before it; then it waits for those that run.
BOUND_S = 6 * LONG_S


class Endless:
    """A cluster for whose nodes small jobs always wait."""

    def __init__(self, config: CycleConfig, seed: int, *, told: float, queues: tuple[str, ...] = ()) -> None:
        """`told` is the part of small jobs that say how long they run."""
        self._chance = random.Random(f"{seed} endless")
        self.jobs = JobsOverTime(config, ended=lambda _: None)
        self._told, self._queues = told, queues
        self._numbers = count()
        self._waiting: dict[str, int] = {}
        for number in range(NODES):
            self.jobs.world.node(f"n{number}", cpu=64, gpus=GPUS)
        for name in queues:
            self.jobs.world.queue(name, weight=1)

    def pass_time(self, seconds: int) -> None:
        """Let jobs come, begin and end."""
        for _ in range(0, seconds, STEP_S):
            self.jobs.world.pass_time(STEP_S)
            self.jobs.end_due()
            while len(self._waiting) < WAIT:
                self._submit()
            for job in self.jobs.cycle(self._lasts_ms):
                self._waiting.pop(job.uid, None)
            validate(self.jobs.world.state)

    def _submit(self) -> None:
        chance, run_s = self._chance, self._chance.randrange(SHORT_S, LONG_S)
        job = self.job(f"small{next(self._numbers)}", chance.randrange(1, 3), chance.randrange(1, 3),
                       queue=chance.choice(self._queues or ("",)),
                       expected_s=run_s if chance.random() < self._told else None)  # fmt: skip
        self._waiting[job.uid] = run_s * 1000

    def _lasts_ms(self, job: JobRecord) -> int:
        return self._waiting.get(job.uid, SHORT_S * 1000)

    def job(self, name: str, pods: int, gpus: int, *, queue: str = "", expected_s: int | None = None) -> JobRecord:
        """A new job whose quorum is all of its pods."""
        world = self.jobs.world
        return world.job(name, workers=pods, worker=shape(cpu=1, gpus=gpus), min_workers=pods, equals=True,
                         of_queue=queue, expected_s=expected_s, created=world.now_ms // 1000)  # fmt: skip

    def started(self, *jobs: JobRecord, within_s: int) -> list[bool]:
        """Whether each of these jobs has got nodes within a time."""
        begun = dict.fromkeys([job.uid for job in jobs], False)
        for _ in range(0, within_s, STEP_S):
            self.pass_time(STEP_S)
            state = self.jobs.world.state
            begun |= {uid: True for uid in begun if uid not in state.jobs or state.jobs[uid].placements}
        return [*begun.values()]


@pytest.mark.parametrize("told", [0.0, 0.5, 1.0], ids=lambda told: f"{told:.0%} tell")
@pytest.mark.parametrize("queue_policy", ["Priority", "DRF"])
def test_with_small_jobs_that_never_stop_every_large_job_starts(queue_policy: str, told: float) -> None:
    world = Endless(msgspec.structs.replace(SHIPPED, queue_policy=queue_policy), 1, told=told)
    world.pass_time(2 * LONG_S)
    large = [world.job(f"large{number}", NODES - number, GPUS) for number in range(2)]
    assert world.started(*large, within_s=BOUND_S) == [True, True]


def test_without_reservations_a_large_job_waits_for_ever() -> None:
    world = Endless(msgspec.structs.replace(SHIPPED, reservations=0), 1, told=0.5)
    world.pass_time(2 * LONG_S)
    assert world.started(world.job("large", NODES, GPUS), within_s=5 * BOUND_S) == [False]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_large_job_of_a_queue_with_a_share_of_it_starts_beside_another_queue(seed: int) -> None:
    world = Endless(SHIPPED, seed, told=0.5, queues=("a", "b"))
    world.pass_time(2 * LONG_S)
    large = world.job("large", 2 * NODES, GPUS // 2, queue="a")
    assert world.started(large, within_s=2 * BOUND_S) == [True]
