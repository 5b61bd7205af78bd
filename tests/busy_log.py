"""Busy logs for the pictures and the tests of the console: one of two hours of a cluster of 16 nodes with more than a
hundred jobs of three queues, and one of a moment of 5,000 nodes. Both are the same in each run.

In the first, jobs come and end all the time, some fail or wait for others, nodes are lost and cordoned, room is taken
back, kept and lent, one victim doesn't leave, and forecasts are made as the scheduler's own process makes them.
"""

import random
from collections.abc import Sequence

from arranger.events import kinds as k
from arranger.events.log import Entry
from arranger.lifecycle.desired import desired_pods
from arranger.model.config import CycleConfig
from arranger.model.job import Stage
from arranger.model.queue import Preemption
from arranger.projections.jobs.records import JobRecord
from arranger.replay.forecast.starts import forecast
from arranger.workers.deciding.forecaster import news
from tests.world import GIB, World, shape

_SEED = 11
#: A round is so long, and there are so many.
_ROUND_S, _ROUNDS = 20, 360
_USERS = ("ada", "grace", "edsger", "barbara.liskov@lab.example", "tony")
_QUEUES = (("research", "research"), ("research", "evaluation"), ("serving", "serving"), ("batch", "nightly"))
_WORK = ("ppo-humanoid", "dqn-atari", "rlhf-reward-model-with-a-long-name", "sweep", "eval", "distill", "impala-vtrace")


class Busy:
    """The hours of 16 nodes."""

    def __init__(self) -> None:
        config = CycleConfig(
            refusal_avoid_ms=60_000, preemption=Preemption(), room_bound_ms=60_000, reservations=2,
            reservation_refresh_ms=30_000, guests=True, learned_runtimes=True, half_life_ms=3_600_000,
        )  # fmt: skip
        self.world = World(config=config)
        self._chance = random.Random(_SEED)
        self._count = 0
        #: UID → when the job ends by itself, in milliseconds, once it runs.
        self._ends: dict[str, int] = {}
        #: UIDs of pods whose kubelet doesn't answer: they don't leave.
        self._hang: set[str] = set()

    def entries(self, rounds: int = _ROUNDS) -> Sequence[Entry]:
        """The log, of so many rounds."""
        world = self.world
        for number in range(16):
            rack = {
                "topology.kubernetes.io/zone": f"zone-{'ab'[number // 8]}",
                "lab.example/rack": f"rack-{number // 4}",
            }
            world.node(f"gpu-node-{number:02}.cluster.lab.example", cpu=96, memory=768 * GIB, gpus=8, labels=rack)
        gpus = (("nvidia.com/gpu", 48),)
        world.queue("research", weight=3, deserved=(("nvidia.com/gpu", 64),))
        world.queue("evaluation", parent="research", max_running=2)
        world.queue("serving", weight=2, guarantee=(("nvidia.com/gpu", 16),))
        world.queue("batch", weight=1, capability=gpus)
        world.limit_range("small-pods", namespace="nightly", default={"memory": "8Gi"}, max={"nvidia.com/gpu": "4"})
        world.pod("node-exporter-x7k2p", "gpu-node-00.cluster.lab.example", namespace="monitoring", cpu=1)
        for number in range(rounds):
            world.pass_time(_ROUND_S)
            self._happens(number)
            self._round()
            if number % 30 == 29:
                found = forecast(world.state, world.config, world.now_ms, first=20)
                if events := news(world.state, found):
                    world.say(*events)
        return world.entries

    def jobs(self) -> dict[str, str]:
        """A job that waits, one that runs, and one that failed, as namespace/name."""
        jobs = sorted(self.world.state.jobs.values(), key=lambda job: job.seen.created_ms)

        def first(*stages: Stage, of: str = "") -> str:
            found = next(job for job in jobs if job.stage in stages and of in job.seen.name)
            return f"{found.seen.namespace}/{found.seen.name}"

        return {
            "waits": first(Stage.RESCHEDULING, Stage.PENDING, of="-"),
            "runs": first(Stage.RUNNING),
            "failed": first(Stage.FAILED, of="-"),
        }

    def _round(self) -> None:
        world = self.world
        for _ in range(6):
            acted = bool(world.cycle())
            acted = bool(world.control()) or acted
            if not (self._apply() or acted):
                break
        for job in world.state.jobs.values():
            if job.stage == Stage.RUNNING and job.uid not in self._ends:
                self._ends[job.uid] = world.now_ms + self._chance.choice((4, 9, 15, 25, 40)) * 60_000

    def _apply(self) -> int:
        """As `World.apply`, but for pods that hang."""
        world, effects = self.world, 0
        for job in [world.state.jobs[uid] for uid in sorted(world.state.jobs)]:
            desired = desired_pods(world.state, job)
            gone = [pod for pod in (*desired.delete, *desired.force) if pod.uid not in self._hang]
            for pod in gone:
                world.pod_gone(pod.uid)
            for slot, node in desired.create:
                world.run_pod(job, slot, node)
            effects += len(gone) + len(desired.create)
        return effects

    def _happens(self, number: int) -> None:
        world, chance = self.world, self._chance
        for uid, end_ms in list(self._ends.items()):
            job = world.state.jobs.get(uid)
            if job is None or job.ended or job.stage != Stage.RUNNING:
                del self._ends[uid]
            elif world.now_ms >= end_ms:
                self._end(job, failed=chance.random() < 0.15)
        if number % 3 == 0:
            self._submit()
        for at, name, of in (
            (60, "gpu-node-03.cluster.lab.example", {"ready": False}),
            (75, "gpu-node-03.cluster.lab.example", {}),
            (150, "gpu-node-09.cluster.lab.example", {"cordoned": True}),
            (240, "gpu-node-09.cluster.lab.example", {}),
            (330, "gpu-node-14.cluster.lab.example", {"cordoned": True}),
            (350, "gpu-node-05.cluster.lab.example", {"ready": False}),
        ):
            if number == at:
                number_of = int(name[9:11])
                rack = {
                    "topology.kubernetes.io/zone": f"zone-{'ab'[number_of // 8]}",
                    "lab.example/rack": f"rack-{number_of // 4}",
                }
                world.node(name, cpu=96, memory=768 * GIB, gpus=8, labels=rack, **of)
        if number == 120:  # the pods of one running job won't leave when they must
            for job in world.state.jobs.values():
                if job.stage == Stage.RUNNING and len(job.placements) > 2:
                    self._hang.update(world.state.pods_of[job.uid])
        if number == 170:
            for uid in sorted(self._hang):
                if uid in world.state.pods and world.state.pods[uid].deleting:
                    world.pod_gone(uid)
            self._hang.clear()

    def _end(self, job: JobRecord, *, failed: bool) -> None:
        """Its leader, or the first worker of one without, ends."""
        world = self.world
        pods = sorted(world.pods_of(job).items())
        if pods:
            end = k.ContainerEnd("Error", 137) if failed else k.ContainerEnd("Completed", 0)
            world.change_pod(pods[0][1].uid, phase="Failed" if failed else "Succeeded", ended=end)
        del self._ends[job.uid]

    def _submit(self) -> None:
        world, chance = self.world, self._chance
        self._count += 1
        queue, of_queue = chance.choice(_QUEUES)
        name = f"{chance.choice(_WORK)}-{self._count}"
        wide = self._count % 17 == 0
        workers = 8 if wide else chance.choice((1, 2, 3, 4, 7))
        each = 8 if wide else chance.choice((1, 2, 4, 8))
        user = chance.choice(_USERS)
        world.job(
            name, namespace=of_queue, leader=shape(cpu=4, memory=16 * GIB, gpus=0 if self._count % 4 else 1),
            workers=workers, worker=shape(cpu=8, memory=32 * GIB, gpus=each),
            min_workers=workers if wide else max(1, workers - chance.choice((0, 0, 2))),
            priority=chance.choice((2, 5, 5, 5, 7, 9)), created=world.now_ms, of_queue=queue,
            user=user, created_by=(user, ""), expected_s=chance.choice((None, 600, 1200, 2400)),
            image="lab.example/rl:1.4", preemptible=self._count % 9 != 0,
        )  # fmt: skip
        if self._count == 40:
            world.job("never-fits-anywhere", namespace="research", of_queue="research", created=world.now_ms,
                      leader=shape(cpu=4, gpus=16), user=user)  # fmt: skip
        if self._count == 44:
            world.job(
                "has-a-typo", namespace="research", created=world.now_ms, invalid="spec.leader.template", user=user
            )
        if self._count == 50:
            world.job("hung-in-the-limit", namespace="nightly", of_queue="batch", created=world.now_ms, user=user,
                      leader=shape(cpu=4, gpus=8))  # fmt: skip


def large() -> Sequence[Entry]:
    """A cluster of 5,000 nodes with 40,000 GPUs, of which jobs of many sizes hold about half."""
    world = World(config=CycleConfig())
    chance = random.Random(_SEED)
    for number in range(5_000):
        world.node(
            f"node-{number:04}", cpu=96, memory=768 * GIB, gpus=8, cordoned=number % 211 == 0, ready=number % 307 != 0,
            labels={
                "topology.kubernetes.io/zone": f"zone-{number // 1_000}",
                "lab.example/row": f"row-{number // 100:02}",
            },
        )  # fmt: skip
    for name, weight in (("research", 3), ("serving", 2), ("batch", 1)):
        world.queue(name, weight=weight)
    for number in range(160):
        workers = chance.choice((4, 8, 16, 32, 48))
        world.job(
            f"train-{number:03}", namespace="default", leader=shape(cpu=4), workers=workers,
            worker=shape(cpu=8, gpus=chance.choice((4, 8, 8))), min_workers=workers, created=world.now_ms,
            of_queue=chance.choice(("research", "serving", "batch")), user=chance.choice(_USERS),
        )  # fmt: skip
        if number % 40 == 39:
            world.pass_time(60)
            world.cycle()
            world.control()
    return world.entries
