"""What an applier does with a job whose effects fail: it tries again, ever later, and never in step with other jobs.

The loop is the simulation's, whose time is virtual: minutes of an API server that is down take a moment.
"""

import asyncio
import collections
import itertools
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from arranger.events import kinds as k
from arranger.kube.cluster import ApiError, ClusterUnavailable, Object, Resource, always
from arranger.model.job import Stage
from arranger.model.stages import StageReason
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import Changes, State
from arranger.workers.applying.applier import Applier
from arranger.workers.applying.effects.progress import Look, Progress
from tests.parts import parts
from tests.simulation.loop import SimulatedClock, VirtualLoop
from tests.world import World

#: No job is tried less often than this, in seconds.
LONGEST_S = 30.0


class Failing:
    """An API server that says what the test wants, and remembers which job was tried when."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.problem: Exception | None = ClusterUnavailable("connection refused")
        self.tried: dict[str, list[float]] = collections.defaultdict(list)

    async def patch(
        self, resource: Resource, namespace: str | None, name: str, body: Mapping[str, Any], *, subresource: str = ""
    ) -> Object:
        self.tried[name].append(self._loop.time())
        if self.problem is not None:
            raise self.problem.with_traceback(None)  # one that is raised again would keep the frames of all times
        return {"metadata": {"resourceVersion": f"stored-{len(self.tried[name])}"}}

    async def create(
        self, resource: Resource, namespace: str | None, body: Mapping[str, Any], *, still: Callable[[], bool] = always
    ) -> Object:
        return dict(body)  # Events


class Following:
    """A follower that is always at the end of the log."""

    cluster = ""

    def __init__(self, state: State) -> None:
        self.state = state

    def fresh(self) -> bool:
        return True


class Everyone:
    """A membership whose every share is ours."""

    def owns(self, key: str, role: str) -> bool:
        return True


class Scene:
    """Waiting jobs whose statuses are to be stored, and an applier in virtual time."""

    def __init__(self, *, jobs: int = 1) -> None:
        self.loop = VirtualLoop(random.Random(1))
        self.world = World()
        self.world.node("n1", cpu=1)
        self.jobs = [self.world.job(f"j{number}") for number in range(jobs)]
        self.cluster = Failing(self.loop)
        self.applier = Applier(
            parts(
                cluster=self.cluster,
                follower=Following(self.world.state),
                membership=Everyone(),
                clock=SimulatedClock(self.loop),
                settings={"api_in_flight": 1000},
            )
        )

    def run(self, script: Callable[[], Awaitable[None]]) -> None:
        async def main() -> None:
            task = asyncio.create_task(self.applier.run())
            self.touch()
            await script()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        try:
            self.loop.run_until_complete(main())
        finally:
            self.loop.close()

    def touch(self) -> None:
        """The watch brings something of every job, as it does all the time."""
        self.applier.changed(Changes(jobs={job.uid: None for job in self.jobs}))

    def decide(self, job: JobRecord, stage: Stage) -> None:
        self.world.say(k.StageDecided(job.uid, job.version, job.attempt, stage, StageReason.AS_RECORDED))
        self.touch()

    def gaps(self, name: str = "j0") -> list[float]:
        tried = self.cluster.tried[name]
        return [after - before for before, after in itertools.pairwise(tried)]


@pytest.mark.parametrize("problem", [ClusterUnavailable("connection refused"), ValueError("a bug")])
def test_a_job_whose_effects_fail_is_tried_again_ever_later_up_to_a_bound(problem: Exception) -> None:
    scene = Scene()
    scene.cluster.problem = problem
    scene.run(lambda: asyncio.sleep(600))
    gaps = scene.gaps()
    assert gaps[0] <= 1.0, "a single failure is mended soon"
    assert max(gaps) <= LONGEST_S
    assert min(gaps[-10:]) >= LONGEST_S / 2
    assert 600 / LONGEST_S <= len(gaps) <= 600 / (LONGEST_S / 2) + 8


def test_what_the_watch_brings_meanwhile_does_not_end_the_rest() -> None:
    scene = Scene()

    async def busy() -> None:
        for _ in range(600):
            await asyncio.sleep(1)
            scene.touch()

    scene.run(busy)
    assert min(scene.gaps()[-10:]) >= LONGEST_S / 2


@pytest.mark.slow
def test_jobs_that_fail_together_do_not_come_in_step() -> None:
    scene = Scene(jobs=300)
    scene.run(lambda: asyncio.sleep(600))
    moments = [tried for of_job in scene.cluster.tried.values() for tried in of_job]
    late = collections.Counter(int(moment) for moment in moments if moment > 1300.0)
    fair = len([moment for moment in moments if moment > 1300.0]) / 300
    assert fair < 300 / (LONGEST_S / 2)
    assert max(late.values()) < 4 * fair


def test_success_begins_again_with_the_shortest_rest() -> None:
    scene = Scene()
    job = scene.jobs[0]

    async def script() -> None:
        await asyncio.sleep(300)
        scene.cluster.problem = None
        await asyncio.sleep(LONGEST_S)
        scene.cluster.problem = ClusterUnavailable("connection refused")
        scene.cluster.tried.clear()
        scene.decide(job, Stage.FAILED)
        await asyncio.sleep(5)

    scene.run(script)
    assert scene.gaps()[0] <= 1.0


def test_a_new_decision_is_tried_at_once() -> None:
    scene = Scene()

    async def script() -> None:
        await asyncio.sleep(300)
        scene.cluster.problem = None
        scene.cluster.tried.clear()
        scene.decide(scene.jobs[0], Stage.FAILED)
        await asyncio.sleep(0.1)
        assert len(scene.cluster.tried["j0"]) == 1

    scene.run(script)


@pytest.mark.parametrize(("asked_s", "least_s", "most_s"), [(20.0, 20.0, 30.0), (86_400.0, 120.0, 200.0)])
def test_what_the_server_asks_to_wait_is_waited_whatever_comes_up_to_a_bound(
    asked_s: float, least_s: float, most_s: float
) -> None:
    scene = Scene()
    scene.cluster.problem = ApiError(429, "TooManyRequests", "slow down", retry_after_s=asked_s)

    async def script() -> None:
        for _ in range(200):
            await asyncio.sleep(1)
            scene.touch()
        scene.decide(scene.jobs[0], Stage.FAILED)
        await asyncio.sleep(0.1)

    scene.run(script)
    assert least_s <= scene.gaps()[0] <= most_s


def test_jobs_that_are_asked_to_wait_equally_long_do_not_come_in_step() -> None:
    scene = Scene(jobs=300)
    scene.cluster.problem = ApiError(429, "TooManyRequests", "slow down", retry_after_s=1.0)
    scene.run(lambda: asyncio.sleep(60))
    seconds = collections.Counter(int(tried[3]) for tried in scene.cluster.tried.values())
    assert max(seconds.values()) < 200


def test_a_pod_that_stays_refused_is_tried_again_ever_later_up_to_a_bound() -> None:
    """The first tries are close together: what passes soon must not cost a job its nodes."""
    scene = Scene()
    job, rests = scene.jobs[0], []
    look = Look(Following(scene.world.state), job, Progress())  # type: ignore[arg-type]

    class Appended:
        async def append(self, events: object) -> None:
            pass

    async def script() -> None:
        scene.applier._pods.creation._writer = Appended()  # type: ignore[assignment]
        for _ in range(9):
            await scene.applier._pods.creation.refused(look, (0, 0), ApiError(403, "Forbidden", "exceeded quota"))
            rests.append(look.progress.settling[job.attempt, (0, 0)] - scene.loop.time())

    scene.run(script)
    assert max(rests[:2]) <= 2.0
    assert sum(rests[:3]) <= 10.0 and min(rests[-2:]) >= LONGEST_S / 2 and max(rests) <= LONGEST_S
    assert len(set(rests[2:])) == len(rests[2:]), "none in step with others"


def test_nothing_is_kept_of_jobs_that_are_gone() -> None:
    scene = Scene(jobs=3)

    async def script() -> None:
        await asyncio.sleep(20)
        assert len(scene.applier._retries.failing()) == 3
        for job in scene.jobs:
            scene.world.job_gone(job)
        await asyncio.sleep(60)
        assert len(scene.applier._retries.failing()) == 0

    scene.run(script)


def test_a_look_that_gets_further_does_not_make_the_delay_longer() -> None:
    """Of the effects of a look, some fail on an API server that fails now and then; the others are done for good."""
    scene, looks = Scene(), []
    scene.cluster.problem = None

    async def done() -> bool:
        return True

    async def reconcile(look: Look) -> None:
        looks.append(scene.loop.time())
        await scene.applier._effects.carry_out("create", "default", done)
        raise ClusterUnavailable("connection reset")

    async def script() -> None:
        scene.applier._pods.reconciler.reconcile = reconcile  # type: ignore[method-assign]
        await asyncio.sleep(120)

    scene.run(script)
    assert len(looks) > 50 and max(after - before for before, after in itertools.pairwise(looks)) <= 1.1


def test_an_effect_that_fails_for_the_first_time_does_not_wait_as_long_as_another_that_failed_for_long() -> None:
    scene, stored = Scene(), []
    scene.cluster.problem = None

    async def refused() -> bool:
        raise ClusterUnavailable("connection reset")

    async def reconcile(look: Look) -> None:
        await scene.applier._effects.carry_out("create", "default", refused)

    async def script() -> None:
        scene.applier._pods.reconciler.reconcile = reconcile  # type: ignore[method-assign]
        await asyncio.sleep(300)
        scene.cluster.tried.clear()
        scene.cluster.problem = ClusterUnavailable("connection reset")
        scene.decide(scene.jobs[0], Stage.FAILED)
        await asyncio.sleep(5)
        stored.extend(scene.cluster.tried["j0"])

    scene.run(script)
    assert stored[1] - stored[0] <= 1.0


def test_every_waiting_job_has_its_first_status_soon_while_nothing_else_is_to_do() -> None:
    scene = Scene(jobs=300)
    scene.cluster.problem = None
    scene.run(lambda: asyncio.sleep(11))
    assert len(scene.cluster.tried) == 300
    assert all(len(tried) == 1 for tried in scene.cluster.tried.values())


def test_first_statuses_keep_their_turns_while_much_else_is_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(jobs=300)
    scene.cluster.problem = None
    monkeypatch.setattr(type(scene.applier._effects), "idle", False)
    scene.run(lambda: asyncio.sleep(11))
    assert 20 < len(scene.cluster.tried) < 300
