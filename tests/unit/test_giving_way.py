"""Jobs that give room to others: what their statuses and Events tell, and how their pods are evicted."""

import asyncio
from typing import Any

import msgspec
import pytest

from arranger.clock import SystemClock
from arranger.events import kinds as k
from arranger.events.facts import PreemptionKind
from arranger.kube.cluster import EVENTS, PODS, ApiError, Object
from arranger.kube.translate import job_status_seen, pod_seen
from arranger.lifecycle.desired import desired_status
from arranger.lifecycle.giving_way import gives_way, taking_text, unevicted_text
from arranger.messages.decisions import replaced_text
from arranger.model.job import PREEMPTED, Stage
from arranger.model.stages import StageReason
from arranger.projections import snapshot
from arranger.projections.consistency import validate
from arranger.projections.jobs.parts import EVICT
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import Changes
from arranger.sandbox.direct import DirectCluster
from arranger.sandbox.kinds import POD_DISRUPTION_BUDGETS
from arranger.sandbox.listing import Selection
from arranger.sandbox.store import Store
from arranger.workers.applying.effects.progress import ToldEvents
from arranger.workers.applying.statuses.reporter import Reporter
from tests.parts import parts
from tests.unit.test_applier import _WITH_WORKERS, Everyone, Scene, until
from tests.unit.test_preemption import preempted, running, waiting, world
from tests.world import World


def condition(of: World, job: JobRecord, name: str = PREEMPTED) -> Object | None:
    conditions = desired_status(of.state, job)["conditions"]
    return next((one for one in conditions if one["type"] == name), None)


def refuse(of: World, job: JobRecord, message: str) -> None:
    of.say(k.EffectFailed(job.uid, job.attempt, EVICT, None, 429, "TooManyRequests", message, False, 1))


def test_a_job_says_how_many_pods_are_still_to_leave_its_nodes_and_of_which_jobs() -> None:
    """Once a node is closed, the pods that a first decision made leave are those of no victim of the second one."""
    of = world(nodes=3)
    for name in ("one", "two", "three"):
        running(of, name, 4, priority=1 if name != "three" else 2)
    high = waiting(of, "high", 8, priority=9)
    assert preempted(of) is not None
    assert message(of, high) == "has nodes, and waits for 8 pods of 2 preempted jobs to leave them"
    first = of.state.jobs["uid-one"]
    (node,) = {pod.node for pod in of.state.pods_of[first.uid].values()}
    for pod in list(of.state.pods_of[first.uid].values())[:3]:
        of.pod_gone(pod.uid)
    assert message(of, high) == "has nodes, and waits for 5 pods of 2 preempted jobs to leave them"
    of.node(node, cpu=16, gpus=4, cordoned=True)
    of.control()
    decided = preempted(of)
    assert decided is not None and len(decided.victims) == 1
    assert message(of, high) == "has nodes, and waits for 8 pods of 2 preempted jobs to leave them"
    of.node("n3", cpu=16, gpus=4)
    for pod in list(of.state.pods.values()):
        if pod.owner is not None and pod.owner.job_uid != high.uid:
            assert message(of, high).startswith("has nodes, and waits for ")
            of.pod_gone(pod.uid)
    validate(of.state)


def test_pods_that_leave_anyway_are_not_called_those_of_preempted_jobs() -> None:
    of = world()
    running(of, "low", 3, priority=1)
    ends = running(of, "ends", 1, priority=1)
    of.say(k.StageDecided(ends.uid, ends.version, ends.attempt, Stage.SUCCEEDED, StageReason.TERMINATED))
    high = waiting(of, "high", 4, priority=9)
    assert preempted(of) is not None
    assert message(of, high) == "has nodes, and waits for 4 pods to leave them, 3 of them of 1 preempted job"
    for uid in list(of.state.pods_of[ends.uid]):
        of.pod_gone(uid)
    assert message(of, high) == "has nodes, and waits for 3 pods of 1 preempted job to leave them"


def message(of: World, job: JobRecord) -> str:
    return str(desired_status(of.state, job)["message"])


def test_the_condition_is_true_while_the_job_waits_again_and_false_afterwards() -> None:
    of = world()
    low = running(of, "low", 4, priority=1)
    assert condition(of, low) is None
    high = waiting(of, "high", 4, priority=9)
    assert preempted(of) is not None
    shown = condition(of, low)
    assert shown is not None and (shown["status"], shown["reason"]) == ("True", "Preempted")
    assert shown["message"].startswith("preempted for job high of namespace default, which has priority 9")
    assert condition(of, high) is None
    of.settle()
    of.say(k.StageDecided(high.uid, high.version, high.attempt, Stage.SUCCEEDED, StageReason.TERMINATED))
    of.settle()
    shown = condition(of, low)
    assert low.stage == Stage.RUNNING and shown is not None and shown["status"] == "False"
    validate(of.state)


@pytest.mark.parametrize(("queue", "why"), [("a", "has priority 9"), ("b", "whose queue b is below its share")])
def test_surplus_is_told_whether_priority_or_a_share_took_it(queue: str, why: str) -> None:
    of = world()
    of.watch_queues()
    of.queue("a")
    of.queue("b")
    wide = running(of, "wide", 4, least=2, priority=8, of_queue="a")
    waiting(of, "other", 1, priority=9, of_queue=queue)
    decision = preempted(of)
    assert decision is not None and [victim.kind for victim in decision.victims] == [PreemptionKind.SURPLUS]
    assert wide.replaced is not None and why in replaced_text(wide.replaced.causes, None)


def test_the_time_of_a_reservation_is_the_expected_start() -> None:
    of = world(preemption=None, reservations=1)
    running(of, "first", 4, priority=5, deadline_s=600)
    later = waiting(of, "later", 4, priority=5)
    of.cycle()
    status = desired_status(of.state, later)
    assert status["expectedStartTime"].endswith("Z")
    assert "expectedStartTime" not in desired_status(of.state, of.state.jobs["uid-first"])


def test_the_condition_is_adopted_in_a_new_epoch_and_confuses_nothing() -> None:
    of = world()
    low = running(of, "low", 4, priority=1)
    waiting(of, "high", 4, priority=9)
    assert preempted(of) is not None
    status = desired_status(of.state, low)
    new = World(listed=False)
    new.now_ms = of.now_ms + 10_000
    adopted = new.job("low", workers=4, min_workers=4, equals=True, status=job_status_seen(status, low.spec))
    assert (adopted.stage, adopted.preempted) == (Stage.RESCHEDULING, True)
    assert adopted.times.turned[PREEMPTED] == low.times.turned[PREEMPTED] or adopted.times.turned[PREEMPTED][0]
    over = [{**one, "status": "False"} if one["type"] == PREEMPTED else one for one in status["conditions"]]
    seen = job_status_seen({**status, "stage": "Running", "conditions": over}, low.spec)
    again = World(listed=False).job("low", workers=4, min_workers=4, equals=True, status=seen)
    assert again.stage == Stage.RUNNING and again.times.turned[PREEMPTED][0] is False


def test_a_refused_eviction_is_told_to_both_jobs_until_a_pod_goes() -> None:
    of = world()
    low = running(of, "low", 4, priority=1)
    high = waiting(of, "high", 4, priority=9)
    assert preempted(of) is not None
    assert taking_text(of.state, high) == "has nodes, once these have left them: 4 pods of job low of namespace default"
    refuse(of, low, "the budget says no")
    for job in (low, high):
        assert desired_status(of.state, job)["message"].endswith("; eviction refused: the budget says no")
    copied = snapshot.restore(snapshot.encode(of.state))
    assert copied.jobs[low.uid].slots.unevicted == low.slots.unevicted
    assert not low.failure and not low.short()
    of.settle()
    assert low.slots.unevicted is None and unevicted_text(of.state, high) == ""


def test_only_surplus_workers_of_a_job_that_runs_on_give_way() -> None:
    of = world(nodes=2)
    low = running(of, "low", 8, least=4, priority=1)
    waiting(of, "high", 4, priority=9)
    assert preempted(of) is not None
    pods = of.state.pods_of[low.uid].values()
    assert sorted(pod.owner.index for pod in pods if pod.owner and gives_way(low, pod)) == [4, 5, 6, 7]
    refuse(of, low, "no")
    assert "eviction refused: no" in desired_status(of.state, low)["message"]


async def test_an_event_names_those_who_give_room() -> None:
    of = world()
    running(of, "low", 4, priority=1)
    high = waiting(of, "high", 4, priority=9)
    assert preempted(of) is not None
    store, told = Store(now=lambda: 1_700_000_000.0), ToldEvents()
    reporter = Reporter(DirectCluster(store), SystemClock())
    told.taking = taking_text(of.state, high)
    await reporter.report(high, told)
    await reporter.report(high, told)
    low = of.state.jobs["uid-low"]
    await reporter.report(low, ToldEvents())
    stored = store.page(EVENTS, Selection(), limit=100, continuation="").items
    events = [msgspec.json.decode(item.raw) for item in stored]
    found = {(one["reason"], one["involvedObject"]["name"], one["count"]) for one in events}
    assert {("Preempting", "high", 1), ("Preempted", "low", 1)} <= found


# --- evictions by the applier --------------------------------------------------------------------------------


class Evicting(Scene):
    """A job of three pods that has been preempted, and an applier that evicts."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(job=_WITH_WORKERS)
        self.parts = parts(
            cluster=self.cluster, follower=self.following, membership=Everyone(), clock=SystemClock(),
            settings={"api_in_flight": 8, "evict": True} | settings,
        )  # fmt: skip
        self.applier = type(self.applier)(self.parts)

    def labelled(self) -> list[Object]:
        return [self.decoded(PODS, "default", name) for name in self.pods()]

    def see_pods(self) -> None:
        for pod in self.labelled():
            self.world.say(pod_seen(pod, self.world.terms[k.Watched.POD]))

    def budget(self, least: int) -> None:
        body = {"metadata": {"name": "team"}, "spec": {"minAvailable": least, "selector": {"matchLabels": {}}}}
        self.store.create(POD_DISRUPTION_BUDGETS, "default", body)


@pytest.mark.parametrize("evict", [True, False])
async def test_a_budget_holds_preempted_pods_only_where_evictions_are_set(
    monkeypatch: pytest.MonkeyPatch, evict: bool
) -> None:
    monkeypatch.setattr("arranger.workers.applying.pods.evictions._FIRST_S", 0.02)
    scene = Evicting(evict=evict)
    appended: list[Any] = []

    async def append(_writer: object, events: Any) -> None:
        appended.extend(events)
        scene.world.say(*events)

    monkeypatch.setattr("arranger.workers.log.writer.Writer.append", append)
    scene.world.cycle()
    async with scene.running():
        await until(lambda: scene.pods() == ["j-learner-0"])
        scene.run_pod("j-learner-0")
        await until(lambda: len(scene.pods()) == 3)
        for name in scene.pods():
            ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
            scene.store.patch(PODS, "default", name, {"status": ready}, subresource="status")
        scene.see_pods()
        scene.budget(2)
        scene.decide(Stage.RUNNING)
        job = scene.job
        scene.world.say(
            k.StageDecided(job.uid, job.version, job.attempt, Stage.RESCHEDULING, StageReason.PREEMPTED)
        )  # fmt: skip
        scene.applier.changed(Changes(jobs={job.uid: None}))
        gone = 1 if evict else 3
        await until(lambda: sum("deletionTimestamp" in pod["metadata"] for pod in scene.labelled()) == gone)
        if evict:
            await until(lambda: len(appended) > 0)
            await asyncio.sleep(0.2)
            assert sum("deletionTimestamp" in pod["metadata"] for pod in scene.labelled()) == 1
            assert {event.effect for event in appended} == {EVICT} and len(appended) == 1, "told once"
            assert "disruption budget team needs 2 healthy pods" in job.slots.unevicted.message
            scene.store.delete(POD_DISRUPTION_BUDGETS, "default", "team")
            await until(lambda: all("deletionTimestamp" in pod["metadata"] for pod in scene.labelled()))
        assert {pod["metadata"]["deletionGracePeriodSeconds"] for pod in scene.labelled()} == {30}


async def test_no_other_pod_is_evicted_under_the_name_of_a_preempted_one() -> None:
    scene = Evicting()
    with pytest.raises(ApiError, match="does not match the UID"):
        scene.store.create(
            PODS, "default", {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        )
        await scene.cluster.evict("default", "p", uid="another")
