"""Shares of queues over days: the real fold and the real cycle on a virtual clock, for users who always want more.

`python -m tests.shares_over_time` prints what queues used beside what they should have used, for several seeds.

What a queue should use follows from the weights alone, or with a half-life from `Predicted`, which solves the formula
in small steps of time and shares nothing with the product.
"""

import argparse
import random
import time
from collections.abc import Collection, Mapping

import msgspec

from arranger.model.queue import QueueSpec
from arranger.projections.jobs.records import JobRecord
from arranger.scheduling.cycle import VERSIONS
from arranger.settings import Settings
from tests.jobs_over_time import JobsOverTime
from tests.world import shape

#: Queue → GPU hours.
Hours = dict[str, float]

_GPUS_OF_NODE = 8
_HOUR_MS = 3_600_000


class Cluster:
    """A cluster with queues, on a clock that begins at 0 hours. `used` is what each queue has used so far.

    Jobs last between the two numbers of hours, and have one to four pods, each with one or two GPUs.
    """

    def __init__(
        self,
        queues: Mapping[str, QueueSpec],
        *,
        seed: int,
        nodes: int,
        lasts_h: tuple[float, float],
        tick_h: float,
        half_life_h: float = 0,
    ) -> None:
        self._chance = random.Random(seed)
        # Shares are what the order alone makes of them: nothing is taken back, and nobody has a reservation.
        settings = Settings(fair_share_half_life_s=round(half_life_h * 3600), reservations=0)
        config = msgspec.structs.replace(settings.cycle_config(VERSIONS), preemption=None)
        self._over_time = JobsOverTime(config, ended=self._ended)
        self._world = self._over_time.world
        self._lasts_h, self._tick_ms = lasts_h, round(tick_h * _HOUR_MS)
        self._began_ms = self._world.now_ms
        for number in range(nodes):
            self._world.node(f"n{number:03}", gpus=_GPUS_OF_NODE)
        for name, spec in queues.items():
            self._world.queue(name, spec)
        self.gpus = nodes * _GPUS_OF_NODE
        self.used: Hours = dict.fromkeys(queues, 0.0)
        self.jobs = 0
        self._waiting: dict[str, dict[str, JobRecord]] = {name: {} for name in queues}
        #: Queue → the GPUs that its waiting jobs request (at least all free ones, and some more), and those it uses.
        self._wanted = dict.fromkeys(queues, 0)
        self._using = dict.fromkeys(queues, 0)
        self._running: dict[str, dict[str, JobRecord]] = {name: {} for name in queues}

    @property
    def now_h(self) -> float:
        """The time since the begin."""
        return (self._world.now_ms - self._began_ms) / _HOUR_MS

    def run(self, hours: float, wanting: Collection[str]) -> Hours:
        """Let time pass, in which these queues always want more and the others nothing; what each queue used in it."""
        before, until_h = dict(self.used), self.now_h + hours
        for name in sorted(self._waiting.keys() - set(wanting)):
            for job in (*self._waiting[name].values(), *self._running[name].values()):
                self._over_time.end(job)
        while self.now_h < until_h - 1e-9:
            self._over_time.end_due()
            self._fill(wanting)
            for name, gpus in self._using.items():
                self.used[name] += gpus * self._tick_ms / _HOUR_MS
            self._world.now_ms += self._tick_ms
            self._over_time.forget()
        return {name: used - before[name] for name, used in self.used.items()}

    def _fill(self, wanting: Collection[str]) -> None:
        """Submit jobs and take cycles until nothing more fits."""
        placed = True
        while placed:
            free = self.gpus - sum(self._using.values())
            for name in sorted(wanting):
                while self._wanted[name] < free + max(self.gpus // 16, 32):
                    self._submit(name)
            placed = self._cycle()

    def _submit(self, queue: str) -> None:
        self.jobs += 1
        pod = shape(cpu=1, gpus=self._chance.choice((1, 2)))
        workers = self._chance.choice((0, 0, 0, 1, 3))
        name, created_ms = f"{queue}-{self.jobs}", self._world.now_ms
        job = self._world.job(
            name, leader=pod, workers=workers, worker=pod, min_workers=workers, of_queue=queue, created=created_ms
        )
        self._waiting[queue][job.uid] = job
        self._wanted[queue] += _gpus(job)

    def _cycle(self) -> bool:
        """Take a cycle. Returns whether jobs got nodes."""
        placed = self._over_time.cycle(lambda _: round(self._chance.uniform(*self._lasts_h) * _HOUR_MS))
        for job in placed:
            queue = job.valid_spec.queue
            self._running[queue][job.uid] = self._waiting[queue].pop(job.uid)
            self._wanted[queue] -= _gpus(job)
            self._using[queue] += _gpus(job)
        return bool(placed)

    def _ended(self, job: JobRecord) -> None:
        queue = job.valid_spec.queue
        if self._waiting[queue].pop(job.uid, None) is not None:
            self._wanted[queue] -= _gpus(job)
        if self._running[queue].pop(job.uid, None) is not None:
            self._using[queue] -= _gpus(job)


def _gpus(job: JobRecord) -> int:
    """The GPUs that all pods of a job request."""
    return sum(of.count * dict(of.shape.requests)["nvidia.com/gpu"] for of in job.valid_spec.groups)


class Predicted:
    """What queues of these weights should use with a half-life, if jobs were small and short.

    The order equalises (use + average use) / share among the queues that want more, and the average follows the use:
    d average / dt = (use - average) x ln 2 / half-life. All begin with an average of 0.
    """

    def __init__(self, weights: Mapping[str, float], *, gpus: float, half_life_h: float) -> None:
        self._weights = weights
        self._gpus = gpus
        self._half_life_h = half_life_h
        self._averages = dict.fromkeys(weights, 0.0)

    def run(self, hours: float, wanting: Collection[str], *, step_h: float = 1 / 60) -> Hours:
        """Let time pass, as `Cluster.run`."""
        used = dict.fromkeys(self._weights, 0.0)
        kept = 0.5 ** (step_h / self._half_life_h)
        for _ in range(round(hours / step_h)):
            now = self._now(wanting)
            for name in used:
                used[name] += now[name] * step_h
                self._averages[name] = self._averages[name] * kept + now[name] * (1 - kept)
        return used

    def _now(self, wanting: Collection[str]) -> Hours:
        """The use of each queue: the lowest are raised to one level, of which their average use is a part."""
        whole = sum(self._weights[name] for name in wanting)
        shares = {name: self._gpus * self._weights[name] / whole for name in wanting}
        raised = sorted(wanting, key=lambda name: self._averages[name] / shares[name])
        level = 0.0
        while raised:
            level = (self._gpus + sum(self._averages[name] for name in raised)) / sum(shares[name] for name in raised)
            if self._averages[raised[-1]] <= level * shares[raised[-1]]:
                break
            raised.pop()
        now = dict.fromkeys(self._weights, 0.0)
        return now | {name: level * shares[name] - self._averages[name] for name in raised}


#: Three users; and two users within a project beside a third one.
FLAT = {"a": QueueSpec(weight=1), "b": QueueSpec(weight=2), "c": QueueSpec(weight=5)}
TREE = {
    "project": QueueSpec(weight=3),
    "a": QueueSpec("project", weight=1),
    "b": QueueSpec("project", weight=3),
    "c": QueueSpec(weight=2),
}
EQUAL = {name: QueueSpec() for name in "abc"}


def over_days(queues: Mapping[str, QueueSpec], *, seed: int, days: float, half_life_h: float = 0) -> Hours:
    """Queue without queues below it → how much more than its part of all used GPU hours it used (0.02: 2 % more)."""
    cluster = Cluster(queues, seed=seed, nodes=128, lasts_h=(1, 11), tick_h=1 / 4, half_life_h=half_life_h)
    leaves = queues.keys() - {spec.parent for spec in queues.values()}
    used = cluster.run(24 * days, leaves)
    whole = sum(used.values())
    return {name: used[name] / whole / _part(queues, name) - 1 for name in sorted(leaves)}


def _part(queues: Mapping[str, QueueSpec], name: str) -> float:
    """The part of the cluster of a queue, among its siblings and those of each queue above it."""
    if not name:
        return 1.0
    parent = queues[name].parent
    siblings = sum(spec.weight for spec in queues.values() if spec.parent == parent)
    return queues[name].weight / siblings * _part(queues, parent)


def catching_up(*, seed: int, half_life_h: float = 24, nodes: int = 32) -> list[tuple[str, Hours, Hours]]:
    """Queue `a` is away for a day: (what happens, GPU hours used, GPU hours predicted) before, meanwhile and after."""
    cluster = Cluster(EQUAL, seed=seed, nodes=nodes, lasts_h=(0.1, 0.9), tick_h=1 / 20, half_life_h=half_life_h)
    predicted = Predicted(dict.fromkeys(EQUAL, 1.0), gpus=cluster.gpus, half_life_h=half_life_h)
    found = []
    for what, hours, wanting in (
        ("all want more", 12, "abc"), ("a is away", 24, "bc"), ("a is back", 6, "abc"), ("a is back", 6, "abc"),
        ("a is back", 12, "abc"),
    ):  # fmt: skip
        found.append((what, cluster.run(hours, wanting), predicted.run(hours, wanting)))
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--days", type=float, default=10)
    given = parser.parse_args()
    for seed in range(given.seed, given.seed + given.seeds):
        for what, queues, half_life_h in (("flat", FLAT, 0), ("tree", TREE, 0), ("flat, with a half-life", FLAT, 24)):
            began_s = time.process_time()
            off = over_days(queues, seed=seed, days=given.days, half_life_h=half_life_h)
            text = ", ".join(f"{queue} {more:+.2%}" for queue, more in off.items())
            print(
                f"seed {seed}, {given.days:g} days, {what}: {text} ({time.process_time() - began_s:.0f} s)", flush=True
            )
        for what, used, expected in catching_up(seed=seed):
            text = ", ".join(f"{queue} {used[queue]:.0f} of {expected[queue]:.0f} h" for queue in used)
            print(f"seed {seed}, {what}: {text}", flush=True)


if __name__ == "__main__":
    main()
